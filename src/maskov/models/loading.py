"""One lock for everything that loads models.

Loading changes state of the whole process: modules that transformers imports when they are first
named, the default type of numbers, and the random numbers that weights start from. Two threads that
load at once fail, or get other weights.
"""

from __future__ import annotations

from threading import RLock

# Reentrant, because loading one model may load another.
LOADING = RLock()
