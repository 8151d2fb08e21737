"""Custom parts, named by their import path: written, resumed, sent, reported."""

import shutil
import sys
from pathlib import Path

import pytest

import maskov
from json_files import edited
from maskov.errors import RunError
from maskov.kernels.base import BurnIn
from odd_workers import files, oddly
from stopped_runs import cut

MODULE = '''
"""Parts that are not maskov's."""

from dataclasses import dataclass

import maskov
from maskov.kernels.base import Kernel


class Contains:
    """An energy of texts: 1 for each text without the word."""

    def __init__(self, word):
        self.word = word

    def __call__(self, texts):
        return [float(self.word not in text.split()) for text in texts]


def letters(texts):
    """An energy of texts that is a plain function."""
    return [0.01 * len(text) for text in texts]


@dataclass(frozen=True)
class Longer(maskov.Energy):
    """An energy of sequences."""

    factor: float = 0.1

    def __call__(self, model, sequences):
        return self.factor * sequences.lengths.double()


@dataclass(frozen=True)
class MyMove(maskov.Site):
    """A site move under another name."""


class MyKernel(Kernel):
    """Two Metropolis steps in one."""

    energy = maskov.Raw()
    leaves_invariant = True
    started = 0

    def __init__(self, temperature=1.0):
        self.inner = maskov.Metropolis(
            maskov.Raw(), target_temperature=temperature, delayed=maskov.DelayedAcceptance(0)
        )

    def init(self, chains, scorer):
        type(self).started += 1
        return self.inner.init(chains, scorer)

    def begin(self, chains, rng):
        return self.inner.begin(chains, rng)

    def step(self, chains, rows, scorer, rng):
        return self.inner.step(chains, rows, scorer, rng)
'''
ENERGY = "raw + 12*own_parts:Contains('red')"
RUN = "--model untrained --chains 4 --epochs 4 --length 3:4 --resident 2 --thin 1 --seed 5"
PARTS = {
    "an energy of texts": f'--energy "{ENERGY}"',
    "a function": "--energy raw+own_parts:letters",
    "a mixture": '--moves "site:2,own_parts:MyMove:1"',
    "a kernel": '--kernel "own_parts:MyKernel(0.8)"',
}


@pytest.fixture(autouse=True)
def _module(tmp_path, monkeypatch):
    """A module of parts in the current folder."""
    (tmp_path / "own_parts.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    sys.modules.pop("own_parts", None)
    yield
    sys.modules.pop("own_parts", None)


@pytest.mark.parametrize("part", PARTS)
def test_a_run_with_own_parts_is_written_stopped_and_resumed(part, printed, refused):
    printed(f"sample {RUN} {PARTS[part]} --quiet --out whole")
    manifest = maskov.Run.open("whole").manifest
    model = maskov.load("untrained", "cpu")
    kernel = maskov.runs.preparation.rebuild(manifest, model, trust_parts=True)[0]
    # Of a kernel with a burn-in of its own, the schedule says which.
    kernel = kernel.kernels[0] if isinstance(kernel, BurnIn) else kernel
    settings = {"chains": 4, "length": (3, 4), "resident": 2, "thin": 1, "seed": 5}
    cut("cut", 12, model, kernel, schedule=manifest.schedule, **settings)
    assert maskov.Run.open("cut").manifest.config.kernel == manifest.config.kernel
    told = refused("resume cut --quiet")
    assert "own_parts:" in told
    assert "--trust-parts" in told
    printed("resume cut --quiet --trust-parts")
    assert files(Path("cut")) == files(Path("whole"))
    assert manifest.leaves_invariant


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_workers_build_them_again(processes, printed, monkeypatch):
    words = (
        f'sample {RUN} --energy "{ENERGY} + 0.5*own_parts:Longer" --delayed 2 --quiet '
        '--moves "site:2,own_parts:MyMove:1,span:1"'
    )
    printed(f"{words} --out here --workers 0")
    made = [] if processes else oddly(monkeypatch, count=2, seed=1)
    printed(f"{words} --out there --workers 2")
    assert files(Path("there")) == files(Path("here"))
    assert processes or made[0].losses > 0
    run = maskov.Run.open("here")
    assert "spans of 1,2,3" in run.signature
    assert run.manifest.leaves_invariant


def test_reading_a_run_imports_nothing_and_resuming_needs_the_module(printed, refused, tmp_path):
    printed(f"sample {RUN} {PARTS['an energy of texts']} --quiet --out run")
    kernel = maskov.Metropolis(maskov.parse_energy(ENERGY))
    cut("cut", 10, maskov.load("untrained", "cpu"), kernel, chains=3, length=5)
    sys.modules.pop("own_parts")
    assert "own_parts:Contains('red')" in printed("diagnose run --json")
    printed("report run --out report.html")
    assert "own_parts:Contains" in Path("report.html").read_text()
    assert "own_parts" not in sys.modules
    (tmp_path / "own_parts.py").unlink()
    sys.path_importer_cache.clear()
    assert "cannot import 'own_parts'" in refused("resume cut --quiet --trust-parts")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--energy own_parts:Nothing", "has no 'Nothing'"),
        ("--energy own_parts:Contains", "cannot be made with these arguments"),
        ("--moves own_parts:Longer", "is not a move"),
        ("--kernel own_parts:MyMove", "is not a kernel"),
        ("--moves own_parts:MyMove --proposal top_p=0.5", "drop --proposal"),
        ("--kernel gibbs --moves own_parts:MyMove,site", "gibbs moves sites"),
        ("--kernel own_parts:MyKernel --proposal top_p=0.9", "drop --proposal"),
    ],
)
def test_what_cannot_be_used_is_refused(words, reason, refused):
    assert reason in refused(f"sample {words}")


def test_a_manifest_from_elsewhere_imports_nothing(printed):
    printed(f"sample {RUN} --quiet --out run")
    Path("evil.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    # Not over, and with nothing that the manifest is held to.
    shutil.rmtree("run/checkpoints")
    Path("run/samples.jsonl").write_text("")
    evil = {"part": "evil:Part", "arguments": [], "options": {}}
    own = maskov.Run.open("run").manifest.config.kernel
    for kernel in (evil, own | {"energy": "raw+evil:E"}, own | {"move": evil}):
        with edited(Path("run/manifest.json")) as manifest:
            manifest["config"]["kernel"] = kernel
        with pytest.raises(RunError, match="--trust-parts"):
            maskov.resume("run", maskov.load("untrained", "cpu"))
        assert not Path("ran").exists()
