"""Custom parts, named by their import path: written, resumed, sent, reported."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import maskov
from maskov.cli import main
from maskov.errors import InputError, Interrupted, RunError
from maskov.parts import parse_call, part_text
from odd_workers import files, oddly
from small import tiny_bert

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
    "an energy": '--energy "norm + own_parts:Longer(factor=0.5)"',
    "a move": "--moves own_parts:MyMove",
    "a mixture": '--moves "site:2,own_parts:MyMove:1"',
    "a kernel": '--kernel "own_parts:MyKernel(0.8)"',
}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A folder with a module of parts, which is the current one."""
    (tmp_path / "own_parts.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    sys.modules.pop("own_parts", None)
    yield tmp_path
    sys.modules.pop("own_parts", None)


def command(words: str) -> int:
    import shlex

    try:
        main(shlex.split(words))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize("part", PARTS)
def test_a_run_with_own_parts_is_written_stopped_and_resumed(part, module, capsys):
    words = f"sample {RUN} {PARTS[part]} --quiet"
    assert command(f"{words} --out whole") == 0
    looks = iter(range(10**6))
    model = maskov.load("untrained", "cpu")
    manifest = maskov.Run.open("whole").manifest
    kernel = maskov.runs.rebuild.rebuild(manifest, model, trust_parts=True).kernel
    # Of a kernel with a burn-in of its own, the schedule says which.
    kernel = getattr(kernel, "kernel", kernel)
    with pytest.raises(Interrupted):
        maskov.sample(
            model, kernel, manifest.schedule, chains=4, length=(3, 4), resident=2, thin=1,
            seed=5, out="cut", stop=lambda: next(looks) > 12,
        )  # fmt: skip
    assert maskov.Run.open("cut").manifest.config.kernel == manifest.config.kernel
    capsys.readouterr()
    assert command("resume cut --quiet") == 2
    assert "own_parts:" in (told := capsys.readouterr().err)
    assert "--trust-parts" in told
    assert command("resume cut --quiet --trust-parts") == 0
    assert files(Path("cut")) == files(Path("whole"))
    assert maskov.Run.open("whole").manifest.leaves_invariant


def test_workers_build_them_again(module, monkeypatch):
    """All kinds of parts in one run, with spans."""
    made = oddly(monkeypatch, count=2, seed=1)
    _here_and_there()
    assert made[0].losses > 0


@pytest.mark.slow
def test_workers_in_processes_of_their_own_build_them_again(module):
    _here_and_there()


def _here_and_there():
    words = (
        f'sample {RUN} --energy "{ENERGY} + 0.5*own_parts:Longer" --delayed 2 --quiet '
        '--moves "site:2,own_parts:MyMove:1,span:1"'
    )
    assert command(f"{words} --out here --workers 0") == 0
    assert command(f"{words} --out there --workers 2") == 0
    assert files(Path("there")) == files(Path("here"))
    run = maskov.Run.open("here")
    assert "spans of 1,2,3" in run.signature
    assert run.manifest.leaves_invariant


def test_reading_a_run_imports_nothing(module, capsys):
    assert command(f"sample {RUN} {PARTS['an energy of texts']} --quiet --out run") == 0
    sys.modules.pop("own_parts")
    assert command("diagnose run --json") == 0
    assert "own_parts:Contains('red')" in capsys.readouterr().out
    assert command("report run --out report.html") == 0
    assert "own_parts:Contains" in Path("report.html").read_text()
    assert "own_parts" not in sys.modules


def test_a_module_that_is_missing_on_resume_is_one_sentence(module, capsys):
    looks = iter(range(10**6))
    kernel = maskov.Metropolis(maskov.parse_energy(ENERGY))
    with pytest.raises(Interrupted):
        maskov.sample(
            maskov.load("untrained", "cpu"), kernel, chains=3, length=5, out="run",
            stop=lambda: next(looks) > 10,
        )  # fmt: skip
    (module / "own_parts.py").unlink()
    sys.modules.pop("own_parts")
    sys.path_importer_cache.clear()
    assert command("resume run --quiet --trust-parts") == 2
    told = capsys.readouterr().err.strip()
    assert "\n" not in told
    assert "cannot import 'own_parts'" in told


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--energy no_such_module:Part", "cannot import 'no_such_module'"),
        ("--energy own_parts:Nothing", "has no 'Nothing'"),
        ("--energy own_parts:Contains", "cannot be made with these arguments"),
        ("--moves own_parts:Longer", "is not a move"),
        ("--kernel own_parts:MyMove", "is not a kernel"),
        ("--moves walk", "unknown move 'walk'"),
        ("--moves site(4)", "unknown order"),
        ("--moves span(x)", "write span(2)"),
        ("--moves span(3:2)", "at least one position"),
        ("--moves site:0", "above 0"),
        ("--moves own_parts:MyMove --proposal top_p=0.5", "drop --proposal"),
        ("--kernel gibbs --moves own_parts:MyMove,site", "gibbs moves sites"),
        ("--kernel own_parts:MyKernel --proposal top_p=0.9", "drop --proposal"),
    ],
)
def test_what_cannot_be_used_is_refused(words, reason, module, call):
    code, _, err = call("sample", *words.split())
    assert (code, reason in err, err.count("\n")) == (2, True, 1)


