"""Chains in flight: asynchronous rounds of full batches, delayed acceptance, prefetching."""

from maskov.flow.board import low_terms
from maskov.flow.buffers import Buffers
from maskov.flow.flow import Flow
from maskov.flow.watching import UNTESTED, Settled

__all__ = ["UNTESTED", "Buffers", "Flow", "Settled", "low_terms"]
