"""Training of translation models at toy size: batches, losses, precision and going on."""

import itertools
import json
import lzma
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from recipes.trainer import Trainer, Training
from recipes.translation import distil, train
from recipes.translation.corpus import Batch, Pairs, Side
from recipes.translation.losses import Masking, causal_loss, masked_loss

from maskov.models.network import (
    SpecialTokens,
    TranslationNetwork,
    TranslationShape,
    load_translation,
)

CPU = torch.device("cpu")
PAD, BEGIN, END, MASK = 0, 1, 2, 4
RECORDS = Path(__file__).parents[2] / "results" / "translation"


def _side(sentences: list[list[int]]) -> Side:
    lengths = torch.tensor([len(ids) for ids in sentences])
    flat = np.concatenate([np.array(ids, dtype=np.int32) for ids in sentences])
    return Side.of(flat, lengths.cumsum(0) - lengths, lengths, CPU)


@pytest.fixture(scope="module")
def numbered() -> tuple[Pairs, list[list[int]], list[list[int]]]:
    """Pairs whose every token tells which pair and side it is of, and where it stands."""
    generator = np.random.default_rng(0)
    sides = []
    for side in (0, 1):
        sizes = generator.integers(1, 40, 500)
        sides.append(
            [[((n * 64 + t) * 2 + side) + 1 for t in range(s)] for n, s in enumerate(sizes)]
        )
    return Pairs(_side(sides[0]), _side(sides[1]), CPU), *sides


def _rows(batch: Batch) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the sentences of a batch, padding cut off."""
    sides = ((batch.source, batch.source_inside), (batch.target, batch.target_inside))
    cut = [
        [tuple(row[keep].tolist()) for row, keep in zip(ids, inside, strict=True)]
        for ids, inside in sides
    ]
    return list(zip(*cut, strict=True))


@pytest.mark.parametrize("target_end", [True, False])
def test_an_epoch_shows_every_pair_in_batches_of_few_shapes(numbered, target_end):
    pairs, sources, targets = numbered
    times = torch.ones(500, dtype=torch.long)
    times[:50] = 3
    generator = torch.Generator().manual_seed(0)
    batches = pairs.batches(2048, generator, 0.2, times, target_end)
    single, joined = Counter(), Counter()
    shapes, sizes = set(), {}
    for batch in itertools.islice(batches, 60):
        n, width = batch.source.shape
        height = batch.target.shape[1]
        # With the network's own position in front, all is a multiple of 8.
        assert (n % 8, (width + 1) % 8, height % 8) == (0, 0, 0)
        assert n * (width + 1 + height) <= 2048
        shapes.add((width, height))
        assert sizes.setdefault((width, height), n) == n
        assert not batch.source_inside[:, -1].any()  # room for the end
        assert not (target_end and batch.target_inside[:, -1].any())
        assert batch.tokens == int(batch.source_inside.sum() + batch.target_inside.sum())
        for source, target in _rows(batch):
            parts = [(token - 1) // 128 for token in source]
            order = list(dict.fromkeys(parts))
            assert list(source) == [token for n in order for token in sources[n]]
            assert list(target) == [token for n in order for token in targets[n]]
            (single if len(order) == 1 else joined).update(order)
    assert len(shapes) <= 61
    seen = single + joined
    # More than an epoch, so each was seen as often as asked for at least.
    assert all(seen[n] >= times[n] for n in range(500))
    assert 0.1 < sum(joined.values()) / sum(seen.values()) < 0.3


def _copying(causal: bool) -> tuple[TranslationNetwork, object, object]:
    """Return a network, its loss on the task of copying, and the batches."""
    network = TranslationNetwork(
        TranslationShape(20, 32, 2, 64, 1, 1, 32, causal=causal), dropout=0.0
    )
    train.initialise(network)
    special = SpecialTokens(PAD, BEGIN, END, MASK)

    def loss(batch: Batch, generator: torch.Generator) -> torch.Tensor:
        if causal:
            return causal_loss(network, special, 0.0, batch)
        return masked_loss(network, special, Masking(), 0.0, replace(batch, noisy=True), generator)

    def batches():
        generator = torch.Generator().manual_seed(0)
        while True:
            ids = torch.randint(5, 20, (64, 8), generator=generator)
            inside = torch.arange(8) < torch.randint(3, 8, (64, 1), generator=generator)
            yield Batch(
                ids[:, :7], inside[:, :7] & inside[:, 1:], ids, inside & inside.roll(-1, 1), 0
            )

    return network, loss, batches()


@pytest.mark.parametrize(
    "precision", ["autocast", pytest.param("bfloat16", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("causal", [True, False])
def test_losses_fall_on_copying(causal, precision):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network, loss, batches = _copying(causal)
        trainer = Trainer(network, loss, Training(rate=1e-2, warm_up=0.1), CPU, precision)
        trainer.run(batches, None, 120)
    losses = [row["loss"] for row in trainer.log]
    assert losses[-1] < 0.75 * losses[0]
    assert network.words.weight.dtype == (
        torch.bfloat16 if precision == "bfloat16" else torch.float32
    )
    trainer.use_average()
    assert network.words.weight.dtype == torch.float32
    torch.testing.assert_close(network.words.weight.data, trainer.average[0], atol=0, rtol=0)


def test_training_in_bfloat16_goes_on_as_if_never_stopped():
    def fresh() -> tuple[Trainer, object]:
        torch.manual_seed(0)
        network, loss, batches = _copying(True)
        return Trainer(network, loss, Training(rate=1e-2), CPU, "bfloat16"), batches

    with torch.random.fork_rng():
        (whole, batches), (begun, others) = fresh(), fresh()
        whole.run(batches, None, 40)
        with pytest.raises(StopIteration):  # the batches end before the steps do
            begun.run(itertools.islice(others, 20), None, 40)
        again, _ = fresh()
        again.restore(begun.state())
        assert again.step == 20
        again.run(others, None, 40)
    states = [trainer.state() for trainer in (whole, again)]
    for one, other in zip(*(state["average"] for state in states), strict=True):
        assert torch.equal(one, other)
    for name, weight in states[0]["network"].items():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, states[1]["network"][name])


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Pairs of a language that is English letter by letter, and a vocabulary for it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("toy")
    words = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
    words += [f"▁{kind}{n}" for kind in "xy" for n in range(10)]
    tokenizer = Tokenizer(models.WordLevel({w: n for n, w in enumerate(words)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
        unk_token="<unk>", mask_token="<mask>",
    ).save_pretrained(folder / "tokenizer")  # fmt: skip
    generator = np.random.default_rng(0)
    for name, count in (("de-en", 300), ("ro-en", 60)):
        lines = [generator.integers(0, 10, generator.integers(1, 7)) for _ in range(count)]
        for kind, side in (("x", "src"), ("y", "tgt")):
            text = "".join(" ".join(f"{kind}{n}" for n in line) + "\n" for line in lines)
            (folder / f"{name}.train.{side}.xz").write_bytes(lzma.compress(text.encode()))
    return folder


def _train(kind: str, toy, out, steps: int, *more: str) -> None:
    words = [kind, toy, "--tokenizer", toy / "tokenizer", "--out", out, "--steps", steps]
    words += ["--width", 32, "--layers", 1, "--batch-tokens", 1024, "--dropout", 0, *more]
    train.main([str(word) for word in words])


@pytest.fixture
def _forked():
    """Training draws from torch's generator, and so does a network before its weights are read."""
    with torch.random.fork_rng():
        yield


