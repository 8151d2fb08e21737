"""Runs in a browser: pick one, play its chains step by step, start another and watch it."""
