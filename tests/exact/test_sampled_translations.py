"""Translations whose length is sampled: p(x | source) over all sequences of several lengths."""

import pytest
import torch

from maskov import Norm, Raw
from maskov.energies.counting import PredictedLength
from maskov.exact import all_sequences, distribution
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional, Resize, Site, Span
from maskov.testing import check_kernel, step_matrix
from maskov.types import Sequences
from small import mixed
from tiny_translation import conditional, plain_energies

SOURCES = ("red blue", "white green green")
MODEL = conditional()
GIVEN = {source: MODEL.given([source]) for source in SOURCES} | {
    "red blue, with an end": conditional(target_end=True).given(["red blue"])
}
COLD = MaskedConditional(0.8)
LENGTHS = (1, 3)
MOVES = {
    "insert-delete": (Resize(COLD),),
    "resize": (Resize(COLD, ((1, 2), (2, 3))),),
    "mixture": (Site(COLD), Span(COLD, (1, 2)), Resize(COLD), Resize(COLD, ((1, 2), (1, 3)))),
}


KERNELS = {
    "inserting": ("insert-delete", Norm() + 2.0 * PredictedLength(), 1),
    "inserting, without early tests": ("insert-delete", Raw() + 0.5 * PredictedLength(), 0),
    "resizing": ("resize", Norm() + 2.0 * PredictedLength(), 2),
    "mixture": ("mixture", Norm() + 1.5 * PredictedLength(), 1),
}


# Every source once; the largest kernel is slow.
@pytest.mark.parametrize(
    ("kernel", "source"),
    [
        *zip([name for name in KERNELS if name != "resizing"], GIVEN, strict=True),
        pytest.param("resizing", SOURCES[0], marks=pytest.mark.slow),
    ],
)
def test_lengths_weighed_by_their_prediction(kernel, source):
    name, energy, nearest = KERNELS[kernel]
    checked = mixed(energy, MOVES[name], nearest)
    check_kernel(checked, GIVEN[source], lengths=LENGTHS, seeds=1)


def test_the_target_is_a_plain_one():
    model, weight = GIVEN[SOURCES[1]], 2.0
    start = all_sequences(model, *LENGTHS)
    scores = model.sources.length_scores[0, : model.max_length + 1].double()
    scores[0] = -torch.inf
    predicted = -scores.log_softmax(0)
    values = []
    for tokens, length in zip(start.tokens.tolist(), start.lengths.tolist(), strict=True):
        _, norm = plain_energies(MODEL, SOURCES[1], tokens[:length])
        values.append(norm + weight * float(predicted[length]))
    plain = (-torch.tensor(values, dtype=torch.float64)).softmax(0)
    energy = Norm() + weight * PredictedLength()
    found = distribution(model, energy, start.tokens, lengths=start.lengths)
    assert (plain - found).abs().max() < 1e-10
    # The prediction is felt, and differs between sources.
    other = distribution(GIVEN[SOURCES[0]], PredictedLength(), start.tokens, lengths=start.lengths)
    mine = distribution(model, PredictedLength(), start.tokens, lengths=start.lengths)
    assert (
        found - distribution(model, Norm(), start.tokens, lengths=start.lengths)
    ).abs().sum() > 0.05
    assert (mine - other).abs().sum() > 1e-3


def test_each_sequence_is_weighed_by_its_own_source():
    both = MODEL.given(list(SOURCES))
    tokens, lengths = torch.full((2, 3), 6), torch.tensor([2, 2])
    found = PredictedLength()(both, Sequences(tokens, lengths, source=torch.tensor([1, 0])))
    alone = [
        PredictedLength()(one, Sequences(tokens[:1], lengths[:1], source=torch.tensor([0])))[0]
        for one in (GIVEN[SOURCES[1]], GIVEN[SOURCES[0]])
    ]
    assert found.tolist() == pytest.approx([float(one) for one in alone], abs=1e-12)
    assert abs(alone[0] - alone[1]) > 1e-3


def test_the_prediction_for_another_source_is_found_out():
    energy = Norm() + 2.0 * PredictedLength()
    start = all_sequences(MODEL, *LENGTHS)
    matrix = step_matrix(mixed(energy, MOVES["insert-delete"], 1), Scorer(GIVEN[SOURCES[0]]), start)
    other = distribution(GIVEN[SOURCES[1]], energy, start.tokens, lengths=start.lengths)
    assert (other @ matrix - other).abs().max() > 1e-4
