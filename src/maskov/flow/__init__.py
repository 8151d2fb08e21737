"""Chains in flight: asynchronous rounds of full batches, delayed acceptance, prefetching."""

from maskov.flow.buffers import Buffers
from maskov.flow.flow import Flow, Settled, low_terms

__all__ = ["Buffers", "Flow", "Settled", "low_terms"]
