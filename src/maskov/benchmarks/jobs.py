"""Jobs: one measurement each, done in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from maskov.errors import InputError

Job = dict[str, Any]


def in_subprocess(job: Job) -> dict[str, Any]:
    """Do a job in a fresh process; what the user can mend there, he can mend here."""
    done = subprocess.run(
        [sys.executable, "-m", "maskov.benchmarks.worker"],
        input=json.dumps(job).encode(),
        capture_output=True,
        check=False,
    )
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        reason = said[-1] if said else f"it ended with code {done.returncode}"
        raise InputError(f"a measurement ({job['task']}) failed: {reason}") from None
    if "error" in found:
        raise InputError(found["error"])
    return found
