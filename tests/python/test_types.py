"""The signatures are typed: a type checker finds a wrong keyword and a wrong value."""

from pathlib import Path

import pytest

SNIPPET = """
import maskov
maskov.sample("wiki-small", epoch=3, chains="many")
found = maskov.infill("wiki-small", "the [MASK]", whole_words=True)
maskov.infill("wiki-small", "the [MASK]", chains="many")
run = maskov.Run.open("run")
reveal_type((found, found.fills(), run.plot(), run.to_arviz()))
"""


@pytest.mark.slow
def test_a_type_checker_flags_wrong_keywords_and_values(tmp_path):
    api = pytest.importorskip("mypy.api")
    config = Path(__file__).parents[2] / "pyproject.toml"
    (tmp_path / "wrong.py").write_text(SNIPPET)
    told, _, _ = api.run(["--config-file", str(config), str(tmp_path / "wrong.py")])
    assert 'Unexpected keyword argument "epoch" for "sample"' in told
    assert told.count('Argument "chains"') == 2
    (revealed,) = (line for line in told.splitlines() if "Revealed type" in line)
    for kind in ("filling.Filling", "result.Run", "result.Fill", "axes.Axes", "datatree.DataTree"):
        assert kind in revealed
    assert "Found 3 errors" in told
