"""The machine and package versions of a benchmark, without the machine's name or address."""

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
    """Describe the processor and, if used, the GPU."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    description: dict[str, Any] = {
        "device": str(device),
        "processor": _processor(),
        "cores": cores,
        "threads": torch.get_num_threads(),
        "system": platform.system(),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        description |= {"gpu": properties.name, "gpu_memory_gib": properties.total_memory / 2**30}
    return description


def all_versions() -> dict[str, str]:
    """Return the versions of maskov, its dependencies and the scorers compared with it."""
    installed = versions()
    for name in _OTHERS:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


def _processor() -> str:
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
        if match is not None:
            return match[1]
    return platform.processor() or platform.machine()
