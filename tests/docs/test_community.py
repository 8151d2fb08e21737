"""Files that no build reads parse and agree with the code; links of every Markdown file hold."""

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
    *most, last = tested
    assert f"CI workflow runs versions {', '.join(most)} and {last}." in text


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


_LINK = re.compile(r'(?:\]\(|(?:src|href)=")(?P<path>[^)\s"#:]*)(?:#(?P<anchor>[^)"\s]+))?[)"]')
_SKIPPED = {".venv", "build", "runs", "work", ".git", ".pytest_cache", "node_modules"}


def _lines(page):
    """Yield the lines of a page that are not code."""
    fenced = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield line


def _anchors(page):
    """Return the anchors of a page, as GitHub and the site make them of its headings."""
    headings = (re.fullmatch(r"#+ (.*)", line) for line in _lines(page))
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1]) for match in headings if match)
    return {re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-") for text in plain}


def test_links_lead_somewhere():
    broken = []
    for page in sorted(ROOT.rglob("*.md")):
        if _SKIPPED & set(page.relative_to(ROOT).parts):
            continue
        links = _LINK.finditer(re.sub(r"`[^`\n]*`", "", "\n".join(_lines(page))))
        for match in links:
            target = (page.parent / match["path"]).resolve() if match["path"] else page
            anchor = match["anchor"] if target.suffix == ".md" else None
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                broken.append((str(page), match[0]))
    assert not broken


def test_files_that_the_code_names_exist():
    named = set()
    for folder in ("src", "tests", "experiments", "recipes"):
        for file in (ROOT / folder).rglob("*.py"):
            named |= set(re.findall(r"\bdocs/[\w/-]+\.md\b", file.read_text(encoding="utf-8")))
    assert len(named) > 3
    assert {name for name in named if not (ROOT / name).exists()} <= {"docs/none.md"}


def test_files_that_pages_name_exist():
    places = [ROOT / "src" / "maskov", ROOT / "tests", ROOT]
    missing = []
    for page in (*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "README.md"):
        for name in re.findall(r"`([\w/]+/\w+\.py)", page.read_text(encoding="utf-8")):
            if not any((place / name).exists() for place in places):
                missing.append(f"{page.name}: {name}")
    assert not missing
