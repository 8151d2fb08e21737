"""Run one job in its own process, so that its peak memory is its own.

`python -m maskov.benchmarks.worker` reads a job as JSON from standard input and writes its result
as JSON to standard output. A job contains its `task`, the benchmark's `options`, and arguments of
the task.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from maskov.benchmarks.ceiling import measure_ceiling
from maskov.benchmarks.jobs import Job
from maskov.benchmarks.machine import machine
from maskov.benchmarks.memory import PeakMemory
from maskov.benchmarks.models import load_model
from maskov.benchmarks.options import Options
from maskov.benchmarks.plain import measure_plain
from maskov.benchmarks.sampling import measure_sampling
from maskov.benchmarks.scoring import measure_scoring
from maskov.benchmarks.variants import find_variant
from maskov.errors import InputError, MaskovError
from maskov.models import HuggingFaceModel


def run_job(job: Job) -> dict[str, Any]:
    """Load the model, run the task, and add its peak memory."""
    options = Options.from_dict(job["options"])
    plain = job["task"] in ("plain", "ceiling") or job.get("scorer") == "minicons"
    model = load_model(options.model, options.device, options.precision, plain)
    memory = PeakMemory(model.device)
    measured = _measure(model, options, job)
    return measured | memory.peak() | {"model": _describe(model), "machine": machine(model.device)}


def _measure(model: HuggingFaceModel, options: Options, job: Job) -> dict[str, Any]:
    match job["task"]:
        case "sampling":
            return measure_sampling(model, options, find_variant(job["variant"]))
        case "plain":
            return measure_plain(model, options, job["starts"], job["together"])
        case "scoring":
            return measure_scoring(model, job["scorer"], options.seconds)
        case "ceiling":
            return measure_ceiling(model, options.seconds)
        case task:
            raise InputError(f"unknown task '{task}'.")


def _describe(model: HuggingFaceModel) -> dict[str, Any]:
    config = model.network.config
    return {
        "name": model.name,
        "family": getattr(config, "model_type", None),
        "parameters": sum(weight.numel() for weight in model.network.parameters()),
        "layers": getattr(config, "num_hidden_layers", None),
        "width": getattr(config, "hidden_size", None),
        "vocabulary": model.vocabulary_size,
        "dtype": str(model.dtype).removeprefix("torch."),
        "caution": model.caution,
    }


def run_json_job(text: str) -> dict[str, Any]:
    """Run a job given as JSON; return input errors as `error`."""
    try:
        return run_job(json.loads(text))
    except MaskovError as error:
        return {"error": str(error)}


def main() -> None:
    """Read a job, run it, write its result."""
    # Keep anything that libraries print out of the answer.
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with answer:
        json.dump(run_json_job(sys.stdin.read()), answer)


if __name__ == "__main__":
    main()
