"""Files for readers and contributors that no build reads: they parse, and agree with the code."""

from __future__ import annotations

import re
import tomllib

import pytest
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
    assert [author["family-names"] for author in paper["authors"]] == [
        "Goyal",
        "Dyer",
        "Berg-Kirkpatrick",
    ]
    assert paper["year"] == 2022


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_issue_templates_have_what_github_needs(name):
    template = _yaml(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert template["name"]
    assert template["description"]
    ids = [part["id"] for part in template["body"]]
    assert len(ids) == len(set(ids)) > 0
    assert all(part["attributes"]["label"] for part in template["body"])


def test_the_workflow_runs_ci_with_every_version_that_is_named():
    job = _yaml(".github/workflows/ci.yml")["jobs"]["run"]
    assert any(step.get("run") == ".ci/run" for step in job["steps"])
    tested = job["strategy"]["matrix"]["python"]
    named = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in
             PROJECT["classifiers"]]  # fmt: skip
    assert tested == [match[1] for match in named if match]
    text = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")
    assert f"CI workflow runs versions {' and '.join(tested)}" in text


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
