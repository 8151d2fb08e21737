"""Run a job (one measurement) in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from maskov.errors import InputError

Job = dict[str, Any]


def run_in_subprocess(job: Job) -> dict[str, Any]:
    """Run a job in a fresh process; raise its input errors here."""
    process = subprocess.run(
        [sys.executable, "-m", "maskov.benchmarks.worker"],
        input=json.dumps(job).encode(),
        capture_output=True,
        check=False,
    )
    try:
        answer: dict[str, Any] = json.loads(process.stdout)
    except ValueError:
        lines = process.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"it ended with code {process.returncode}"
        raise InputError(f"a measurement ({job['task']}) failed: {reason}") from None
    if "error" in answer:
        raise InputError(answer["error"])
    return answer
