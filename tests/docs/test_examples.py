"""Every example of the documentation runs and prints what is shown, or says why it does not."""

import re
import shlex

import pytest

from doc_examples import ROOT, blocks, pages
from doc_runner import MismatchError, PageRunner, parse

README = ROOT / "README.md"


def _name(page):
    return str(page.relative_to(ROOT))


def _has(page, slow):
    return any(("slow" in b.marks) == slow for b in blocks(page) if "not run" not in b.marks)


@pytest.mark.parametrize("page", [page for page in pages() if _has(page, slow=False)], ids=_name)
def test_examples(page, tmp_path, monkeypatch):
    # Long runs would start processes, which takes seconds and changes no byte; the slow tests do.
    monkeypatch.setattr("maskov.workers.pools.automatic_count", lambda *_: 0)
    assert PageRunner(page, tmp_path).run(slow=False) > 0


@pytest.mark.slow
def test_a_newcomer_follows_the_readme(tmp_path, monkeypatch):
    said = {}
    real = PageRunner._maskov

    def recorded(self, words):
        code, output = real(self, words)
        said[words[0]] = output
        return code, output

    monkeypatch.setattr(PageRunner, "_maskov", recorded)
    assert PageRunner(README, tmp_path).run(slow=True) > 2
    assert len(re.findall(r"^ +\d +-\d+\.\d\d +\d+\.\d\d  ", said["sample"], re.MULTILINE)) == 8
    # Rounding may flip a close decision, and with it a close verdict.
    assert re.search(r"^(not )?converged: ", said["sample"], re.MULTILINE)
    assert re.search(r"^ +0\.\d{4} +0 .* the capital of france is ", said["infill"], re.MULTILINE)
    assert re.search(r"^\d+\.\d{4}  the cat sat on the mat \.", said["score"], re.MULTILINE)
    assert re.search(r"^ordered .* 0, exactly +\d\.\d{3} ", said["evidence"], re.MULTILINE)
    assert re.search(r"^norm .* ≥ \d\.\d{3} ± ", said["evidence"], re.MULTILINE)
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.search(r'"verdict":{"state":"(not )?converged"', report)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in pages() if _has(page, slow=True) and page != README], ids=_name
)
def test_long_examples(page, tmp_path):
    assert PageRunner(page, tmp_path).run(slow=True) > 0


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_commands_that_are_not_run_parse(page, tmp_path):
    runner = PageRunner(page, tmp_path)
    for block in blocks(page):
        if "not run" in block.marks:
            runner._parse(block)


def test_the_commands_of_the_readmes_table_parse():
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 140
    found = re.findall(r"\| `(maskov [^`]*)`", text)
    assert len(found) >= 10
    for command in found:
        parse(shlex.split(command)[1:])


def _page(tmp_path, text):
    path = ROOT / "docs" / "none.md"  # never written: only its name is used
    page = tmp_path / path.name
    page.write_text(text)
    return page


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("```console\n$ echo 1\n1\n```\n", False),
        ("```console\n$ echo 1\n2\n```\n", True),
        ("```console\n$ echo 1\n```\n", True),
        ("<!-- example: shortened -->\n```console\n$ echo 1\n```\n", False),
        ("<!-- example: shortened -->\n```console\n$ false\n```\n", True),
        ("<!-- example: varies -->\n```console\n$ printf 'a b\\n1 2\\n'\na  b\n3 4\n```\n", False),
        ("<!-- example: varies -->\n```console\n$ printf 'a b\\n1 2\\n'\na  c\n3 4\n```\n", True),
        ("```console\n$ maskov models --json\n...\n```\n", False),
        ("```console\n$ maskov models --jsom\n...\n```\n", True),
        ("<!-- example: given\n$ echo 1 > file\n-->\n\n```console\n$ cat file\n1\n```\n", False),
    ],
)
def test_the_runner_sees_what_is_wrong(tmp_path, text, fails):
    runner = PageRunner(_page(tmp_path, text), tmp_path)
    if fails:
        with pytest.raises(MismatchError):
            runner.run(slow=False)
    else:
        assert runner.run(slow=False) > 0
