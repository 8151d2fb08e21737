"""Translations whose length is sampled: starts, bounds, traces, selection, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest

import maskov
from maskov import InputError, Metropolis, Norm, Schedule, TranslationMethod, translate
from maskov.energies.counting import PredictedLength
from maskov.moves import Resize
from maskov.replay import Replayer
from maskov.testing import random_table
from maskov.translation import SAMPLED, run_method, translations_of
from tiny_translation import SOURCES, conditional

MODEL = conditional()
GIVEN = MODEL.given(SOURCES)
METHOD = TranslationMethod("mh", lengths="sampled", epochs=4, chains=2, pick="lowest")
RESIZING = Metropolis(Norm() + PredictedLength(), Resize())


def test_chains_start_from_mask_predict_at_the_best_of_five_lengths():
    best = translate(MODEL, SOURCES, TranslationMethod("mask-predict", length_beam=5))
    run = maskov.sample(
        GIVEN, maskov.Gibbs(maskov.Site(maskov.MaskedConditional(temperature=0))),
        Schedule(epochs=1), chains=2, lengths="searched", start="mask-predict",
    )  # fmt: skip
    lengths = [len(one.text.split()) for one in best]
    assert [row for row, _ in run.manifest.inputs.chosen] == lengths
    assert all(len(set(row)) == 1 for row in run.manifest.inputs.chosen)
    # With everything rejected, chains stay where they started.
    never = Metropolis(Norm() + PredictedLength(), target_temperature=1e-9)
    stay = maskov.sample(
        GIVEN, never, Schedule(epochs=1), chains=1, lengths="searched", start="mask-predict"
    )
    before = [one.energy_norm for one in best]
    assert all(one.energy_norm <= was + 1e-9 for one, was in zip(stay.samples, before, strict=True))


def test_lengths_change_within_the_bounds_and_are_recorded():
    hot = replace(METHOD, target_temperature=4.0)
    run = run_method(GIVEN, hot, seed=1)
    inputs, lengths = run.manifest.inputs, np.asarray(run.traces["lengths"])
    assert inputs.sampled
    assert (lengths != lengths[0]).any()
    scores = GIVEN.length_scores()
    for row, (fewest, most) in enumerate(inputs.bounds):
        own = lengths[:, 2 * row : 2 * row + 2]
        assert fewest <= own.min()
        assert own.max() <= most
    for one in run.samples:
        assert len(one.ids) == lengths[one.epoch, one.chain]
        predicted = -float(scores[one.template, len(one.ids)])
        assert one.energies["predicted_length"] == pytest.approx(predicted, abs=1e-12)
        assert one.energies["target"] == pytest.approx(one.energy_norm + predicted / 2, abs=1e-9)
    assert "lengths:searched,sampled" in run.signature
    assert "energy:norm+0.5*predicted_length" in run.signature
    assert run.diagnose().groups
    assert all(
        Replayer(run, GIVEN).epoch(chain, epoch).agrees for chain in (0, 3) for epoch in (0, 3)
    )


def test_the_lowest_target_is_picked_whatever_its_length():
    run = run_method(GIVEN, METHOD, seed=1)
    for row, one in enumerate(translations_of(run, METHOD)):
        own = [kept for kept in run.samples if kept.template == row]
        best = min(own, key=lambda kept: kept.energies["target"])
        assert (one.text, one.energy_norm) == (best.text, best.energy_norm)


def test_epochs_that_accept_everything_are_never_the_lowest():
    method = TranslationMethod("mh", lengths="sampled", epochs=3, pick="lowest", force_accept=2)
    run = run_method(GIVEN, method)
    forced = [one for one in run.samples if one.epoch < 2]
    assert all(math.isnan(one.energies["target"]) for one in forced)
    ends = [one.text for one in run.samples if one.epoch == 2]
    assert [one.text for one in translations_of(run, method)] == ends


def test_chains_of_a_source_have_one_target_wherever_they_start():
    method = TranslationMethod(
        "mh", energy=SAMPLED.energy, moves="insert-delete", lengths="top", chains=4, epochs=1
    )
    inputs = run_method(GIVEN, method).manifest.inputs
    assert len(inputs.bounds) == len(SOURCES)
    for bounds, lengths in zip(inputs.bounds, inputs.chosen, strict=True):
        assert len(set(lengths)) == 4
        assert bounds[0] <= min(lengths) < max(lengths) <= bounds[1]


@pytest.mark.parametrize("prior", ["flat", "3:1,9:2"])
def test_what_the_length_predictor_has_to_do_with(prior):
    with pytest.raises(InputError, match="has no length predictor, which the energy"):
        maskov.sample(random_table(), Metropolis(Norm() + PredictedLength()), length=3, chains=1)
    with pytest.raises(InputError, match="add predicted_length to the energy"):
        maskov.sample(GIVEN, RESIZING, Schedule(epochs=1), chains=1, length_prior=prior)
