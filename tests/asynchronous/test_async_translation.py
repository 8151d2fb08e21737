"""Chains that translate do not know who is translated beside them."""

import pytest

from maskov import DelayedAcceptance, MaskedConditional, Metropolis, Norm, Raw, Schedule, sample
from maskov.moves import Site
from tiny_translation import SOURCES, conditional

MODEL = conditional()
SETTINGS = {"schedule": Schedule(epochs=3), "chains": 2, "lengths": "drawn", "seed": 2, "thin": 1}


def _kernel(energy, nearest: int = 0):
    return Metropolis(
        energy, Site(MaskedConditional(temperature=1.4)), delayed=DelayedAcceptance(nearest)
    )


def _chains(run) -> list[tuple]:
    return [(one.template, one.epoch, one.chain, one.ids) for one in run.samples]


@pytest.mark.parametrize("nearest", [0, 2])
def test_a_chain_does_not_know_who_else_is_translated(nearest):
    """Alone, among others, in other batches: the numbers of a chain are its own."""
    kernel = _kernel(Norm(), nearest)
    alone = sample(MODEL.given(SOURCES[1:2]), kernel, **SETTINGS)
    wanted = _chains(alone)
    assert len(wanted) == 2 * 3
    companies = (
        ([SOURCES[1], *SOURCES], {}),
        ([SOURCES[1], SOURCES[2]], {"token_budget": 16}),
        ([SOURCES[1], SOURCES[1], "white"], {"resident": 4}),
    )
    for texts, way in companies:
        run = sample(MODEL.given(texts), kernel, **SETTINGS, **way)
        assert [one for one in _chains(run) if one[0] == 0] == wanted
    # With another source in its place the same chains go elsewhere.
    others = sample(MODEL.given([SOURCES[2]]), kernel, **SETTINGS)
    assert _chains(others) != wanted


def test_numbers_belong_to_chains_not_to_sources():
    """The same source twice is two chains that draw anew."""
    run = sample(MODEL.given([SOURCES[1]] * 2), _kernel(Raw()), **SETTINGS)
    first, second = ([one.ids for one in run.samples if one.template == row] for row in (0, 1))
    assert first != second
