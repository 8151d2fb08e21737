"""A run whose every text tries to be more than text."""

from dataclasses import replace
from typing import Any

import maskov
from maskov.config import Inputs, Schedule
from maskov.runs import Run
from maskov.runs.store import Store
from small import random_table

EVIL = (
    "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'> | ` "
    "\u2028 &amp;"
)


def small_run(chains: int = 3, epochs: int = 3, **settings: Any) -> Run:
    """Return a quick run in memory."""
    schedule = settings.pop("schedule", Schedule(epochs=epochs))
    return maskov.sample(random_table(), schedule=schedule, chains=chains, length=3, **settings)


def evil_run() -> Run:
    """Return a run with markup in its samples, tokens, sources, notes, signature and names."""
    run = small_run()
    samples = [
        replace(one, text=EVIL, tokens=[EVIL, *one.tokens[1:]], template=0) for one in run.samples
    ]
    config = run.manifest.config
    config = replace(
        config,
        model=replace(config.model, name=EVIL, device=EVIL),
        inputs=Inputs(sources=(EVIL,), lengths=EVIL, chosen=((4, 4, 4),)),
        chains=3,
    )
    manifest = replace(
        run.manifest, config=config, signature=EVIL, notes=(EVIL,), versions={EVIL: EVIL},
        created=EVIL,
    )  # fmt: skip
    again = begun(Run(Store(manifest)), 3, run.traces)
    again.store.write_samples(samples)
    return again


def begun(run: Run, epochs: int, traces: Any = None) -> Run:
    """Return a run as it stood after so many epochs, of its own traces or others."""
    store, traces = Store(run.manifest), traces or run.traces
    for epoch in range(epochs):
        store.write_rows(0, epoch, {name: rows[epoch] for name, rows in traces.items()})
    return Run(store)
