"""The options of runs, by the names that the command line and Python share."""
