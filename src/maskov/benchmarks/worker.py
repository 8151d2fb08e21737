"""One measurement in a process of its own, so that its memory is its own.

`python -m maskov.benchmarks.worker` reads a job as JSON from standard input and writes its results
as JSON to standard output. A job names its `task`, the benchmark's `options`, and what else it
needs.
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
from maskov.benchmarks.variants import named
from maskov.errors import InputError, MaskovError
from maskov.models import HuggingFaceModel


def work(job: Job) -> dict[str, Any]:
    """Load the model, do the task, and add how much memory it took."""
    options = Options.from_dict(job["options"])
    plain = job["task"] in ("plain", "ceiling") or job.get("scorer") == "minicons"
    model = load_model(options.model, options.device, options.precision, plain)
    memory = PeakMemory(model.device)
    found = _measure(model, options, job)
    return found | memory.peak() | {"model": _describe(model), "machine": machine(model.device)}


def _measure(model: HuggingFaceModel, options: Options, job: Job) -> dict[str, Any]:
    match job["task"]:
        case "sampling":
            return measure_sampling(model, options, named(job["variant"]))
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


def respond(text: str) -> dict[str, Any]:
    """Do the job that a JSON text describes; what the user can mend is told as an error."""
    try:
        return work(json.loads(text))
    except MaskovError as error:
        return {"error": str(error)}


def main() -> None:
    """Read a job, do it, write what was found."""
    # Whatever else is printed, by whichever library, must not stand in the answer.
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with answer:
        json.dump(respond(sys.stdin.read()), answer)


if __name__ == "__main__":
    main()
