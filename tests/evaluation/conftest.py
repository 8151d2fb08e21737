"""A tiny judge."""

import pytest

import maskov
import tiny_models


@pytest.fixture(scope="session")
def judge_folder(tmp_path_factory):
    return tiny_models.build_gpt2(tmp_path_factory.mktemp("judge"), tiny_models.gpt2())


@pytest.fixture(scope="session")
def judge(judge_folder):
    return maskov.Autoregressive(str(judge_folder))


@pytest.fixture
def refused(call):
    """Run `maskov evaluate` where it must be refused; return the sentence."""

    def run(*words, stdin=b""):
        code, out, err = call("evaluate", *words, stdin=stdin)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("maskov: ")
        return err

    return run
