"""The page, Markdown and JSON: complete in themselves, and harmless whatever a sample says."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, strategies as st

import maskov
from maskov.config import Schedule
from maskov.ui.report import build, to_html, to_json, to_markdown
from mutations import examples
from report_runs import EVIL, evil_run, small_run
from small import random_table


class Page(HTMLParser):
    """Read a page as a browser would: its tags, and what its scripts, styles and data hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.held, self.texts = [], {}, []
        self._in = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append((tag, found))
        self._in = f"{tag} {found.get('type', '')}".strip() if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self._in = None

    def handle_data(self, data):
        if self._in:
            self.held[self._in] = self.held.get(self._in, "") + data
        else:
            self.texts.append(data)

    @property
    def data(self):
        return json.loads(self.held["script application/json"])


@pytest.fixture(scope="module")
def page():
    return to_html(build([evil_run(), small_run()], title=EVIL))


def test_markup_in_a_run_stays_text(page):
    read = Page(page)
    assert sum(tag == "script" for tag, _ in read.tags) == 2
    assert not any(tag == "img" for tag, _ in read.tags)
    assert not any(name.startswith("on") for _, found in read.tags for name in found)
    assert read.data["runs"][0]["samples"][0]["text"] == EVIL
    assert EVIL in "".join(read.texts)
    assert "hacked" not in read.held["script"] + read.held["style"]


_SIGNS = ["<", ">", "</script>", "<!--", "]]>", "&lt;", "&", '"', "'", "`", "\\", "|", "\n"]
_MARKUP = st.lists(st.sampled_from(_SIGNS) | st.text(max_size=5), max_size=8).map("".join)


@examples(160)
@given(_MARKUP)
def test_no_text_adds_an_element_or_is_changed(harmless, text):
    report, tags = harmless
    (run,) = report["runs"]
    samples = [sample | {"text": text, "source": text} for sample in run["samples"]]
    run = run | {"signature": text, "notes": [text], "metadata": {"by": text}, "samples": samples}
    read = Page(to_html(report | {"title": text, "runs": [run]}))
    assert [tag for tag, _ in read.tags] == tags
    (told,) = read.data["runs"]
    assert {told["signature"], told["notes"][0], told["samples"][0]["text"]} == {text}


@pytest.fixture(scope="module")
def harmless():
    """Return a report, and the elements of its page."""
    report = build([small_run()])
    (run,) = report["runs"]
    run = run | {"notes": ["x"], "metadata": {"by": "x"}}
    report = report | {"runs": [run]}
    return report, [tag for tag, _ in Page(to_html(report)).tags]


def test_nothing_is_fetched_from_anywhere(page):
    read = Page(page)
    for tag, found in read.tags:
        for name in ("src", "srcset", "action", "poster", "data"):
            assert name not in found, tag
        assert re.fullmatch(r"#[\w-]+|data:,|", found.get("href", ""))
    code = read.held["script"] + read.held["style"]
    assert not re.search(r"https?://|//[a-z]+\.|@import|fetch\(|XMLHttpRequest|WebSocket", code)
    assert not re.search(r"url\((?!#)", code)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", code)


def test_only_its_own_script_and_style_may_run(page):
    read = Page(page)
    (policy,) = [found["content"] for _, found in read.tags if "http-equiv" in found]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for kind in ("script", "style"):
        digest = b64encode(sha256(read.held[kind].encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"
    assert not any("style" in found for _, found in read.tags)
    assert "unsafe" not in policy


def test_json_has_every_number_in_full_and_no_constants_of_its_own():
    run = small_run(trace="kept", epochs=4)
    records = run.store.traced()["energy_raw"].read()
    records["energy_raw"][1] = np.nan
    records["energy_norm"][2, 0] = np.nan
    assert to_html(build([run])) == to_html(build([run]))  # the same bytes each time
    found = json.loads(to_json(build([run])), parse_constant=pytest.fail)
    (told,) = found["runs"]
    assert told["energies"]["raw"]["spread"]["middle"][1] is None
    assert told["energies"]["norm"]["chains"][0][2] is None
    assert told["samples"][0]["energy_raw"] == run.samples[0].energy_raw
    assert told["signature"] == run.signature


def test_markdown_has_tables_of_even_width_whatever_a_sample_says():
    text = to_markdown(build([evil_run(), small_run()]))
    blocks = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    assert len(blocks) > 4
    for block in blocks:
        bars = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(bars) == 1
    assert not re.search(r"(?<!\\)<", re.sub(r"^    .*$", "", text, flags=re.MULTILINE))
    assert "\u2028" not in text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "first"
    maskov.sample(random_table(), schedule=Schedule(epochs=3), chains=2, length=3, out=path)
    return path


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (["--out", "page.html"], "<!doctype html>"),
        (["--format", "json"], '{\n "title": "first"'),
        (["--out", "a.json", "--samples", 0], '{\n "title": "first"'),
        (["--format", "md", "--title", "Two of them"], "# Two of them\n"),
        (["--out", "a.md"], "# first\n"),
    ],
)
def test_the_format_is_given_or_told_by_the_name(call, folder, words, start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("report", folder, *words)
    assert code == 0
    if words[0] == "--out":
        assert (out, "1 run, " in err) == ("", True)
        out = (tmp_path / words[1]).read_text(encoding="utf-8")
    assert out.startswith(start)
    if "--samples" in words:
        assert json.loads(out)["runs"][0]["samples"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{run}"], "give --out report.html"),
        (["{run}", "--format", "pdf"], "unknown format 'pdf'"),
        (["{run}/nowhere", "--format", "md"], "is not a run folder"),
        (["{run}", "--out", "{run}"], "is a folder"),
        (["{run}", "--out", "{run}/no/such/folder.html"], "cannot write"),
    ],
)
def test_what_a_user_can_fix_is_refused(refused, call, folder, words, said):
    code, _, err = call("report")
    assert (code, "RUN" in err) == (2, True)
    assert said in refused("report", *(word.replace("{run}", str(folder)) for word in words))