@pytest.mark.usefixtures("_forked")
def test_from_pairs_to_a_twin_that_translates_and_back(toy, tmp_path, capsys):
    _train("twin", toy, tmp_path / "twin", 120, "--rate", "0.01")
    _train("twin", toy, tmp_path / "twin", 200, "--rate", "0.01")
    out = capsys.readouterr().out
    assert "continuing from step 120" in out
    assert "pairs/s" in out
    log = json.loads((tmp_path / "twin" / "log.json").read_text())["log"]
    assert log[-1]["loss"] < 0.8 * log[0]["loss"]

    # Other weights begin where these ended, with a new optimiser.
    weights = tmp_path / "twin" / "model"
    _train("twin", toy, tmp_path / "more", 50, "--rate", "0.001", "--weights", str(weights))
    more = json.loads((tmp_path / "more" / "log.json").read_text())["log"]
    assert more[0]["loss"] < 1.2 * log[-1]["loss"]

    distil.main([str(weights), str(toy), "--most", "40"])
    out = capsys.readouterr().out
    assert "sentences/s" in out
    facts = json.loads((toy / "ro-en.distilled.json").read_text())
    assert (facts["pairs"], facts["translated"]) == (40, 40)
    found = distil.translate_lines(distil.load_twin(weights), ["x1 x2", "x3"], beam=2)
    assert all(set(str(line)) <= set("xy0123456789 ") for line in found)
    _train("masked", toy, tmp_path / "masked", 60, "--targets", "distilled", "--most", "40",
           "--noisy", "0.3")  # fmt: skip
    assert not load_translation(tmp_path / "masked" / "model", CPU, torch.float32)[0].shape.causal


@pytest.mark.usefixtures("_forked")
@pytest.mark.parametrize("kind", ["twin", "masked"])
def test_a_training_is_that_of_the_shipped_model_unless_told_otherwise(kind, toy, tmp_path):
    words = [kind, toy, "--tokenizer", toy / "tokenizer", "--out", tmp_path, "--steps", 1]
    train.main([str(word) for word in [*words, "--width", 32, "--layers", 1]])
    found = json.loads((tmp_path / "log.json").read_text())
    shipped = json.loads((RECORDS / f"{kind}-shipped.json").read_text())
    assert found["recipe"] == shipped["recipe"]
    assert found["masking"] == (shipped["masking"] if kind == "masked" else None)
    assert found["device"] == "cpu"
    assert found["pairs"] == 360


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["masked", "--foreign", "0.3", "--noisy", "0"], "--noisy 0 has none"),
        (["masked", "--noise", "0.3", "--noisy", "0"], "--noisy 0 has none"),
        (["twin", "--noisy", "0.3"], "--noisy is for masked models only"),
    ],
)
def test_options_that_would_do_nothing_are_refused(words, complaint, tmp_path, capsys):
    kind, *options = words
    out = tmp_path / "out"
    with pytest.raises(SystemExit, match="2"):
        _train(kind, tmp_path, out, 1, *options)
    assert complaint in capsys.readouterr().err
    assert not out.exists()
