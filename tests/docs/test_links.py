"""Links of every Markdown file: what they point to exists, as it lies in the repository."""

import re

import pytest

from doc_examples import ROOT

_LINK = re.compile(r'(?:\]\(|(?:src|href)=")(?P<path>[^)\s"#:]*)(?:#(?P<anchor>[^)"\s]+))?[)"]')
_SKIPPED = {".venv", "build", "runs", "work", ".git", "node_modules"}


def _pages():
    inside = {page: page.relative_to(ROOT).parts for page in ROOT.rglob("*.md")}
    return sorted(page for page, parts in inside.items() if not _SKIPPED & set(parts))


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


@pytest.mark.parametrize("page", _pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    broken = []
    for line in _lines(page):
        for match in _LINK.finditer(re.sub(r"`[^`]*`", "", line)):
            target = (page.parent / match["path"]).resolve() if match["path"] else page
            anchor = match["anchor"] if target.suffix == ".md" else None
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                broken.append(match[0])
    assert not broken


def test_files_that_the_code_names_exist():
    named = set()
    for folder in ("src", "tests", "experiments", "recipes"):
        for file in (ROOT / folder).rglob("*.py"):
            named |= set(re.findall(r"\bdocs/[\w/-]+\.md\b", file.read_text(encoding="utf-8")))
    assert len(named) > 3
    assert {name for name in named if not (ROOT / name).exists()} <= {"docs/none.md"}


def test_files_that_pages_name_exist():
    """By their path in the package, in the tests or in the repository."""
    places = [ROOT / "src" / "maskov", ROOT / "tests", ROOT]
    missing = []
    for page in (*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "README.md"):
        for name in re.findall(r"`([\w/]+/\w+\.py)", page.read_text(encoding="utf-8")):
            if not any((place / name).exists() for place in places):
                missing.append(f"{page.name}: {name}")
    assert not missing
