"""An autoregressive translation model as an energy: values, transition matrices, wrong versions."""

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from recipes.translation.folders import save_translation

import maskov
from maskov import DelayedAcceptance, InputError, Metropolis, ModelError, Norm
from maskov.energies import AutoregressiveTranslation
from maskov.energies.counting import PredictedLength
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional, Resize, Site, Span
from maskov.testing import check_energy, check_kernel
from maskov.types import Sequences
from small import mixed, tiny_bert
from tiny_translation import SOURCES, conditional, network, save, tokenizer

MODEL = conditional()
ONE = MODEL.given([SOURCES[1]])
EVERY = MODEL.given(SOURCES)
LENGTHS = (1, 3)
COLD = MaskedConditional(0.8)
MOVES = {
    "insert-delete": (Resize(COLD),),
    "mixture": (Site(COLD), Span(COLD, (1, 2)), Resize(COLD), Resize(COLD, ((1, 2), (1, 3)))),
}
# Texts of mixed lengths, with their sources.
LINES = [([6], 1), ([7, 8, 9], 0), ([9, 9], 2), ([6, 7, 8, 9, 6, 7], 3), ([8, 6], 1)]


def _twin(folder: Path, dtype: torch.dtype = torch.float64) -> AutoregressiveTranslation:
    return AutoregressiveTranslation(str(folder), dtype=dtype)


with TemporaryDirectory() as _folder:
    TWIN = _twin(save(Path(_folder), seed=1, dtype=torch.float64, causal=True))
    TWIN.models()  # which loads it


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "twin", seed=1, causal=True)


def _sequences(lines, width=None):
    width = width or max(len(ids) for ids, _ in lines)
    tokens = torch.full((len(lines), width), MODEL.mask_id)
    for row, (ids, _) in enumerate(lines):
        tokens[row, : len(ids)] = torch.tensor(ids)
    lengths = torch.tensor([len(ids) for ids, _ in lines])
    return Sequences(tokens, lengths, source=torch.tensor([source for _, source in lines]))


def _plain_terms(ids, source):
    """−log p of each token and of the end, by a pass for each prefix: no batch, no cache."""
    net, words = network(1, causal=True), tokenizer().get_vocab()
    begin, end = words["<s>"], words["</s>"]
    read = torch.tensor([[*(words[word] for word in SOURCES[source].split()), end]])
    memory = net.read(read, torch.ones_like(read, dtype=torch.bool))[0][:, 1:]
    terms = []
    for place, token in enumerate([*ids, end]):
        prefix = torch.tensor([[begin, *ids[:place]]])
        states = net.decode(prefix, net.cross_key_values(memory), None)
        terms.append(-float(net.scores(states[0, -1]).log_softmax(0)[token]))
    return terms


def test_values_are_plain_sums_of_log_probabilities():
    found, terms = TWIN(EVERY, _sequences(LINES)), TWIN.terms(EVERY, _sequences(LINES))
    for row, (ids, source) in enumerate(LINES):
        plain = _plain_terms(ids, source)
        assert float(found[row]) == pytest.approx(sum(plain), abs=1e-12)
        # The end belongs to the last position.
        expected = [*plain[: len(ids) - 1], sum(plain[len(ids) - 1 :])]
        assert terms[row, : len(ids)].tolist() == pytest.approx(expected, abs=1e-12)
        assert not terms[row, len(ids) :].any()


@pytest.mark.parametrize(
    ("name", "energy", "nearest"),
    [
        ("insert-delete", Norm() + 0.7 * TWIN, 1),
        ("insert-delete", TWIN, 0),
        ("mixture", Norm() + 1.5 * TWIN + PredictedLength(), 2),
    ],
    # Not the energies' names: those hold a folder that each process names anew.
    ids=["beside E_norm", "alone", "in a mixture"],
)
def test_transition_matrices(name, energy, nearest):
    lengths = (1, 2) if name == "mixture" else LENGTHS
    check_kernel(mixed(energy, MOVES[name], nearest), ONE, lengths=lengths, seeds=1)


def test_it_is_an_energy_like_any_other():
    check_energy(Norm() + 0.5 * TWIN, ONE)


@dataclass(frozen=True)
class _ForgetsTheEnd(Metropolis):
    """Tests by the energy without the end token, and says that it has it."""

    def log_ratio(self, chains, proposal, fall):
        before = chains.sequences.rows(proposal.rows)
        after = Sequences(proposal.tokens, proposal.lengths, source=before.source)
        return super().log_ratio(chains, proposal, fall - _end(before) + _end(after))


def _end(sequences):
    twin = TWIN._model
    terms = twin.token_terms(TWIN._read(ONE), sequences.source, sequences.tokens, sequences.lengths)
    return terms.gather(1, sequences.lengths[:, None])[:, 0]


def test_a_missing_end_is_found_out():
    wrong = _ForgetsTheEnd(Norm() + TWIN, Resize(COLD), delayed=DelayedAcceptance(0))
    with pytest.raises(AssertionError, match="detailed balance"):
        check_kernel(wrong, ONE, lengths=LENGTHS)


def test_a_model_without_sources_is_refused(folder):
    energy = Norm() + _twin(folder)
    for sequences in (_sequences(LINES), replace(_sequences(LINES), source=None)):
        with pytest.raises(InputError, match="has no sources here"):
            _twin(folder)(EVERY if sequences.source is None else MODEL, sequences)
    plain = tiny_bert("red green blue")
    with pytest.raises(InputError, match="scores translations") as caught:
        maskov.sample(plain, Metropolis(energy, Site()), length=3, chains=1)
    assert ". " not in str(caught.value)
    with pytest.raises(InputError, match="scores translations"):
        maskov.score(plain, ["red blue"], energy)


def test_other_tokens_and_masked_models_are_refused(tmp_path):
    words = tokenizer(("red", "green", "blue", "black"))
    save_translation(tmp_path / "words", network(1, causal=True), words, torch.float32)
    with pytest.raises(InputError, match="have different tokens"):
        _twin(tmp_path / "words")(EVERY, _sequences(LINES))
    with pytest.raises(ModelError, match="is a masked model"):
        _twin(save(tmp_path / "masked"))(EVERY, _sequences(LINES))


def test_scores_are_those_of_translations_of_the_sources():
    texts = ["red", "blue green", "white", "green red blue"]
    scores = maskov.score(EVERY, texts, Norm() + 0.5 * TWIN)
    lines = [(MODEL.encode(text), row) for row, text in enumerate(texts)]
    whole = _sequences(lines)
    sites = Scorer(EVERY).cache(whole, normaliser=True)
    expected = (Norm() + 0.5 * TWIN)(EVERY, replace(whole, pass_cache=sites))
    assert [one.energy for one in scores] == pytest.approx(expected.tolist(), abs=1e-10)
    assert [sum(one.terms) for one in scores] == pytest.approx(expected.tolist(), abs=1e-10)
    with pytest.raises(InputError, match="one translation of each source"):
        maskov.score(EVERY, texts[:2], Norm())
