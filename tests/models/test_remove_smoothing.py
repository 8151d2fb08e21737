"""Label smoothing that is removed from a model: its scores, and how runs remember it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

import maskov
from maskov import Metropolis, Norm, Raw, RunError, Schedule, Site, Span, TranslationMethod, Workers
from maskov.cli import main
from maskov.config import ModelSource, from_json, to_json
from maskov.errors import InputError, Interrupted
from maskov.models.base import Queries
from maskov.models.fingerprints import fingerprint, forbidden_ids
from maskov.models.scorer import Scorer
from maskov.models.serialization import PackedModel
from maskov.models.smoothing import FLOOR, without_smoothing
from maskov.scoring import score_texts
from maskov.types import Sequences
from maskov.ui.report import build as build_report
from maskov.ui.report import to_markdown
from odd_workers import files
from small import tiny_bert
from tiny_models import FAMILIES, build, texts_for
from tiny_translation import SOURCES, conditional, save

SHARE = 0.1
WORDS = "red green blue white"


def _plain(scores: list[float], share: float) -> list[float]:
    """Write the formula out for one position."""
    largest = max(scores)
    total = largest + math.log(math.fsum(math.exp(score - largest) for score in scores))
    return [
        score + math.log(max(1 - share / len(scores) * math.exp(total - score), 0.01))
        for score in scores
    ]


def _random(rows: int = 5, size: int = 40, scale: float = 4.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return scale * torch.randn(rows, size, generator=generator, dtype=torch.float64)


def _removed(scores: torch.Tensor, share: float = SHARE) -> torch.Tensor:
    return without_smoothing(scores, scores.logsumexp(1, keepdim=True), share, scores.shape[1])


@pytest.mark.parametrize("share", [1e-6, 0.1, 0.9])
def test_scores_are_those_of_the_formula(share):
    scores = _random()
    found = _removed(scores, share)
    plain = torch.tensor([_plain(row, share) for row in scores.tolist()], dtype=torch.float64)
    torch.testing.assert_close(found, plain, atol=1e-12, rtol=0)
    floored = found - scores < math.log(FLOOR) + 1e-12
    assert floored.equal(scores.softmax(1) * (1 - FLOOR) < share / scores.shape[1])
    assert floored.any()
    assert not floored.all()


def test_what_smoothing_added_is_removed():
    """(1 − ε) p + ε/V becomes p, but for tokens that p has almost none of."""
    wanted = _random(scale=1.0).softmax(1)
    smoothed = ((1 - SHARE) * wanted + SHARE / wanted.shape[1]).log()
    torch.testing.assert_close(_removed(smoothed + 3).softmax(1), wanted, atol=1e-12, rtol=0)
    certain = torch.zeros(1, 50, dtype=torch.float64)
    certain[0, 7] = 1.0
    smoothed = ((1 - SHARE) * certain + SHARE / 50).log()
    found = _removed(smoothed).softmax(1)
    # Of the tail a hundredth is left.
    tail = FLOOR * SHARE * 49 / 50
    assert found[0, 7].item() == pytest.approx((1 - SHARE) / (1 - SHARE + tail), abs=1e-12)
    assert found.min() > 0


def test_odd_scores():
    scores = torch.tensor([[0.0, -2000.0, -torch.inf], [0.0, torch.nan, 1.0]])
    first, second = _removed(scores)
    assert first[1].item() == pytest.approx(-2000 + math.log(FLOOR))
    assert first[2] == -torch.inf
    assert first[0].isfinite()
    assert second.isnan().all()


def _hidden(model, ids: list[int]) -> torch.Tensor:
    tokens = torch.tensor([ids])
    source = torch.tensor([0]) if getattr(model, "sources", None) is not None else None
    masked = torch.ones_like(tokens, dtype=torch.bool)
    return model.hidden(Queries(tokens, torch.tensor([len(ids)]), masked, source))


@pytest.mark.parametrize("family", [*FAMILIES, "translation"])
def test_all_scores_and_single_ones_agree(family, tmp_path, monkeypatch):
    if family == "translation":
        plain = conditional().given(SOURCES)
        ids = plain.encode("red blue white green")
    else:
        plain = maskov.load(build(family, tmp_path), "cpu", "float64")
        ids = plain.encode(texts_for(family)[1])[:6]
    model = plain.without_smoothing(SHARE)
    hidden = _hidden(model, ids)
    scores, trained = model.logits(hidden), plain.logits(hidden)
    torch.testing.assert_close(scores, _removed(trained), atol=1e-12, rtol=0)
    tokens = torch.arange(len(ids)) * 3 % model.vocabulary_size
    wanted = scores.gather(1, tokens[:, None]).squeeze(1)
    for most in (2**24, 2 * model.vocabulary_size):  # at once, and in portions
        monkeypatch.setattr("maskov.models.base._HEAD_SCORES", most)
        torch.testing.assert_close(model.logit_of(hidden, tokens), wanted, atol=1e-12, rtol=0)
    assert model.logit_of(hidden[:0], tokens[:0]).shape == (0,)
    # Energies use either, with and without the normaliser.
    sequences = Sequences(
        torch.tensor([ids]),
        torch.tensor([len(ids)]),
        source=torch.tensor([0]) if family == "translation" else None,
    )
    with_it, without = (Scorer(model).sites(sequences, normaliser) for normaliser in (True, False))
    torch.testing.assert_close(with_it.logit, without.logit, atol=1e-12, rtol=0)


def test_off_is_the_model_itself():
    for model in (tiny_bert(WORDS), conditional().given(SOURCES)):
        assert model.without_smoothing(0) is model
        assert model.remove_smoothing == 0
        hidden = _hidden(model, model.encode("red blue"))
        tokens = torch.tensor([7, 8])
        assert torch.equal(model.logits(hidden), model.trained_logits(hidden))
        assert torch.equal(model.logit_of(hidden, tokens), model.trained_logit_of(hidden, tokens))
    masked = tiny_bert(WORDS)
    assert masked.fingerprint() == fingerprint(
        masked.network, masked.tokenizer, frame=[masked._before, masked._after],
        mask=masked.mask_id, pad=masked._pad_id, forbidden=forbidden_ids(masked.forbidden),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["masked", "translation"])
def test_it_is_part_of_what_a_model_is(kind):
    plain = (
        tiny_bert(WORDS, torch.float32) if kind == "masked" else conditional(dtype=torch.float32)
    )
    model = plain.without_smoothing(SHARE)
    prints = {one.fingerprint() for one in (plain, model, plain.without_smoothing(0.2))}
    assert len(prints) == 3
    # Whichever comes first, the precision, the sources or this.
    coarse = [
        plain.in_precision(torch.bfloat16).without_smoothing(SHARE),
        model.in_precision(torch.bfloat16),
    ]
    if kind == "translation":
        coarse += [
            model.given(SOURCES).in_precision(torch.bfloat16),
            plain.given(SOURCES).in_precision(torch.bfloat16).without_smoothing(SHARE),
        ]
    for one in coarse:
        assert one.fingerprint() == model.fingerprint()
        assert one.exact.remove_smoothing == one.remove_smoothing == SHARE
    for one in (model, *coarse):
        there = PackedModel.of(one).unpack(torch.device("cpu"))
        assert (there.remove_smoothing, there.fingerprint()) == (SHARE, model.fingerprint())
    if kind == "masked":
        prefixed = [
            model.with_prefix("red"),
            plain.with_prefix("red").without_smoothing(SHARE),
            PackedModel.of(model.with_prefix("red")).unpack(torch.device("cpu")),
        ]
        assert len({one.fingerprint() for one in prefixed}) == 1
        assert prefixed[0].fingerprint() != model.fingerprint()


def test_refusals():
    model = tiny_bert(WORDS)
    for share in (-0.1, 1.0, 1.5, math.nan, math.inf):
        for call in (
            lambda share=share: model.without_smoothing(share),
            lambda share=share: maskov.load("untrained", "cpu", remove_smoothing=share),
            lambda share=share: ModelSource("untrained", remove_smoothing=share),
        ):
            with pytest.raises(InputError, match=r"must be at least 0 and below 1, not .*\.$"):
                call()
    with pytest.raises(InputError, match=r"already: 0\.1"):
        model.without_smoothing(SHARE).without_smoothing(SHARE)
    with pytest.raises(InputError, match="drop --remove-smoothing"):
        maskov.load("counterexample", remove_smoothing=SHARE)
    with pytest.raises(InputError, match="say the same thing"):
        maskov.sample(model, remove_smoothing=SHARE)
    with pytest.raises(InputError, match="say the same thing"):
        maskov.score(model, ["red"], remove_smoothing=SHARE)
    with pytest.raises(InputError, match="say the same thing"):
        maskov.translate(conditional(), ["red"], remove_smoothing=SHARE)
    data = to_json(ModelSource("untrained", remove_smoothing=SHARE))
    assert from_json(ModelSource, data).remove_smoothing == SHARE
    for wrong in (2.0, "0.1", None):
        with pytest.raises(InputError):
            from_json(ModelSource, data | {"remove_smoothing": wrong})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return build("bert", tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def translator(tmp_path_factory) -> Path:
    return save(tmp_path_factory.mktemp("translator") / "tiny")


def _run(folder: Path, out: Path, share: float, move=None, **settings) -> maskov.Run:
    model = maskov.load(folder, "cpu", remove_smoothing=share)
    return maskov.sample(
        model, Metropolis(Raw(), move or Site()), Schedule(4), chains=4, length=4, resident=2,
        thin=1, out=out, **settings,
    )  # fmt: skip


@pytest.mark.parametrize("move", [Site(), Span()], ids=["site", "span"])
@pytest.mark.slow
def test_resumed_and_shared_runs_remove_it_again(move, folder, tmp_path):
    whole = _run(folder, tmp_path / "whole", SHARE, move)
    assert whole.manifest.config.model.source.remove_smoothing == SHARE
    assert "|remove-smoothing:0.1|" in whole.signature
    looks = iter(range(10**6))
    with pytest.raises(Interrupted):
        _run(
            folder, tmp_path / "run", SHARE, move,
            stop=lambda: next(looks) > 5, checkpoint_every=0,
        )  # fmt: skip
    maskov.resume(tmp_path / "run", device="cpu")
    assert files(tmp_path / "run") == files(tmp_path / "whole")
    bare = _run(folder, tmp_path / "bare", 0.0, move)
    assert "smoothing" not in bare.signature
    assert [one.energy_raw for one in bare.samples] != [one.energy_raw for one in whole.samples]
    assert "label smoothing removed" in to_markdown(build_report([whole]))
    assert "label smoothing" not in to_markdown(build_report([bare]))
    if isinstance(move, Site):
        _run(folder, tmp_path / "there", SHARE, move, workers=Workers(2))
        assert files(tmp_path / "there") == files(tmp_path / "whole")


def test_a_run_is_not_gone_on_with_under_another_value(folder, tmp_path):
    looks = iter(range(10**6))
    with pytest.raises(Interrupted):
        _run(folder, tmp_path / "run", SHARE, stop=lambda: next(looks) > 5, checkpoint_every=0)
    for share in (0.0, 0.2):
        with pytest.raises(RunError, match="is not the one this run began with"):
            maskov.resume(tmp_path / "run", maskov.load(folder, "cpu", remove_smoothing=share))
    # Nor after its manifest was changed.
    file = tmp_path / "run" / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["config"]["model"]["source"]["remove_smoothing"] = 0.2
    file.write_text(json.dumps(manifest))
    with pytest.raises(RunError):
        maskov.resume(tmp_path / "run", device="cpu")


def test_translations_stopped_and_resumed_are_the_same_to_the_byte(translator, tmp_path):
    method = TranslationMethod("mh", energy="norm", epochs=4, pick="lowest")
    named = {"remove_smoothing": SHARE, "device": "cpu", "seed": 4}
    whole = maskov.translate(translator, SOURCES, method, out=tmp_path / "whole", **named)
    looks = iter(range(10**6))
    with pytest.raises(Interrupted):
        maskov.translate(
            translator, SOURCES, method, out=tmp_path / "run",
            stop=lambda: next(looks) > 4, **named,
        )  # fmt: skip
    source = maskov.Run.open(tmp_path / "run").manifest.config.model.source
    assert source == ModelSource(str(translator), remove_smoothing=SHARE)
    maskov.resume(tmp_path / "run", device="cpu")
    assert files(tmp_path / "run") == files(tmp_path / "whole")
    plain = maskov.translate(translator, SOURCES, method, device="cpu", seed=4)
    assert [one.energy_norm for one in plain] != [one.energy_norm for one in whole]


@pytest.fixture
def call(capfd):
    """Run the command in this process; return its exit code, output and errors."""

    def run(*words: object):
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    return run


def test_commands(call, folder, translator, tmp_path):
    text, *_ = texts_for("bert")
    removed = ["--remove-smoothing", "0.1"]
    model = ["--model", folder, "--device", "cpu"]
    code, out, err = call("score", text, *model, "-e", "norm", *removed, "--json")
    assert (code, err) == (0, "")
    masked = maskov.load(folder, "cpu", remove_smoothing=SHARE)
    (own,) = score_texts(masked, [text], Norm())
    assert json.loads(out)["terms"] == pytest.approx(own.terms, abs=1e-6)
    assert own.terms == maskov.score(folder, [text], "norm", remove_smoothing=0.1)[0].terms
    (before,) = score_texts(maskov.load(folder, "cpu"), [text], Norm())
    assert own.terms != pytest.approx(before.terms, abs=1e-3)
    fast = ["--epochs", "2", "--chains", "2", "-q", *removed]
    code, _, err = call("sample", *model, *fast, "--length", "4", "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    run = maskov.Run.open(tmp_path / "run")
    assert run.manifest.config.model.source == ModelSource(str(folder), remove_smoothing=SHARE)
    assert run.manifest.config.model.fingerprint == masked.fingerprint()
    code, _, err = call("report", tmp_path / "run", "--terms", "--format", "md")
    assert code == 0
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(line + "\n" for line in SOURCES))
    words = ["translate", lines, "--model", translator, "--device", "cpu", "--method", "mh"]
    code, out, err = call(*words, *fast, "--out", tmp_path / "translated", "--json")
    assert (code, err) == (0, "")
    source = maskov.Run.open(tmp_path / "translated").manifest.config.model.source
    assert source == ModelSource(str(translator), remove_smoothing=SHARE)
    for line in ("sample", "--length", "4", *model), ("score", text, *model), words:
        code, out, err = call(*line, "--remove-smoothing", "1.5")
        assert (code, out) == (2, "")
        assert "--remove-smoothing must be at least 0 and below 1, not 1.5." in err
        assert err.count("\n") == 1
    code, _, err = call("score", text, "-e", "autoregressive", *removed)
    assert code == 2
    assert "drop --remove-smoothing" in err
