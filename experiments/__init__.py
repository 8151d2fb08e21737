"""Experiments with the shipped models: each a declared configuration, a run and a comparison."""
