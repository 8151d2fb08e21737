"""Benchmarks: the paper's algorithm in plain code, maskov, and other scorers.

`maskov bench` and `run` measure them side by side (`side_by_side`): `options` are its options,
`variants` the ways to run maskov, `jobs` and `worker` run each measurement in its own process,
`sampling`, `plain`, `algorithm1` and `scoring` measure the rows, `ceiling`, `flops`, `effective`,
`memory` and `machine` are the instruments, and `rows` turns counts into rates. `models`, `grown`
and `sentences` are the inputs.

The other benchmarks are scripts, run as `python -m maskov.benchmarks.NAME`:

- `scaling`: speed against the number of chains, their length, or the model size
- `encoder`: the encoder alone, against Hugging Face's and bare matrix products
- `paper`: the paper's unconditional run
- `rounds`: asynchronous rounds on a GPU: share of the ceiling, host and device time
- `translate`: sentences per second of every translation method
- `overhead`: workers, Ray, checkpoints, resuming, and 100,000 chains
- `overhead_table`: write the results of `overhead` into docs/reference/scaling.md
- `plot`: figures of results

docs/reference/benchmarks.md describes how everything is counted.
"""

from maskov.benchmarks.options import Options
from maskov.benchmarks.side_by_side import run

__all__ = ["Options", "run"]
