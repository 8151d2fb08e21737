"""Translations with sampled lengths: `python -m experiments.studies.lengths`."""
