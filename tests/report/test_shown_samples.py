"""Samples as reports show them: readable, similar ones together, a few first, shaded tokens."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

import maskov
from maskov.config import Schedule
from maskov.errors import RunError
from maskov.models.tokens import token_spans
from maskov.runs import Sample
from maskov.ui.detokenise import changed_parts, detokenised, readable_spans, spelled
from maskov.ui.report import build, to_html, to_markdown
from maskov.ui.report.data import (
    are_similar,
    first_samples,
    score_samples,
    shown_samples,
    similar_groups,
)
from report_runs import small_run
from small import tiny_bert
from tiny_translation import SOURCES, conditional

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


def made(chain: int, epoch: int, ids: list[int]) -> Sample:
    words = [f"w{token}" for token in ids]
    return Sample(chain, epoch, " ".join(words), words, ids, -1.0 * epoch, 1.0)


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("anti - judaism.", ["anti", "-", "juda", "##ism", "."], "anti-judaism."),
        ("the king's men", ["the", "king", "'", "s", "men"], "the king's men"),
        ("he said'yes '", ["he", "said", "'", "yes", "'"], "he said 'yes'"),
        ("E V Q", ["E", "V", "Q"], "EVQ"),
        # Vocabularies that mark spaces know where they are.
        ("a - b", ["Ġa", "Ġ-", "Ġb"], "a - b"),
        # Tokens that are spelled otherwise than the text leave it alone.
        ("caf\u00e9 - au lait", ["cafe", "-", "au", "lait"], "caf\u00e9 - au lait"),
    ],
)
def test_texts_are_spaced_as_people_write(text, tokens, expected):
    marked = [*tokens, "##x"] if "said" in text else tokens
    if "said" in text:  # a vocabulary of word pieces: the decoder's spaces do not count
        text, expected = text + "x", expected + "x"
    assert detokenised(text, marked) == expected


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


def test_samples_of_a_chain_that_differ_little_share_a_group():
    first = list(range(8))
    changed = [*first[:6], 90, 91]
    other = [90, 91, 92, *first[3:]]
    samples = [made(0, 0, first), made(1, 0, first), made(0, 1, changed), made(0, 2, other)]
    assert similar_groups(samples) == [0, 1, 0, 2]
    assert [one["group"] for one in shown_samples(small_run().manifest, samples)] == [
        0, 1, 0, 2,
    ]  # fmt: skip
    assert are_similar(first, [*first[:4], 90, *first[4:]])
    assert not are_similar(first, [90, *first, 91, 92, 93])
    assert not are_similar([1, 2, 3], [1, 2, 4])
    assert are_similar([1, 2, 3], [1, 2, 3])


def test_the_first_samples_are_the_last_of_chains_and_all_differ():
    manifest = small_run().manifest
    many = [made(chain, epoch, [chain * 10 + epoch] * 8) for epoch in (0, 1) for chain in range(9)]
    found = first_samples(manifest, many)
    assert [(one["chain"], one["epoch"]) for one in found] == [
        (0, 2),
        (2, 2),
        (4, 2),
        (6, 2),
        (8, 2),
    ]
    # One chain that moves slowly: of those that are similar, one.
    slow = [made(0, epoch, [*range(7), epoch // 2]) for epoch in range(10)]
    assert len(first_samples(manifest, slow)) == 1
    far = [made(0, epoch, [epoch] * 8) for epoch in range(10)]
    assert [one["epoch"] for one in first_samples(manifest, far)] == [10, 9, 8, 7, 6]
    assert first_samples(manifest, []) == []


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


def test_markdown_counts_similar_samples():
    run = small_run(1, 12, thin=1)
    text = to_markdown(build([run]))
    texts = [sample.text for sample in run.samples]
    assert len(set(texts)) < len(texts)
    assert "| similar |" in text
    rows = text.partition("| similar |")[2].partition("Signature")[0].splitlines()[2:]
    counts = [int(row.split("|")[3]) for row in rows if row.startswith("|")]
    assert sum(counts) + len(counts) == len(texts)


# Terms of tokens, and where in the text each token stands.


def test_terms_add_up_to_the_energies_of_samples_of_mixed_lengths():
    run = maskov.sample(
        tiny_bert(), schedule=Schedule(epochs=2), chains=70, length=(2, 6), trace="kept"
    )
    found = score_samples(tiny_bert(), run.samples)
    assert len({len(one["raw"]) for one in found}) > 1
    for sample, terms in zip(run.samples, found, strict=True):
        assert len(terms["raw"]) == len(terms["norm"]) == len(sample.ids)
        assert sum(terms["raw"]) == pytest.approx(sample.energy_raw)
        assert sum(terms["norm"]) == pytest.approx(sample.energy_norm)


def test_translations_are_scored_given_their_own_source_and_shown_beside_it():
    model = conditional().given(SOURCES)
    run = maskov.sample(model, schedule=Schedule(epochs=2), chains=2)
    for sample, terms in zip(run.samples, score_samples(model, run.samples), strict=True):
        assert sum(terms["norm"]) == pytest.approx(sample.energy_norm)
    (told,) = build([run])["runs"]
    assert [one["source"] for one in told["samples"]] == [
        text for text in SOURCES for _ in range(2)
    ]


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


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        (
            "the lafayette .",
            ["the", "la", "##fay", "##ette", "."],
            ["the", " la", "fay", "ette", " ."],
        ),
        ("Red fox", ["▁red", "▁fox"], ["Red", " fox"]),
        (" hello there ", ["Ġhello", "Ġthere"], [" hello", " there "]),
        ("a# ##", ["a", "###", "##"], ["a", "#", " ##"]),
        ("lower case", ["low@@", "er", "case</w>"], ["low", "er", " case"]),
    ],
)
def test_tokens_are_found_in_the_text(text, tokens, expected):
    assert token_spans(text, tokens) == expected


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("one two", ["one"]), ("one", ["one", "two"]), ("é", ["Ã©"]), ("", []), ("x", ["[UNK]"])],
)
def test_tokens_that_the_text_does_not_show_are_left_alone(text, tokens):
    assert token_spans(text, tokens) is None


@given(st.lists(st.text(min_size=1), min_size=1), st.text())
def test_spans_put_together_are_the_text(tokens, text):
    for one in (text, " ".join(tokens), "".join(tokens)):
        found = token_spans(one, tokens)
        assert found is None or ("".join(found) == one and len(found) == len(tokens))
