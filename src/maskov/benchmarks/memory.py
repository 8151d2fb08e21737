"""Peak memory of a measurement, beyond what is in use when it starts."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

_MIB = 2**20
_STATUS = Path("/proc/self/status")


class PeakMemory:
    """Records the memory in use; `peak` returns the rise since then, in MiB."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._device_before = 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._device_before = torch.cuda.memory_allocated(device)
        with suppress(OSError):
            # Loading a model may have used more memory: reset that peak (Linux).
            Path("/proc/self/clear_refs").write_text("5")
        self._before = resident_bytes("VmRSS")

    def peak(self) -> dict[str, float | None]:
        """Return the rise of the memory of the process and of the device."""
        on_device = None
        if self.device.type == "cuda":
            most = torch.cuda.max_memory_allocated(self.device)
            on_device = (most - self._device_before) / _MIB
        return {
            "peak_memory_mib": max(0, resident_bytes("VmHWM") - self._before) / _MIB,
            "peak_device_memory_mib": on_device,
        }


def resident_bytes(field: str) -> int:
    """Return VmRSS (current) or VmHWM (peak) in bytes.

    On Linux, getrusage includes the parent's memory at the fork, so it is only a fallback. It
    returns the peak, never the current value.
    """
    with suppress(OSError, StopIteration):
        lines = _STATUS.read_text().splitlines()
        line = next(line for line in lines if line.startswith(f"{field}:"))
        return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
