"""Scores of texts against numbers by hand, plain Hugging Face code and sacreBLEU itself."""

import gzip
import hashlib
import lzma
import math
import random
import statistics

import numpy as np
import pytest
import sacrebleu
import torch
from sacrebleu.metrics import BLEU, CHRF
from transformers import AutoModelForCausalLM, AutoTokenizer

import maskov
import tiny_models
from maskov.errors import InputError
from maskov.evaluation import compare, copied, distinct, mean, perplexity, ratio, self_bleu
from plain_energies import causal_terms

JUDGED = tiny_models.TEXTS


def test_means_and_ratios_have_the_errors_that_one_finds_by_hand():
    # Deviations −2, −1, 3: variance 14/2, of the mean 7/3.
    found = mean(np.array([1.0, 2.0, 6.0]))
    assert (found.value, found.standard_error) == (3, pytest.approx((7 / 3) ** 0.5))
    # 8/3; residuals ∓2/3, so the error of their mean is 2/3, in units of the mean whole 3/2.
    found = ratio(np.array([2.0, 6.0]), np.array([1, 2]))
    assert (found.value, found.standard_error) == (pytest.approx(8 / 3), pytest.approx(4 / 9))
    assert mean(np.array([3.0])).standard_error is None
    assert ratio(np.array([3.0]), np.array([2])).standard_error is None
    # The jackknife agrees.
    generator = np.random.default_rng(0)
    wholes = generator.integers(5, 40, 2000)
    parts = wholes * generator.gamma(4.0, 1.0, 2000)
    left_out = (parts.sum() - parts) / (wholes.sum() - wholes)
    jackknife = np.sqrt(1999 / 2000 * ((left_out - left_out.mean()) ** 2).sum())
    assert ratio(parts, wholes).standard_error == pytest.approx(jackknife, rel=1e-2)


def test_distinct_by_hand():
    texts = ["a b a b", "a  b c", "d"]
    # ab ba ab, ab bc: none across sentences, and none of the lone word.
    assert [distinct(texts, n) for n in (1, 2, 3)] == [4 / 8, 3 / 5, 3 / 3]
    assert distinct(["a b"], 3) is None


def random_texts(seed):
    generator = random.Random(seed)
    return [
        " ".join(generator.choices(["a", "b", "c.", "d,e", "-"], k=generator.randint(1, 9)))
        for _ in range(generator.randint(2, 12))
    ]


BY_HAND = [
    "the cat sat on the mat .", "the cat sat on the mat .", "the the the the cat",
    "A dog, (not a cat) ran off!", "off", "nothing in common here",
    "the dog sat on the cat and the mat .",
]  # fmt: skip


@pytest.mark.parametrize("texts", [BY_HAND, *map(random_texts, range(5))])
def test_self_bleu_is_what_sacrebleu_says(texts):
    scores = [
        sacrebleu.sentence_bleu(text, texts[:i] + texts[i + 1 :]).score
        for i, text in enumerate(texts)
    ]
    found = self_bleu(texts)
    assert found.value == pytest.approx(statistics.mean(scores), abs=1e-9)
    error = statistics.stdev(scores) / len(scores) ** 0.5
    assert found.standard_error == pytest.approx(error, abs=1e-9)


