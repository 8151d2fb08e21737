"""maskov's own row: what is timed, and what is counted in that time."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

import maskov
from maskov.benchmarks.flops import NetworkSize, flops_per_pass, last_layer_query_only
from maskov.benchmarks.options import Options
from maskov.benchmarks.sampling import measure_sampling
from maskov.benchmarks.variants import reference_variant
from maskov.energies import parse_energy
from small import tiny_bert


@pytest.mark.parametrize("energy", ["raw", "norm"])
def test_time_and_counts_are_those_after_burn_in(monkeypatch, energy):
    """By a clock that moves once an epoch, and by the traces of the same run made again."""
    model = tiny_bert("red green blue white black", initializer_range=0.3)
    clock = SimpleNamespace(perf_counter=map(float, itertools.count()).__next__)
    monkeypatch.setattr("maskov.benchmarks.sampling.time", clock)
    options = Options(energy=energy, chains=4, length=(3, 6), epochs=9, burn_in=3, seed=2)
    found = measure_sampling(model, options, reference_variant())
    assert (found["seconds"], found["seconds_of_run"]) == (9 - 3, 9)
    assert found["passes_by_engine"] == found["passes"]
    assert found["notes"] == []
    run = maskov.sample(
        model, reference_variant().build_kernel(parse_energy(energy)), maskov.Schedule(9, 3),
        chains=4, length=(3, 6), seed=2,
    )  # fmt: skip
    kept = {name: values[3:].sum(0) for name, values in run.traces.items()}
    assert found["steps"] == kept["steps"].sum()
    assert found["passes"] == kept["passes"].sum()
    assert found["novel_seen"] == kept["novel"].sum() > 0
    assert found["ids"] == [sample.ids for sample in run.samples]
    lengths = [len(sample.ids) for sample in run.samples]
    assert len(set(lengths)) > 1
    passes = list(zip(lengths, kept["passes"].tolist(), strict=True))
    assert found["tokens"] == sum(count * (length + 2) for length, count in passes)
    # A proposal a step, and each pass with the head that its energy needs.
    head = "masked" if energy == "norm" else "transform"
    config, only = model.network.config, last_layer_query_only(model)
    expected = sum(count * flops_per_pass(config, n, 2, only, head) for n, count in passes)
    assert found["flops"] == expected + found["steps"] * NetworkSize.of(config).projection
    assert found["effective"] is None
