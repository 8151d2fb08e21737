"""What the numbers were measured on; no name or address of the machine."""

from __future__ import annotations

import os
import platform
import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from maskov.runs.signature import versions

_OTHERS = ("minicons",)


def machine(device: torch.device) -> dict[str, Any]:
    """Describe the processor, and the GPU where one is used."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found: dict[str, Any] = {
        "device": str(device),
        "processor": _processor(),
        "cores": cores,
        "threads": torch.get_num_threads(),
        "system": platform.system(),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {"gpu": properties.name, "gpu_memory_gib": properties.total_memory / 2**30}
    return found


def all_versions() -> dict[str, str]:
    """Return the versions that a speed depends on, other people's tools included."""
    found = versions()
    for name in _OTHERS:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _processor() -> str:
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
        if named is not None:
            return named[1]
    return platform.processor() or platform.machine()
