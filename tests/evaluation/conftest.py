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
