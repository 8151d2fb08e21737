"""Run folders to change: one that was stopped on its way, the same to its end, and another."""

import shutil
from pathlib import Path

import pytest

from maskov.config import ModelSource
from maskov.errors import Interrupted
from stopped_runs import MODEL, run


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("runs")
    MODEL.network.save_pretrained(home / "model")
    MODEL.tokenizer.save_pretrained(home / "model")
    source = ModelSource(str(home / "model"))
    for name, seed in (("stopped", 1), ("other", 2)):
        with pytest.raises(Interrupted):
            run(home / name, looks=71, seed=seed, source=source)
    run(home / "whole", source=source)
    return {name: home / name for name in ("stopped", "whole", "other", "model")}


@pytest.fixture
def copy(runs, tmp_path) -> Path:
    return Path(shutil.copytree(runs["stopped"], tmp_path / "copy"))
