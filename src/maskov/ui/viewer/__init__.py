"""Runs in a browser: list them, replay chains step by step, start a run and watch it."""
