"""What benchmarks share: options, the machine, processes, results."""

import argparse
import json
import multiprocessing
import os
import platform
import re
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from maskov.runs.manifest import versions

MODEL = {"model": "wiki-small", "device": "auto", "precision": "float32"}
_HELP = {
    "model": "name, folder, bert-base-shaped, bert-LxW-shaped, or wiki-small-grown",
    "device": "auto, cpu, cuda, cuda:1 ...",
    "precision": "float32, tf32 or bfloat16",
    "energy": "raw or norm",
    "length": "tokens of a chain: 20, or a range 15:45",
    "burn_in": "epochs of burn-in",
    "seconds": "seconds of a measurement without an end",
}


def parser(description: str, **defaults: Any) -> argparse.ArgumentParser:
    """Return a parser of options with these defaults, and of --out."""
    made = argparse.ArgumentParser(description=description.splitlines()[0])
    for name, default in defaults.items():
        made.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(default),
            default=default,
            help=f"{_HELP.get(name, 'number')} (default: {default})",
        )
    made.add_argument("--out", type=Path, help="JSON file to write")
    return made


def length_of(text: str) -> tuple[int, int]:
    """Read `20` or `15:45`."""
    low, _, high = text.partition(":")
    return int(low), int(high or low)


def in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a fresh process, so that its memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def now(device: torch.device) -> float:
    """Return the time when the device has done its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def about(device: torch.device) -> dict[str, Any]:
    """Return the date, the machine without its name or address, and versions."""
    names = re.findall(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    machine: dict[str, Any] = {
        "device": str(device), "processor": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)), "threads": torch.get_num_threads(),
        "system": platform.system(),
    }  # fmt: skip
    if device.type == "cuda":
        machine["gpu"] = torch.cuda.get_device_name(device)
    installed = versions()
    with suppress(PackageNotFoundError):
        installed["minicons"] = version("minicons")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "versions": installed,
    }


def write(options: argparse.Namespace, device: torch.device, results: dict[str, Any]) -> None:
    """Write results with the options, the machine and versions, if there is a file for them."""
    if options.out is not None:
        chosen = vars(options) | {"out": None}
        document = {"options": chosen} | about(device) | results
        # Of a file only its name is told.
        text = json.dumps(document, indent=1, ensure_ascii=False, default=lambda path: path.name)
        options.out.write_text(text + "\n", encoding="utf-8")


def show(rows: list[dict[str, Any]], *keys: str) -> None:
    """Print a table with a column for each row."""
    for key in keys:
        cells = (row.get(key) for row in rows)
        shown = (f"{cell:,.4g}" if isinstance(cell, float) else str(cell) for cell in cells)
        print(f"{key:24s}", *(f"{cell:>16s}" for cell in shown), flush=True)
