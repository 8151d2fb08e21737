"""Choices that a run makes by pilot chains before its first epoch; these chains are discarded."""
