"""AntiBERTy: a real antibody model, small enough to ship its trained weights in its package."""

import importlib.util
from pathlib import Path

import pytest
import torch
from transformers import BertForMaskedLM

import maskov
from plain_energies import site_terms

# Looked up, not imported: the package imports much that its weights do not need.
SPEC = importlib.util.find_spec("antiberty")
pytestmark = pytest.mark.skipif(SPEC is None, reason="the package antiberty is not installed")

# The start of a human heavy chain, close to its germline gene (IGHV3-23).
HEAVY = " ".join("EVQLVESGGGLVQPGGSLRLSCAASGFTFSSYAMSW")


@pytest.fixture(scope="module")
def folder():
    return Path(SPEC.submodule_search_locations[0]) / "trained_models"


@pytest.fixture(scope="module")
def model(folder):
    return maskov.load(
        str(folder / "AntiBERTy_md_smooth"), "cpu", tokenizer=str(folder / "vocab.txt")
    )


def shuffled(sequence):
    residues = sequence.split()
    order = torch.randperm(len(residues), generator=torch.Generator().manual_seed(0))
    return " ".join(residues[i] for i in order)


def test_energies_are_those_of_masking_one_residue_at_a_time(model, folder):
    # A short text keeps the plain loop short; the other one makes the batch a mixed one.
    network = BertForMaskedLM.from_pretrained(folder / "AntiBERTy_md_smooth").eval()
    texts = [" ".join(HEAVY.split()[:14]), "Q V Q L Q"]
    expected = [site_terms(network, model.tokenizer, text) for text in texts]
    for which, energy in enumerate((maskov.Raw(), maskov.Norm())):
        for score, terms in zip(maskov.score(model, texts, energy), expected, strict=True):
            assert score.terms == pytest.approx(terms[which].tolist(), abs=2e-4)


def test_real_antibody_is_more_probable_than_the_same_residues_shuffled(model):
    real, random = maskov.score(model, [HEAVY, shuffled(HEAVY)], maskov.Norm())
    # Chance is 3 nats a residue (log 20); a trained model must be far surer of a germline gene.
    assert real.energy < 1.0 * len(real.terms)
    assert random.energy > 2.0 * len(random.terms)
