"""Chains in flight: asynchronous rounds of full batches, delayed acceptance, prefetching."""

from maskov.flow.board import Settled, low_terms
from maskov.flow.buffers import Buffers
from maskov.flow.flow import Flow

__all__ = ["Buffers", "Flow", "Settled", "low_terms"]
