"""A tiny judge, and the command called in this process."""

from __future__ import annotations

import io
import sys

import pytest

import maskov
import tiny_models
import tiny_tokenizers
from maskov.cli import main


@pytest.fixture(scope="session")
def judge_folder(tmp_path_factory):
    return tiny_models.build_gpt2(tmp_path_factory.mktemp("judge"), tiny_tokenizers.gpt2())


@pytest.fixture(scope="session")
def judge(judge_folder):
    return maskov.Autoregressive(str(judge_folder))


@pytest.fixture
def call(capfd, monkeypatch):
    """Run the command; return its exit code, output and errors."""

    def run(*words, stdin: bytes = b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    return run
