"""A run on a Ray cluster comes to the same bytes, also when a node is killed on the way.

Ray binds to the machine's own address and looks outward; here it has a network of its own, with
nothing but the loopback in it.
"""

import builtins
import importlib.util
import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

from maskov import InputError, Metropolis, Raw, Schedule, Workers, sample
from odd_workers import files
from small import tiny_bert

SCENARIO = Path(__file__).with_name("ray_scenario.py")


@lru_cache(maxsize=1)
def _why_not() -> str | None:
    """Return why Ray cannot be tested here, or nothing."""
    if importlib.util.find_spec("ray") is None:
        return "Ray is not installed"
    try:
        probe = subprocess.run(
            ["unshare", "--net", "ip", "link", "set", "lo", "up"], capture_output=True
        )
    except FileNotFoundError:
        return "a network of its own needs `unshare` and `ip`"
    return None if probe.returncode == 0 else "a network of its own cannot be had here"


def _on_ray(folder: Path, how: str) -> dict[str, int]:
    inside = f"ip link set lo up && exec {sys.executable} {SCENARIO} {folder} {how}"
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", inside],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("how", ["whole", "worker", "killed"])
def test_one_process_four_processes_and_ray_with_a_killed_node(how, tmp_path):
    if _why_not() is not None:
        pytest.skip(str(_why_not()))
    from workers.ray_scenario import sampled

    sampled(tmp_path / "one", workers=Workers(threads=1))
    told = _on_ray(tmp_path / "ray", how)
    assert told["killed"] == 1
    expected = files(tmp_path / "one")
    assert expected["samples.jsonl"].count(b"\n") == 36
    assert files(tmp_path / "ray") == expected
    if how == "killed":
        sampled(tmp_path / "four", workers=Workers(4))
        assert files(tmp_path / "four") == expected


def test_without_ray_it_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def absent(name, *rest):
        if name.partition(".")[0] == "ray":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(InputError, match=r"'\.\[ray\]'"):
        sample(
            tiny_bert(), Metropolis(Raw()), Schedule(epochs=1), chains=2, length=3,
            workers=Workers(engine="ray"),
        )  # fmt: skip
