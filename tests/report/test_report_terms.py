"""Terms of tokens, and where in the text each token stands."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

import maskov
from maskov.cli import main
from maskov.config import Schedule
from maskov.errors import RunError
from maskov.models.tokens import token_spans
from maskov.runs import Run
from maskov.ui.report import build
from maskov.ui.report.samples import score_samples
from small import tiny_bert
from tiny_translation import SOURCES, conditional


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
    words = ["sample", "--model", "untrained", "--chains", "2", "--epochs", "1", "--length", "4"]
    with pytest.raises(SystemExit):
        main([*words, "--out", str(tmp_path / "run"), "--quiet"])
    run = Run.open(tmp_path / "run")
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