def test_init_of_a_kernel_is_called_by_the_loop(module):
    kernel = maskov.parts.load_part("own_parts:MyKernel", [], {}, trust=True)
    maskov.sample(tiny_bert(), kernel, maskov.Schedule(epochs=2), chains=2, length=4)
    assert type(kernel).started >= 2


def test_a_part_that_nobody_can_name_stays_in_this_process(tmp_path):
    energy = maskov.Raw() + maskov.energies.as_energy(lambda texts: [0.5] * len(texts))
    kernel = maskov.Metropolis(energy)
    settings = {"schedule": maskov.Schedule(epochs=2), "chains": 2, "length": 4}
    assert len(maskov.sample(tiny_bert(), kernel, **settings).samples) == 2
    with pytest.raises(InputError, match="make it again"):
        maskov.sample(tiny_bert(), kernel, out=tmp_path / "run", **settings)
    with pytest.raises(InputError, match="make it again"):
        maskov.sample(tiny_bert(), kernel, workers=maskov.Workers(2), **settings)


def test_a_manifest_from_elsewhere_imports_nothing(module):
    assert command(f"sample {RUN} --quiet --out run") == 0
    file = Path("run/manifest.json")
    manifest = json.loads(file.read_text())
    evil = Path("evil.py")
    evil.write_text("from pathlib import Path\nPath('ran').touch()\n")
    for kernel in (
        {"part": "evil:Kernel", "arguments": [], "options": {}},
        manifest["config"]["kernel"] | {"energy": "raw+evil:E"},
        manifest["config"]["kernel"]
        | {"move": {"part": "evil:Move", "arguments": [], "options": {}}},
    ):
        manifest["config"]["kernel"] = kernel
        file.write_text(json.dumps(manifest))
        for checkpoint in Path("run/checkpoints").iterdir():
            checkpoint.unlink()
        with pytest.raises(RunError, match="--trust-parts"):
            maskov.resume("run", maskov.load("untrained", "cpu"))
        assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name", ("name", [], {})),
        ("a.b:C", ("a.b:C", [], {})),
        ("a:C('x, y', 2)", ("a:C", ["x, y", 2], {})),
        ("a:C(word, k=v, n=1.5)", ("a:C", ["word"], {"k": "v", "n": 1.5})),
        ("a:C([1, 2], (3, 4))", ("a:C", [[1, 2], (3, 4)], {})),
    ],
)
def test_calls_are_read(text, expected):
    assert parse_call(text) == expected


def test_names_are_read_back(module):
    energy = maskov.parse_energy(ENERGY)
    assert str(energy) == "raw+12*own_parts:Contains('red')"
    assert str(maskov.parse_energy(str(energy))) == str(energy)
    part = energy.parts[1][1].function
    assert part_text(part) == "own_parts:Contains('red')"
