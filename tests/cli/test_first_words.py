"""Help and version come at once: nothing heavy is imported for them."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "numpy", "scipy"}
COMMANDS = "sample infill rewrite translate score evaluate resume diagnose report serve verify "
COMMANDS += "models"


def _answered(words: list[str]) -> tuple[str, set[str], float]:
    """Return what a command prints, what it imports, and the seconds that it computes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "maskov", *words],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = ended.stderr.splitlines()
    return ended.stdout, {line.rpartition("|")[2].strip() for line in lines}, seconds


@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["sample", "--help"], ["rate", "--help"]], ids=" ".join
)
def test_version_and_help_import_nothing_heavy(words):
    printed, imported, seconds = _answered(words)
    assert printed.strip()
    assert "maskov.cli" in imported
    assert not imported & HEAVY
    # About 0.3 alone on a core; importing torch takes more than two.
    assert seconds < 1.5


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS.split())
def test_the_help_of_no_command_imports_torch(command):
    assert not _answered([command, "--help"])[1] & HEAVY


def test_importing_the_package_imports_nothing_heavy():
    program = (
        "import sys, maskov; heavy = {'torch', 'numpy'} & set(sys.modules); "
        "assert not heavy, heavy; maskov.energies; from maskov import *; "
        "assert sample is maskov.sample and 'sample' in dir(maskov); "
        "assert not hasattr(maskov, 'nothing') and 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_defaults_in_help_are_those_of_the_package():
    """The options name them again, since the classes that hold them import torch."""
    from maskov import Rewriter, api
    from maskov.options import hints_of
    from maskov.rewriting import plan_rewriting
    from maskov.translation.methods import METHODS
    from small import tiny_bert

    toward = "contains('river')"
    rewriter = Rewriter(toward)
    shown = plan_rewriting(model=tiny_bert(), texts=[], toward=toward).rewriter
    assert shown.moves == rewriter.moves
    assert str(shown.fluency) == str(rewriter.fluency)
    for name in ("strength", "keep", "temperature", "hot", "chains", "epochs", "pick", "weights"):
        assert getattr(shown, name) == getattr(rewriter, name), name
    (option,) = hints_of(api.translate)["method"].__metadata__
    assert option.help.replace(" or ", ", ").split(", ") == list(METHODS)
