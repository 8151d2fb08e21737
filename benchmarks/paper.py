"""Time the paper's unconditional run: 500 chains of 15 to 45 tokens, 100 epochs.

    python -m benchmarks paper --model wiki-small-grown --precision bfloat16 --out FILE.json

With `--moves span --delayed 2 --burn-in 8 --burn-in-energy 'raw(groups=4)'` it is the
default of `maskov sample`; the energies of its first epochs are then those of burn-in. Use a
trained model for meaningful rates. The time includes all of `maskov.sample` after the model is
loaded: the initial fill, the first energies, every step, all traces and samples. The ceiling of
matrix products is measured in the same process. With --profile, the run is made once more and the
kernels that take the most time are listed.
"""

import time
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.models import load_model
from benchmarks.runs import ceiling_of, counts, rates, run_texts
from benchmarks.tools import MODEL, parser, show, write


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print and write the results."""
    made = parser(
        __doc__, **MODEL, energy="raw", chains=500, length="15:45", epochs=100, burn_in=0,
        moves="site", seconds=1.0, seed=0,
    )  # fmt: skip
    made.add_argument("--delayed", type=int, help="nearest positions (default: chosen by a pilot)")
    made.add_argument("--burn-in-energy", help="the energy of burn-in")
    made.add_argument("--profile", type=int, default=0, help="kernels to list")
    options = made.parse_args(arguments)
    model = load_model(options.model, options.device, options.precision)
    begin = time.perf_counter()
    run, timer = run_texts(model, options)
    end = time.perf_counter()
    seconds, cuda = end - timer.start, model.device.type == "cuda"
    ceiling = ceiling_of(options.model, options.device, options.precision, options.seconds)
    row = rates(counts(model, run, options.energy, seconds), ceiling)
    passes = accumulate(epoch[2] for epoch in timer.epochs)
    results = {
        "kind": "paper",
        "signature": run.signature,
        **row,
        "seconds": end - begin,
        "seconds_of_steps": seconds,
        "ceiling_teraflops": ceiling,
        "peak_mib": torch.cuda.max_memory_allocated() / 2**20 if cuda else None,
        # Of each epoch: seconds since the first step, mean energy, passes of a chain so far.
        "progress": [(e[0], e[1], n) for e, n in zip(timer.epochs, passes, strict=True)],
        "samples": [sample.text for sample in run.samples[:10]],
    }
    show([results], *(name for name, value in results.items() if isinstance(value, float | int)))
    write(options, model.device, results)
    if options.profile:
        with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as seen:
            run_texts(model, options)
        sort = "self_device_time_total" if cuda else "self_cpu_time_total"
        print(seen.key_averages().table(sort_by=sort, row_limit=options.profile))
