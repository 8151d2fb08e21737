"""The numbers behind results: estimates, BLEU, the counter-example, the low-energy search."""

import numpy as np
import pytest
from experiments.lib.bleu import _bleu, corpus_bleu, paired_difference, sentence_counts, signature
from experiments.lib.cell import run_cell
from experiments.lib.estimates import averages, by_replicate
from experiments.paper import printed
from experiments.paper.exact_laws import ExactLaws
from sacrebleu.metrics.bleu import BLEU

HYPOTHESES = ["the cat sat on the mat .", "a dog", "", "he went to the old house by the sea ."]
REFERENCES = ["the cat sat on a mat .", "a dog ran away", "no", "she went to an old house there ."]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_bleu_is_sacrebleus_own(count):
    texts, references = HYPOTHESES[:count], REFERENCES[:count]
    score = BLEU(force=True).corpus_score(texts, [references])
    assert corpus_bleu(texts, references) == pytest.approx(score.score, abs=1e-9)
    counts = np.array(sentence_counts([texts], references))
    assert float(_bleu(counts.sum(0))) == pytest.approx(score.score)
    assert (np.array(sentence_counts([texts, texts], references)) == 2 * counts).all()
    assert "tok:13a" in signature()


def _traces(epochs=4, chains=6):
    generator = np.random.default_rng(0)
    steps = generator.integers(4, 8, (epochs, chains))
    made = {name: generator.integers(0, 4, (epochs, chains)) for name in
            ("accepted", "novel", "proposed_novel", "irreversible")}  # fmt: skip
    raw = generator.normal(size=(epochs, chains))
    return {"steps": steps, "energy_raw": raw, "energy_norm": 2 * raw + 1, **made}


def test_chains_of_one_source_belong_to_different_replicates():
    traces = _traces()
    found = by_replicate(traces, 3)
    # Sources stand one after the other: chains 0 and 3 are the first replicate.
    assert (found["novel"][:, 0] == traces["novel"][:, 0] + traces["novel"][:, 3]).all()
    assert np.allclose(found["energy_raw"][:, 2], traces["energy_raw"][:, [2, 5]].mean(1))
    rates = averages(found, burn_in=1)
    part = found["accepted"][1:].sum(0) / found["steps"][1:].sum(0)
    assert rates["acceptance"]["value"] == pytest.approx(part.mean())
    assert rates["acceptance"]["n"] == 3


def test_the_counter_example_is_the_papers(context):
    cell = run_cell(ExactLaws(), context)
    values = {name: one["value"] for name, one in cell["values"].items()}
    assert values["ratio_first"] == pytest.approx(printed.COUNTEREXAMPLE["first over second"])
    assert values["ratio_second"] == pytest.approx(printed.COUNTEREXAMPLE["second over first"])
    assert values["odds_first"] == pytest.approx(9801)
    assert values["odds_second"] == pytest.approx(1)
    assert values["mh_invariance_error"] < 1e-12
    # By hand: swept left to right x_2 is drawn last and does not look, so all four are alike;
    # swept right to left x_1 follows x_2.
    assert list(cell["laws"]["deg, left to right"].values()) == pytest.approx([0.25] * 4)
    follows = {"aa": 0.495, "ab": 0.005, "ba": 0.005, "bb": 0.495}
    assert cell["laws"]["deg, right to left"] == pytest.approx(follows)
    assert cell["targets"]["norm"] == pytest.approx(follows)
    assert values["variation_norm, left to right"] == pytest.approx(0.49)
    assert values["variation_norm, random position"] > 0.1


def test_a_paired_difference_forgets_how_hard_sentences_are():
    random = np.random.default_rng(1)
    hard = random.integers(1, 20, 200)
    total = np.full((200, 4), 20)
    ends = np.full((200, 2), 20)

    def rows(matched):
        return np.concatenate([np.repeat(matched[:, None], 4, 1), total, ends], 1).tolist()

    gap, error = paired_difference(rows(hard), rows(hard + 1))
    assert gap == pytest.approx(5.0)
    # One more match everywhere: sure, although sentences differ much among themselves.
    assert error < 1e-9
    gap, error = paired_difference(rows(hard), rows(random.permutation(hard)))
    # A difference of means has the error of two samples.
    assert error == pytest.approx(5 * hard.std() * (2 / 200) ** 0.5, rel=0.15)
    assert abs(gap) < 1e-9
