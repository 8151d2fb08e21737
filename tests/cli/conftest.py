"""Commands in this process, on the small untrained model where none is named."""

from __future__ import annotations

import json

import pytest

from small import on_untrained


@pytest.fixture
def call(call):
    return lambda *words, **given: call(*on_untrained([str(word) for word in words]), **given)


@pytest.fixture
def rows(call):
    """Run a command that must succeed; return the objects that `--json` prints."""

    def run(*words: object, **given):
        code, out, err = call(*words, "--json", **given)
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    return run


@pytest.fixture
def refused(call, tmp_path, monkeypatch):
    """Run a command that must fail with one sentence and write nothing; return the sentence."""

    def run(*words: object, **given) -> str:
        monkeypatch.chdir(tmp_path)
        before = sorted(tmp_path.rglob("*"))
        code, out, err = call(*words, **given)
        assert (code, out) == (2, ""), err
        assert err.startswith("maskov: ")
        assert err.count("\n") == 1
        assert err.rstrip().endswith((".", ")"))
        assert sorted(tmp_path.rglob("*")) == before
        return err

    return run
