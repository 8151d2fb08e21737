"""Reproductions of the paper's results: declared cells, their runs, and comparisons."""
