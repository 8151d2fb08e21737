"""A context with tiny models and a setting that runs in a second."""

from dataclasses import replace

import pytest
from experiments.lib.context import Context

from maskov.models import untrained
from tiny_experiments import TINY
from tiny_models import build_gpt2
from tiny_translation import SOURCES, save


@pytest.fixture(scope="session")
def tiny_models_by_role(tmp_path_factory):
    """Return what stands for each role: random weights that load in no time."""
    root = tmp_path_factory.mktemp("roles")
    translation, twin = str(save(root / "masked")), str(save(root / "twin", seed=1, causal=True))
    judge = str(build_gpt2(root / "judge", untrained().tokenizer))
    pairs = ("de-en", "ro-en")
    return (
        {"base": "untrained", "judge": judge}
        | dict.fromkeys(pairs, translation)
        | {f"twin-{pair}": twin for pair in pairs}
    )


@pytest.fixture
def context(tmp_path, tiny_models_by_role):
    """Return a context with an empty output folder and two test sets."""
    data = tmp_path / "data"
    data.mkdir()
    for name in ("words.deen", "words.roen"):
        for language in (name[-4:-2], name[-2:]):
            (data / f"{name}.{language}").write_text("".join(line + "\n" for line in SOURCES))
    out = tmp_path / "out"
    out.mkdir()
    return Context(TINY, out, data, "cpu", dict(tiny_models_by_role))


@pytest.fixture
def again(context):
    """Return a second context on the same folder, as a second call would have it."""
    return lambda **changes: replace(context, **changes)
