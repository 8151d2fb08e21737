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

AMINO_ACIDS = set("ACDEFGHIKLMNPQRSTVWY")
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


def test_head_is_split(model):
    assert model.head is not None


def test_the_twenty_amino_acids_are_allowed_and_nothing_else(model):
    allowed = (~model.forbidden).nonzero().flatten().tolist()
    assert len(allowed) == 20
    assert set(model.token_strings(allowed)) == AMINO_ACIDS


def test_each_residue_is_one_token(model):
    assert model.token_strings(model.encode(HEAVY)) == HEAVY.split()
    assert model.decode(model.encode(HEAVY)) == HEAVY


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


def test_infilled_template_keeps_its_residues_and_gains_amino_acids(model):
    blanks = {3, 7, 8}
    residues = HEAVY.split()[:12]
    template = " ".join("[MASK]" if i in blanks else r for i, r in enumerate(residues))
    kernel = maskov.Metropolis(maskov.Norm())
    run = maskov.sample(model, kernel, maskov.Schedule(epochs=2), chains=2, templates=[template])
    for sample in run.samples:
        assert len(sample.tokens) == len(residues)
        assert {sample.tokens[i] for i in blanks} <= AMINO_ACIDS
        kept = [i for i in range(len(residues)) if i not in blanks]
        assert [sample.tokens[i] for i in kept] == [residues[i] for i in kept]
