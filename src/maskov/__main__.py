"""`python -m maskov` is the command."""

from maskov.cli import main

main()
