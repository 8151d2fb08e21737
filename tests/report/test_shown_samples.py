"""Samples as reports show them: readable, similar ones together, a few first, shaded tokens."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

import maskov
from maskov.config import Schedule
from maskov.errors import RunError
from maskov.models.tokens import token_spans
from maskov.ui.detokenise import changed_parts, detokenised, readable_spans, spelled
from maskov.ui.report import build, to_html, to_markdown
from report_runs import small_run

WORDS = st.lists(
    st.sampled_from(["the", "##s", ".", ",", "-", "'", '"', "(", ")", "10", "000", "s"])
)


# Words as tokenizers give them, one string for each token.
SPELLINGS = {
    "the l ##s ##d , he said .": "the lsd, he said.",
    'anglo - norman ( or " old " ) and / or': 'anglo-norman (or "old") and/or',
    "the king ' s men don ' t": "the king's men don't",
    "it cost $ 10 , 000 in 3 . 5 years": "it cost $10,000 in 3.5 years",
    "in 2008 , 5 men": "in 2008, 5 men",
    "- a list": "- a list",
    "E V Q L V": "EVQLV",
    "Ġa Ġbird s <mask> Ġ Ġ- Ġb": "a birds <mask> ␣ - b",
    "▁un believ able ▁. ▁x": "unbelievable . x",
    "low@@ er case": "lower case",
    "low er</w> case</w>": "lower case",
}


@given(WORDS)
def test_only_spaces_change_and_each_token_keeps_its_span(tokens):
    text = " ".join(tokens).replace(" ##", "").replace("##", "")
    spans = readable_spans(text, tokens)
    if not tokens:
        assert spans is None
        return
    assert len(spans) == len(tokens)
    assert [span.strip() for span in spans] == [token.removeprefix("##") for token in tokens]
    assert "".join(spans) == detokenised(text, tokens)


@pytest.mark.parametrize(("tokens", "text"), SPELLINGS.items())
def test_tokens_alone_are_spelled_by_the_marks_of_their_vocabulary(tokens, text):
    spans = spelled(tokens.split(" "))
    assert "".join(spans) == text
    assert len(spans) == len(tokens.split(" "))


def test_what_a_step_changes_is_told_in_whole_words():
    def parts(after, *places):
        return [(one["from"], one["to"]) for one in changed_parts(before, after.split(), places)]

    before = ["the", "l", "##s", "##d", "is", "a", "part", "."]
    changed = parts("the l ##ate ##d is a man .", (6, 1, 1), (2, 1, 1))
    assert changed == [("lsd", "lated"), ("part", "man")]
    assert parts("the l ##s ##d ##s now is a part .", (4, 0, 2)) == [("lsd", "lsds now")]
    assert parts("the l ##s ##d is a part . now", (8, 0, 1)) == [("", "now")]
    assert parts("the l ##s ##d is part .", (5, 1, 0)) == [("a", "")]
    before = list("EVQ")
    assert parts("E A Q", (1, 1, 1)) == [("V", "A")]


def test_a_report_begins_with_five_samples_that_need_no_script():
    run = small_run(6, 20, thin=1)
    page, text = to_html(build([run])), to_markdown(build([run]))
    top = page[page.index("<main") : page.index('class="cards"')]
    shown = build([run])["runs"][0]["first_samples"]
    assert len(shown) == len({one["text"] for one in shown}) > 1
    for one in shown:
        assert one["text"] in top
        assert f"- {one['text']}\n" in text[: text.index("|")]
    assert "first-samples" not in to_html(build([run], samples=0)).partition("<main")[2]


def test_the_runs_own_model_is_loaded_again_and_another_is_refused(tmp_path):
    schedule = Schedule(epochs=1)
    run = maskov.sample("untrained", schedule=schedule, chains=2, length=4, out=tmp_path / "run")
    (told,) = build([run], terms=True)["runs"]
    assert told["shaded"]
    for one in told["samples"]:
        # The run's own arithmetic was float32.
        assert sum(one["terms"]["raw"]) == pytest.approx(one["energy_raw"], rel=1e-4)
    (one, other) = build([run, run], terms=True, samples=1)["runs"]
    assert one["samples"] == other["samples"]
    config = run.manifest.config
    other = replace(config, model=replace(config.model, fingerprint="0" * 64))
    run.store.manifest = replace(run.manifest, config=other)
    with pytest.raises(RunError, match="is not the one"):
        build([run], terms=True)


@given(st.lists(st.text(min_size=1), min_size=1), st.text())
def test_spans_put_together_are_the_text(tokens, text):
    for one in (text, " ".join(tokens), "".join(tokens)):
        found = token_spans(one, tokens)
        assert found is None or ("".join(found) == one and len(found) == len(tokens))
