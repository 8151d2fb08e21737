"""Antibody models by name against the answers of their own packages, where these are installed.

Run with the unpacked packages on PYTHONPATH, or with `.[antibody]`.
"""

import importlib.util
from types import SimpleNamespace

import pytest
import torch

import maskov
from maskov import Record

pytestmark = [pytest.mark.slow]
HEAVY = "EVQLVESGGGLVQPGGSLRLSCAASGFTFSSYAMSWVRQAPGKGLEWVS"
# Parents, what Sapiens makes of them in one pass, and the places of CDRs, which were grafted back
# (Merck/BioPhi-2021-publication, MIT).
PAIRS = {
    "sapiens-vh": (
        "EVKLQQSGPGLVTPSQSLSITCTVSGFSLSDYGVHWVRQSPGQGLEWLGVIWAGGGTNYNSALMSRKSISKDNSKSQVFLKMNSLQADDTAVYYCARDKGYSYYYSMDYWGQGTSVTVSS",
        "QVQLQESGPGLVKPSQTLSLTCTVSGGSLSDYGVHWVRQSPGKGLEWLGVIWAGGGTNYNSALMSRVSISLDTSKSQVFLKMNSLTAADTAVYYCARDKGYSYYYSMDYWGQGTSVTVSS",
        [range(30, 35), range(49, 65), range(97, 109)],
    ),
    "sapiens-vl": (
        "DIETLQSPASLAVSLGQRATISCRASESVEYYVTSLMQWYQQKPGQPPKLLIFAASNVESGVPARFSGSGSGTNFSLNIHPVDEDDVAMYFCQQSRKYVPYTFGGGTKLEIK",
        "DIVMTQSPASLAVSPGERATISCRASESVEYYVTSLMQWYQQKPGQPPKLLIYAASNVESGVPDRFSGSGSGTDFTLTISRVQADDVAVYYCQQSRKYVPYTFGQGTKLEIK",
        [range(23, 38), range(53, 60), range(92, 102)],
    ),
}


def needs(package: str):
    found = importlib.util.find_spec(package) is not None
    return pytest.mark.skipif(not found, reason=f"the package {package} is not installed")


@needs("antiberty")
def test_pseudo_likelihoods_are_those_of_antiberty():
    from antiberty import AntiBERTyRunner

    model = maskov.load("antiberty", "cpu")

    def network(input_ids, attention_mask):
        logits = model.network(input_ids=input_ids, attention_mask=attention_mask).logits
        return SimpleNamespace(prediction_logits=logits.detach())

    # The package's class of network does not load with transformers 5; its scoring code runs.
    theirs = SimpleNamespace(model=network, tokenizer=model.tokenizer, device=torch.device("cpu"))
    expected = AntiBERTyRunner.pseudo_log_likelihood(theirs, [HEAVY])
    (found,) = maskov.score(model, [Record("heavy", HEAVY)], maskov.Norm())
    # They leave special tokens out of the softmax, which have little probability.
    assert -found.energy / len(HEAVY) == pytest.approx(float(expected[0]), abs=1e-4)


@needs("sapiens")
@pytest.mark.parametrize("name", PAIRS)
def test_one_pass_is_what_sapiens_published(name):
    parent, published, cdrs = PAIRS[name]
    model = maskov.load(name, "cpu")
    ids = model.tokenizer(" ".join(parent), return_tensors="pt")["input_ids"]
    logits = model.network(input_ids=ids).logits[0, 1:-1].masked_fill(model.forbidden, -torch.inf)
    best = model.token_strings(logits.argmax(-1).tolist())
    inside = {place for places in cdrs for place in places}
    for place, letter in enumerate(published):
        assert place in inside or best[place] == letter