def test_perplexities_and_their_errors_are_those_of_a_plain_loop(judge, judge_folder):
    network = AutoModelForCausalLM.from_pretrained(judge_folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(judge_folder)
    plain = []
    for text in JUDGED:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        plain.append((float(causal_terms(network, tokenizer.bos_token_id, ids).sum()), len(ids)))
    nll, count = np.array(plain).T
    each, rate, root = np.exp(nll / count), nll.sum() / count.sum(), len(JUDGED) ** 0.5
    spread = statistics.stdev(nll - rate * count) / root / count.mean()
    tokens, per_sentence, per_token, mean = perplexity(judge, JUDGED)
    assert tokens == count.sum()
    for estimate, value, error in (
        (per_token, math.exp(rate), math.exp(rate) * spread),
        (per_sentence, each.mean(), statistics.stdev(each) / root),
        (mean, nll.mean(), statistics.stdev(nll) / root),
    ):
        assert estimate.value == pytest.approx(value, rel=1e-5)
        assert estimate.standard_error == pytest.approx(error, rel=1e-5)
    # Otherwise this test could not tell the two apart.
    assert abs(per_sentence.value / per_token.value - 1) > 0.05


def test_one_sentence_small_budgets_and_judges_without_numbers(judge_folder, judge):
    tokens, per_sentence, per_token, nll = perplexity(judge, JUDGED[:1])
    assert per_sentence.value == pytest.approx(per_token.value)
    assert per_token.value == pytest.approx(math.exp(nll.value / tokens))
    assert {one.standard_error for one in (per_sentence, per_token, nll)} == {None}
    small = maskov.Autoregressive(str(judge_folder), budget=1)
    value = perplexity(judge, JUDGED)[2].value
    assert perplexity(small, JUDGED)[2].value == pytest.approx(value, rel=1e-5)
    with pytest.raises(InputError, match="at least 1, not 0"):
        maskov.Autoregressive(str(judge_folder), budget=0)
    broken = maskov.Autoregressive(str(judge_folder))
    broken._loaded[0].transformer.wpe.weight.data[3] = torch.nan
    assert perplexity(broken, ["a"])[0] == 1
    with pytest.raises(maskov.ModelError, match="NaN"):
        perplexity(broken, JUDGED[1:])


TRAINING = "The cat sat , quietly .\n\nA  dog\tran\r\nthe bird ate"
TEXTS = ["the cat sat, quietly.", "a dog", "a dog ran", "bird ate", "THE BIRD  ATE"]


@pytest.mark.parametrize(
    ("name", "pack"), [("t.txt", bytes), ("t.txt.xz", lzma.compress), ("t.gz", gzip.compress)]
)
def test_whole_lines_count_whatever_their_case_and_white_space(tmp_path, name, pack):
    path = tmp_path / name
    path.write_bytes(pack(TRAINING.encode()))
    found, content = copied(TEXTS, path)
    # Ones and noughts: variance 5/4 · 0.6 · 0.4, of the mean a fifth of it.
    assert (found.value, found.standard_error) == (3 / 5, pytest.approx((0.6 * 0.4 / 4) ** 0.5))
    assert content == hashlib.sha256(TRAINING.encode()).hexdigest()
    path.write_bytes(pack("\ufeffa dog ran\na dog ran\n".encode()))
    assert copied(["a dog ran", "a dog ran", "the cat", "a dogran"], path)[0].value == 3 / 4


REFERENCES = [
    "A man in an orange hat is looking at something.",
    "A dog runs across the green grass in front of a fence.",
    "Five people wearing winter jackets, in the snow.",
    "People are fixing the roof of a house.",
    "A man in light clothes photographs a group of men.",
]
TRANSLATIONS = [
    "A man with an orange hat looks at something.",
    "A dog runs over green grass before a white fence.",
    "Five people in winter jackets stand in the snow.",
    "People repair a roof.",
    "A man dressed lightly photographs a group of men in suits.",
]


@pytest.mark.parametrize("seed", [None, "7"])
def test_bleu_and_chrf_are_those_of_sacrebleu(seed, monkeypatch):
    if seed is not None:
        monkeypatch.setenv("SACREBLEU_SEED", seed)
    # Python's own generator cannot be watched here: the types checked in tests draw from it.
    before = repr(np.random.get_state())  # noqa: NPY002 - the global state is what is tested
    found = compare(TRANSLATIONS, REFERENCES)
    assert repr(np.random.get_state()) == before  # noqa: NPY002
    bleu, chrf = BLEU(), CHRF()
    words = bleu.corpus_score(TRANSLATIONS, [REFERENCES], n_bootstrap=1000)
    letters = chrf.corpus_score(TRANSLATIONS, [REFERENCES], n_bootstrap=1000)
    assert (found.sentences, found.notes) == (5, [])
    assert (found.bleu, found.bleu_interval) == (words.score, words._ci)
    assert (found.brevity_penalty, found.length_ratio) == (words.bp, words.sys_len / words.ref_len)
    assert found.chrf == letters.score
    # sacreBLEU's own resamples of chrF are in single precision.
    assert found.chrf_interval == pytest.approx(letters._ci, rel=1e-4)
    assert found.bleu_signature == str(bleu.get_signature())
    assert found.chrf_signature == str(chrf.get_signature())
    assert f"|seed:{seed or 12345}|" in found.bleu_signature
    # Far from the ends, so that none of the above is equal for want of anything to count.
    assert 10 < found.bleu < 90
    assert 10 < found.chrf < 90
    assert 0 < found.brevity_penalty < 1
    assert min(found.bleu_interval, found.chrf_interval) > 1
    assert compare(TRANSLATIONS, REFERENCES) == found


def test_the_same_texts_are_perfect_none_score_nothing_and_one_has_no_interval():
    found = compare(REFERENCES, REFERENCES)
    assert (found.bleu, found.chrf) == (pytest.approx(100), pytest.approx(100))
    assert found.brevity_penalty == found.length_ratio == 1
    assert found.bleu_interval + found.chrf_interval == pytest.approx(0, abs=1e-9)
    nothing = compare([""] * 5, REFERENCES)
    assert nothing.bleu == nothing.chrf == nothing.brevity_penalty == nothing.length_ratio == 0
    one = compare(TRANSLATIONS[:1], REFERENCES[:1])
    assert one.bleu_interval is one.chrf_interval is None
    assert "bs:" not in one.bleu_signature + one.chrf_signature
    assert one.bleu == BLEU().corpus_score(TRANSLATIONS[:1], [REFERENCES[:1]]).score


@pytest.mark.parametrize("empty", [1, 4])
def test_empty_translations_are_scored_at_their_places(empty):
    """Dropped, they would shift the others; sacreBLEU's own chrF breaks on their resamples."""
    texts = [""] * empty + REFERENCES[empty:]
    found = compare(texts, REFERENCES)
    assert found.bleu == BLEU().corpus_score(texts, [REFERENCES]).score
    assert found.chrf == CHRF().corpus_score(texts, [REFERENCES]).score
    # All words that are there are right: what is missing costs by the length alone.
    assert found.bleu == pytest.approx(100 * found.brevity_penalty)
    assert found.brevity_penalty < 1
    assert 0 < found.chrf_interval <= 50


@pytest.mark.parametrize(
    ("texts", "references", "seed", "reason"),
    [
        *((TRANSLATIONS, REFERENCES, seed, "SACREBLEU_SEED is") for seed in ("none", "", "-1")),
        ([], REFERENCES, "1", "translations is 0, that of references 5"),
        ([*TRANSLATIONS, "a"], REFERENCES, "1", "translations is 6, that of references 5"),
        *((["a"] * len(lines), lines, "1", "references are empty") for lines in ([], ["", " \t"])),
    ],
)
def test_what_cannot_be_compared_is_refused(texts, references, seed, reason, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    with pytest.raises(InputError, match=reason):
        compare(texts, references)
