"""The recipes at toy size, on a CPU: from text to a model that samples."""

import json
from collections import Counter

import pytest
import torch

import maskov
from recipes import clean, corpus, export, flat, measure, muon, train, vocabulary

TEXT = """
= A title =

The cat sat on the mat. Mr. Smith of the U.S. army saw the dog in 1984. It ran!
A price of in dollars was asked for it.
and this is a fragment of some kind here.
The river (which is long) runs to the sea. The river (which is long runs to the sea.
The cat sat on the mat. The word Слово is one that we cannot read at all.
""".strip().split("\n")


def test_cleaning_keeps_sentences_and_says_why_it_drops_the_rest():
    dropped: Counter[str] = Counter()
    kept = list(clean.sentences_of(TEXT, dropped, processes=1))
    assert kept == [
        "the cat sat on the mat.",
        "mr. smith of the u.s. army saw the dog in 1984.",
        "the river (which is long) runs to the sea.",
    ]
    assert dropped == {
        "length": 1,  # "It ran!"
        "hole": 1,  # "A price of in dollars ..."
        "fragment": 1,
        "unbalanced": 1,
        "repeated": 1,
        "other script": 1,
    }


@pytest.fixture(scope="module")
def sentences(tmp_path_factory):
    """A little language with rules that a model can learn within seconds."""
    animals, verbs = ["cat", "dog", "bird"], ["sat", "ran", "slept"]
    places = ["mat", "road", "tree"]
    lines = [
        f"the {animal} {verb} on the {place} and the {other} {verb} too ."
        for animal in animals
        for other in animals
        for verb in verbs
        for place in places
    ]
    file = tmp_path_factory.mktemp("text") / "sentences.txt"
    file.write_text("\n".join(lines * 4) + "\n")
    return file


def _train(kind: str, sentences, out, steps: int, *more: str) -> None:
    """Train by steps, not minutes, so that a slow machine learns as much as a fast one."""
    shape = "modern-64x2" if kind == "masked" else "llama-64x2"
    words = [kind, sentences, "--out", out, "--steps", steps, "--shape", shape]
    words += ["--vocabulary", 60, "--batch-tokens", 512, *more]
    with torch.random.fork_rng():
        train.main([str(word) for word in words])


@pytest.fixture(scope="module")
def masked(sentences, tmp_path_factory):
    out = tmp_path_factory.mktemp("masked")
    _train("masked", sentences, out, 150)
    return out


def test_training_learns_goes_on_and_exports_a_model_that_samples(masked, sentences, tmp_path):
    first = json.loads((masked / "log.json").read_text())["log"]
    assert first[-1]["loss"] < 0.7 * first[0]["loss"]
    _train("masked", sentences, masked, 250)
    log = json.loads((masked / "log.json").read_text())["log"]
    assert log[: len(first)] == first
    assert [first[-1]["step"], log[-1]["step"]] == [150, 250]
    assert (masked / "ship" / "README.md").read_text().startswith("# ship\nA masked LM of ")

    size = export.export(masked / "model", tmp_path / "toy")
    model = maskov.load(tmp_path / "toy", "cpu")
    assert model.dtype == torch.float32
    assert model.head is not None
    parameters = sum(weight.numel() for weight in model.network.parameters())
    assert 2 * parameters <= size < 2 * parameters + 8192
    lines = sentences.read_text().splitlines()[:20]
    found = measure.masked_quality(model, lines)
    assert found["log_loss"] == pytest.approx(
        sum(one.energy for one in maskov.score(model, lines, maskov.Norm())) / found["tokens"],
        rel=1e-4,
    )
    assert found["top_1"] > 0.5
    run = maskov.sample(model, schedule=maskov.Schedule(epochs=2), chains=3, length=12)
    assert len(run.samples) == 3


def test_training_at_every_rate_continues_a_model_on_saved_tokens(masked, sentences, tmp_path):
    held, tokens = tmp_path / "held.txt", tmp_path / "tokens.xz"
    lines = sorted(set(sentences.read_text().splitlines()))
    held.write_text("\n".join(lines[:3]) + "\n")
    corpus.main([str(sentences), str(tokens), "--tokenizer", str(masked / "ship"),
                 "--exclude", str(held)])  # fmt: skip
    loaded = corpus.Corpus.load(tokens, torch.device("cpu"))
    tokenizer = vocabulary.obtain(masked / "tokenizer", sentences, 60)
    kept = [line for line in sentences.read_text().splitlines() if line not in lines[:3]]
    made = corpus.Corpus.of(kept, tokenizer, torch.device("cpu"))
    assert loaded.groups.keys() == made.groups.keys()
    assert all(torch.equal(loaded.groups[n], made.groups[n]) for n in made.groups)
    words = ["--start", masked / "ship", "--any-rate", 0.75, "--held-out", sentences,
             "--tokenised", "--muon", 2e-3, "--pause", 60, "--checks", 5]  # fmt: skip
    _train("masked", tokens, tmp_path / "any", 100, *words)
    curve = json.loads((tmp_path / "any" / "log.json").read_text())["held_out"]
    assert len(curve) == 6
    # The toy was trained at 20 %, and knows little of sentences that are masked throughout.
    assert curve[-1]["1.0"] < 0.9 * curve[0]["1.0"]
    assert curve[-1]["one"] < 1.1 * curve[0]["one"]
    model = maskov.load(tmp_path / "any" / "ship", "cpu")
    lines = sentences.read_text().splitlines()[:20]
    assert measure.masked_quality(model, lines)["top_1"] > 0.5


def test_a_flat_pass_and_its_gradients_are_those_of_the_network(masked):
    network = maskov.load(masked / "ship", "cpu").network.float().requires_grad_()
    forward = flat.FlatModernBert(network, 70, compiled=False)
    weights, found = list(network.parameters()), []
    for states in (forward, train.states_of(network)):
        ids = torch.arange(5, 45).reshape(4, 10)
        out = states(ids)
        found.append((out, torch.autograd.grad(out.square().sum(), weights, allow_unused=True)))
    (ours, our_grads), (theirs, their_grads) = found
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(our_grads, their_grads, strict=True):
        assert (mine is None) == (other is None)
        if mine is not None:
            torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-3)


def test_muon_makes_each_part_of_a_matrix_orthogonal():
    weight = torch.nn.Parameter(torch.zeros(24, 8))
    generator = torch.Generator().manual_seed(0)
    weight.grad = torch.randn((24, 8), generator=generator)
    muon.Muon([{"params": [weight], "parts": 3}], lr=1.0, weight_decay=0.0).step()
    for part, gradient in zip(weight.detach().chunk(3), weight.grad.chunk(3), strict=True):
        update = part / (-0.2 * 8**0.5)
        singular = torch.linalg.svdvals(update)
        assert singular.min() > 0.5
        assert singular.max() < 1.3
        assert float((update * gradient).sum()) > 0


@pytest.mark.slow
def test_the_causal_model_learns_with_the_same_vocabulary(masked, sentences, tmp_path):
    words = ["--tokenizer", str(masked / "tokenizer")]
    _train("causal", sentences, tmp_path / "judge", 150, *words)
    export.export(tmp_path / "judge" / "model", tmp_path / "toy")
    judge = maskov.Autoregressive(str(tmp_path / "toy"))
    found = measure.causal_quality(judge, sentences.read_text().splitlines()[:20])
    assert found["perplexity"] < 10
    assert judge.token_strings(judge.tokenise("the cat")) == ["the", "cat"]
