"""Texts that a model reads before every sequence: its conditionals, and how runs remember them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import maskov
from maskov import Metropolis, Norm, Raw, RunError, Schedule, Site, Span, Workers
from maskov.cli import main
from maskov.config import ModelSource
from maskov.errors import InputError, Interrupted
from maskov.models.base import Queries
from maskov.models.scorer import Scorer
from maskov.models.serialization import PackedModel
from maskov.scoring import score_texts
from maskov.types import Sequences
from maskov.ui.report import build as build_report
from maskov.ui.report import to_markdown
from odd_workers import files
from small import tiny_bert
from tiny_models import FAMILIES, build, texts_for
from tiny_translation import conditional

PREFIX = "red blue"
MODEL = tiny_bert("red green blue white")
PREFIXED = MODEL.with_prefix(PREFIX)


def _ids(rows: list[list[int]], model) -> Sequences:
    lengths = torch.tensor([len(row) for row in rows])
    tokens = torch.full((len(rows), int(lengths.max())), model.mask_id)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = torch.tensor(row)
    return Sequences(tokens, lengths)


@pytest.mark.parametrize("precision", ["float64", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_conditionals_are_those_of_the_whole_text(family, precision, tmp_path):
    """Single places and several at once, of one length and of several."""
    folder, texts = build(family, tmp_path), texts_for(family)
    before = texts[2]
    plain = maskov.load(folder, "cpu", precision)
    model = maskov.load(folder, "cpu", precision, prefix=before)
    held = plain.encode(before)
    assert model.max_length == plain.max_length - len(held)
    rows = [plain.encode(text)[:6] for text in texts[:3]]
    for some in (rows, rows[1:2] * 2):
        short, long = _ids(some, model), _ids([held + row for row in some], plain)
        sites, whole = Scorer(model).sites(short, True), Scorer(plain).sites(long, True)
        for number, row in enumerate(some):
            here, there = slice(0, len(row)), slice(len(held), len(held) + len(row))
            close = {"atol": 1e-9 if precision == "float64" else 0.05, "rtol": 0}
            for name in ("logit", "log_normaliser"):
                torch.testing.assert_close(
                    getattr(sites, name)[number, here], getattr(whole, name)[number, there], **close
                )
        masked = short.inside & (torch.arange(short.tokens.shape[1]) % 2 == 0)
        shifted = torch.nn.functional.pad(masked, (len(held), 0))
        found = model.logits(model.hidden(Queries(short.tokens, short.lengths, masked)))
        wanted = plain.logits(plain.hidden(Queries(long.tokens, long.lengths, shifted)))
        torch.testing.assert_close(found, wanted, **close)


def test_terms_are_those_of_the_same_positions():
    (own,) = score_texts(PREFIXED, ["green white red"], Norm())
    (whole,) = score_texts(MODEL, [f"{PREFIX} green white red"], Norm())
    (bare,) = score_texts(MODEL, ["green white red"], Norm())
    assert own.terms == pytest.approx(whole.terms[2:], abs=1e-12)
    assert own.terms != pytest.approx(bare.terms, abs=1e-3)
    assert own.tokens == ["green", "white", "red"]


def test_the_fingerprint_is_that_of_the_prefix_too():
    models = [MODEL, PREFIXED, MODEL.with_prefix("blue red")]
    assert len({model.fingerprint() for model in models}) == 3
    assert PREFIXED.fingerprint() == MODEL.with_prefix(PREFIX).fingerprint()
    # Whichever comes first, the prefix or the precision.
    coarse = [
        MODEL.in_precision(torch.bfloat16).with_prefix(PREFIX),
        PREFIXED.in_precision(torch.bfloat16),
    ]
    for model in coarse:
        assert model.fingerprint() == PREFIXED.fingerprint()
        assert model.exact.prefix == model.prefix == PREFIX


@pytest.mark.parametrize("coarse", [False, True])
def test_a_model_that_is_sent_elsewhere_keeps_its_prefix(coarse):
    model = PREFIXED.in_precision(torch.bfloat16) if coarse else PREFIXED
    there = PackedModel.of(model).unpack(torch.device("cpu"))
    assert (there.prefix, there.fingerprint()) == (PREFIX, PREFIXED.fingerprint())
    found, wanted = (score_texts(one, ["green white"], Norm())[0].terms for one in (there, model))
    assert found == wanted


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return build("bert", tmp_path_factory.mktemp("model"))


def _run(folder: Path, out: Path, prefix: str, move=None, **settings) -> maskov.Run:
    model = maskov.load(folder, "cpu", prefix=prefix)
    return maskov.sample(
        model, Metropolis(Raw(), move or Site()), Schedule(4), chains=4, length=4, resident=2,
        thin=1, out=out, **settings,
    )  # fmt: skip


@pytest.mark.parametrize("move", [Site(), Span()], ids=["site", "span"])
@pytest.mark.slow
def test_resumed_and_shared_runs_load_it_again(move, folder, tmp_path):
    prefix = texts_for("bert")[2]
    whole = _run(folder, tmp_path / "whole", prefix, move)
    assert whole.manifest.config.model.source.prefix == prefix
    looks = iter(range(10**6))
    with pytest.raises(Interrupted):
        _run(
            folder, tmp_path / "run", prefix, move,
            stop=lambda: next(looks) > 5, checkpoint_every=0,
        )  # fmt: skip
    maskov.resume(tmp_path / "run", device="cpu")
    assert files(tmp_path / "run") == files(tmp_path / "whole")
    bare = _run(folder, tmp_path / "bare", "", move)
    assert [one.energy_raw for one in bare.samples] != [one.energy_raw for one in whole.samples]
    assert prefix in to_markdown(build_report([whole]))
    if isinstance(move, Site):
        _run(folder, tmp_path / "there", prefix, move, workers=Workers(2))
        assert files(tmp_path / "there") == files(tmp_path / "whole")


def test_a_run_is_not_gone_on_with_under_another_prefix(folder, tmp_path):
    prefix, looks = texts_for("bert")[2], iter(range(10**6))
    with pytest.raises(Interrupted):
        _run(folder, tmp_path / "run", prefix, stop=lambda: next(looks) > 5, checkpoint_every=0)
    with pytest.raises(RunError, match="is not the one this run began with"):
        maskov.resume(tmp_path / "run", maskov.load(folder, "cpu"))


def test_refusals(tmp_path):
    for name in ("untrained", "counterexample", "deroen-small"):
        if name == "deroen-small" and not Path("models/deroen-small").is_dir():
            continue
        with pytest.raises(InputError, match="reads no prefix"):
            maskov.load(name, "cpu", prefix="red")
    for text in ("", "  ", "purple", "red [MASK]", "[SEP]"):
        with pytest.raises(InputError, match="has no words, or some"):
            MODEL.with_prefix(text)
    assert MODEL.with_prefix(" ".join(["red"] * 29)).max_length == 1
    with pytest.raises(InputError, match="leaves no room"):
        MODEL.with_prefix(" ".join(["red"] * 30))
    with pytest.raises(InputError, match="already"):
        PREFIXED.with_prefix("green")
    assert not hasattr(conditional(), "with_prefix")


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


def test_commands(call, folder, tmp_path):
    first, second, *_ = texts_for("bert")
    file = tmp_path / "texts.txt"
    file.write_text(second + "\n")
    model = ["--model", folder, "--device", "cpu"]
    code, out, err = call("score", file, *model, "-e", "norm", "--prefix", first, "--json")
    assert (code, err) == (0, "")
    masked = maskov.load(folder, "cpu")
    (whole,) = score_texts(masked, [f"{first} {second}"], Norm())
    terms = json.loads(out)["terms"]
    assert terms == pytest.approx(whole.terms[-len(terms) :], abs=1e-4)
    fast = ["--epochs", "2", "--chains", "2", "--length", "4", "-q", "--prefix", first]
    code, _, err = call("sample", *model, *fast, "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    source = maskov.Run.open(tmp_path / "run").manifest.config.model.source
    assert source == ModelSource(str(folder), prefix=first)
    code, _, err = call("report", tmp_path / "run", "--terms", "--format", "md")
    assert code == 0
    code, _, err = call("sample", "--model", "untrained", *fast)
    assert code != 0
    assert "drop --prefix" in err
    code, _, err = call("score", file, "-e", "autoregressive", "--prefix", first)
    assert code != 0
    assert "drop --prefix" in err
