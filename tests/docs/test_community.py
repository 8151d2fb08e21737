"""Files for readers and contributors that no build reads: they parse, and agree with the code."""

import re
import tomllib

import yaml

from doc_examples import ROOT
from maskov.version import __version__

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _yaml(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_the_citation_is_of_this_version_and_names_the_paper():
    citation = _yaml("CITATION.cff")
    assert str(citation["version"]) == PROJECT["version"] == __version__
    paper = citation["references"][0]
    names = [author["family-names"] for author in paper["authors"]]
    assert names == ["Goyal", "Dyer", "Berg-Kirkpatrick"]
    assert paper["year"] == 2022


def test_the_workflow_runs_ci_with_every_version_that_is_named():
    job = _yaml(".github/workflows/ci.yml")["jobs"]["run"]
    assert any(step.get("run") == ".ci/run" for step in job["steps"])
    tested = job["strategy"]["matrix"]["python"]
    named = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in
             PROJECT["classifiers"]]  # fmt: skip
    assert tested == [match[1] for match in named if match]
    text = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")
    assert f"CI workflow runs versions {' and '.join(tested)}" in text


def test_every_night_runs_all_slow_tests_and_ci_a_fixed_few():
    night = _yaml(".github/workflows/nightly.yml")["jobs"]["run"]["strategy"]["matrix"]["command"]
    assert {"make test-slow", "make test-mutants", "make test-fuzz"} <= set(night)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "$(BIN)/pytest -m slow\n" in makefile
    part = makefile.partition("SLOW_PART := ")[2].partition("\nAXE")[0].replace("\\\n", " ").split()
    for name in part:
        file, _, test = name.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert "pytest.mark.slow" in text, name
        assert f"def {test}" in text, name


def test_ci_makes_everything_and_the_documentation_strictly():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    made = {word for line in lines if line.startswith("make ") for word in line.split()[1:]}
    assert made >= {
        "test", "test-slow-part", "test-browser", "reproduce-quick", "docs", "lint", "types",
    }  # fmt: skip
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "mkdocs build --strict\n" in makefile  # with --quiet no warning would count
    assert "'.[dev,docs,reference]'" in makefile
    assert {"docs", "dev"} <= set(PROJECT["optional-dependencies"])
