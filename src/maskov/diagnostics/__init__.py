"""Diagnostics: what a run did and how far its numbers can be trusted."""

from maskov.diagnostics.summary import Summary, summarise

__all__ = ["Summary", "summarise"]
