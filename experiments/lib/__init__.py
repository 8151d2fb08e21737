"""What experiments share: cells that are computed once, models, estimates, tables, figures."""
