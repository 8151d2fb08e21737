"""Translation on a GPU: the same chains as on the CPU, and the same translations of the twin."""

import copy

import pytest
import torch

from maskov import LinearSchedule, Metropolis, Raw, TranslationMethod, translate
from maskov.execution.recorded import RecordedSites, RecordedWindows, sampler_for
from maskov.models import Queries
from maskov.models.autoregressive import AutoregressiveTranslator
from maskov.models.conditional import ConditionalModel
from maskov.moves import Span
from tiny_translation import SOURCES, network, save, tokenizer

if not torch.cuda.is_available():
    pytest.skip("there is no GPU here", allow_module_level=True)

METHODS = {
    "greedy": TranslationMethod("greedy"),
    "mask-predict": TranslationMethod("mask-predict", iterations=4, length_beam=3),
    "gibbs": TranslationMethod("gibbs", epochs=3),
    "block gibbs": TranslationMethod("block-gibbs", epochs=3),
    "mh raw": TranslationMethod("mh", energy="raw", epochs=3, chains=2),
    "mh norm": TranslationMethod(
        "mh", energy="norm", epochs=3, target_temperature=LinearSchedule(1.0, 0.04, 0.01)
    ),
    "block mh": TranslationMethod("block-mh", energy="norm", epochs=3),
    "searched length": TranslationMethod("mh", lengths="searched", epochs=3),
    "sampled length": TranslationMethod("mh", lengths="sampled", epochs=3, chains=2),
}


def _on(
    device: str, dtype: torch.dtype = torch.float64, remove_smoothing: float = 0.0
) -> ConditionalModel:
    model = ConditionalModel(network(dtype=dtype).to(device), tokenizer(), "tiny")
    return model.without_smoothing(remove_smoothing)


def test_chains_run_in_recorded_rounds():
    model = _on("cuda").given(SOURCES)
    assert sampler_for(model, Metropolis(Raw())) is RecordedSites
    assert sampler_for(model, Metropolis(Raw(), Span())) is RecordedWindows
    sampled = TranslationMethod("mh", lengths="sampled").kernel()
    assert sampler_for(model, sampled) is RecordedWindows


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_fused_decoder_is_that_of_the_cpu(norm_first):
    """In float32, one mask and several."""
    exact = network(norm_first=norm_first)
    here = ConditionalModel(exact, tokenizer(), "tiny").given(SOURCES)
    there = ConditionalModel(copy.deepcopy(exact).float().cuda(), tokenizer(), "tiny")
    there = there.given(SOURCES)
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 10, (64,), generator=generator)
    tokens = torch.randint(6, 10, (64, 9), generator=generator)
    place = (torch.rand(64, generator=generator) * lengths).long()
    source = torch.randint(0, len(SOURCES), (64,), generator=generator)
    masked = torch.arange(9) < (lengths[:, None] + 1) // 2
    one = [tokens, lengths, place, source]
    several = [tokens, lengths, masked, source]
    for ours, theirs in (
        (there.hidden_at(*(t.cuda() for t in one)), here.hidden_at(*one)),
        (there.hidden(Queries(*(t.cuda() for t in several))), here.hidden(Queries(*several))),
    ):
        assert (ours.double().cpu() - theirs).abs().max() < 2e-4 * theirs.abs().max()


@pytest.mark.parametrize("remove_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_same_translations_as_on_the_cpu(method, remove_smoothing):
    here, there = (
        translate(_on(device, remove_smoothing=remove_smoothing), SOURCES, method, seed=3)
        for device in ("cpu", "cuda")
    )
    assert [line.text for line in here] == [line.text for line in there]
    for mine, other in zip(here, there, strict=True):
        assert mine.energy_raw == pytest.approx(other.energy_raw, abs=1e-8)
        assert mine.energy_norm == pytest.approx(other.energy_norm, abs=1e-8)


def test_sampled_lengths_with_the_twin_are_those_of_the_cpu(tmp_path):
    folder = save(tmp_path / "tiny-twin", seed=1, causal=True)
    method = TranslationMethod(
        "mh", lengths="sampled", energy=f"norm+0.5*autoregressive({folder})", epochs=3, chains=2,
        start="autoregressive", pick="lowest",
    )  # fmt: skip
    here, there = (
        translate(
            _on(device), SOURCES, method, seed=3,
            autoregressive=AutoregressiveTranslator.load(folder, torch.device(device), "tiny-twin"),
        )
        for device in ("cpu", "cuda")
    )  # fmt: skip
    assert [line.text for line in here] == [line.text for line in there]
    for mine, other in zip(here, there, strict=True):
        assert mine.energy_norm == pytest.approx(other.energy_norm, abs=1e-8)
