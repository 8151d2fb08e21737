"""A hundred thousand chains on one machine: all but a portion of them rest outside the device."""

import json
import subprocess
import sys
import textwrap

import pytest

# In a process of its own, so that its peak of memory is its own.
_RUN = """
    import json, sys, time
    import torch
    import maskov
    from small import tiny_bert

    chains, resident = map(int, sys.argv[1:])
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
             "intermediate_size": 8, "max_position_embeddings": 48}
    model = tiny_bert("red green blue", torch.float32, **shape)
    # One word may change, so that most of the time is the first look at each sequence.
    template = " ".join(["red", "green", "blue"] * 15).replace("blue", "[MASK]", 1)

    def memory(name):
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024

    before, begun = memory("VmRSS"), time.monotonic()
    run = maskov.sample(
        model, maskov.Metropolis(maskov.Norm()), maskov.Schedule(epochs=2), chains=chains,
        templates=[template], resident=resident,
    )
    assert run.traces["steps"].sum() == 2 * chains
    assert all(len(one.ids) == 45 for one in run.samples[:10])
    print(json.dumps({"mib": memory("VmHWM") - before, "seconds": time.monotonic() - begun,
                      "passes": int(run.traces["passes"].sum()), "kept": len(run.samples)}))
"""


def _measure(chains: int, resident: int) -> dict[str, float]:
    command = [sys.executable, "-c", textwrap.dedent(_RUN), str(chains), str(resident)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_memory_is_that_of_what_rests_and_of_one_portion(capsys):
    """A resting chain is its tokens and its 45 vectors, some KiB; no batch grows with them."""
    few, many = _measure(10_000, 2_000), _measure(100_000, 2_000)
    with capsys.disabled():
        print(f"\n10,000 chains: {few['mib']:.0f} MiB; 100,000: {many['mib']:.0f} MiB", many)
    assert many["kept"] == 100_000
    each = (many["mib"] - few["mib"]) * 1024 / 90_000
    assert each < 16
