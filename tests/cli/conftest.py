"""Commands in this process, among small models; the untrained one where none is named."""

import json
import re
import shlex
from pathlib import Path

import pytest

import tiny_models
import tiny_translation
from small import on_untrained
from tiny_proteins import save_bert

WORDS = "the food is bad good very not slow nice room"


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> Path:
    """Models by name; in a command, `@bert` is the folder of that one."""
    root = tmp_path_factory.mktemp("models")
    tiny_models.build_masked(root / "masked", WORDS)
    tiny_models.build_classifier(root / "classifier", WORDS)
    tiny_models.build_gpt2(root / "judge", tiny_models.gpt2())
    for name in ("bert", "bare"):
        save_bert(root / name)
    (root / "bare" / "vocab.txt").unlink()  # a model without a tokenizer
    tiny_models.build("esm", root / "esm")
    # Models that serve two pairs of languages; the autoregressive one serves one of them.
    tiny_translation.shelf(root / "shelf", autoregressive=("de-en",))
    return root


@pytest.fixture
def call(call, home, tmp_path, monkeypatch):
    """Run a command, written as in a shell, then more words; return code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MASKOV_MODELS", str(home / "shelf"))

    def run(line: object, *words: object, stdin: bytes | str = b""):
        given = [*(shlex.split(line) if isinstance(line, str) else [line]), *map(str, words)]
        given = [re.sub(r"@(\w+)", lambda found: str(home / found[1]), word) for word in given]
        content = stdin.encode() if isinstance(stdin, str) else stdin
        return call(*on_untrained(given), stdin=content)

    return run


@pytest.fixture
def printed(call):
    """Run a command that must succeed; return what it prints."""

    def run(*words: object, **given) -> str:
        code, out, err = call(*words, **given)
        assert code == 0, err
        return out

    return run


@pytest.fixture
def rows(printed):
    """Run a command that must succeed; return the objects that `--json` prints."""

    def run(*words: object, **given) -> list[dict]:
        return [json.loads(line) for line in printed(*words, "--json", **given).splitlines()]

    return run
