"""The most memory that some work takes, beyond what is held when it begins."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

_MIB = 2**20
_STATUS = Path("/proc/self/status")


class PeakMemory:
    """Watches from its making; `peak` tells how far memory has risen since, in MiB."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._device_before = 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._device_before = torch.cuda.memory_allocated(device)
        with suppress(OSError):
            # Loading a model may have taken more than it holds: forget that peak (Linux).
            Path("/proc/self/clear_refs").write_text("5")
        self._before = _resident("VmRSS")

    def peak(self) -> dict[str, float | None]:
        """Return the rise of the process's memory and of the device's."""
        on_device = None
        if self.device.type == "cuda":
            most = torch.cuda.max_memory_allocated(self.device)
            on_device = (most - self._device_before) / _MIB
        return {
            "peak_memory_mib": max(0, _resident("VmHWM") - self._before) / _MIB,
            "peak_device_memory_mib": on_device,
        }


def _resident(field: str) -> int:
    """Return VmRSS (now) or VmHWM (the most so far) in bytes.

    Linux's getrusage would include what the parent held when it started this process, so it
    only serves where there is nothing better; it knows the most so far, not the present.
    """
    with suppress(OSError, StopIteration):
        lines = _STATUS.read_text().splitlines()
        line = next(line for line in lines if line.startswith(f"{field}:"))
        return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
