"""The tables, figures and claims of the paper, each with the numbers that the paper prints."""
