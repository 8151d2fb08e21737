"""Networks in memory and masked diffusion models: any class that gives logits for masked places."""

import math

import pytest
import torch
from torch import nn

import maskov
import tiny_models
from encoders.tiny_encoders import build
from json_files import edited
from maskov.models.base import Queries
from maskov.models.packed import PickledModel
from small import tiny_bert

WORDS = ["red", "green", "blue"]
TEXTS = ["red blue", "green green red"]
# A class with code of its own, as masked diffusion models have it: bidirectional, without a mask of
# padding, and of another class than ForMaskedLM. {kind} says for which of transformers' classes.
CODE = """
import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class Config(PretrainedConfig):
    model_type = "tiny-diffusion"

    def __init__(self, vocab_size=12, causal=False, **others):
        super().__init__(**others)
        self.vocab_size, self.causal = vocab_size, causal


class Network(PreTrainedModel):
    config_class = Config

    def __init__(self, config):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, 8)
        self.places = nn.Embedding(16, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.head = nn.Linear(8, config.vocab_size)
        self.post_init()

    def _init_weights(self, module):
        for parameter in module.parameters(recurse=False):
            nn.init.normal_(parameter, std=0.6)

    def forward(self, input_ids, timesteps=None):
        length = input_ids.shape[1]
        mask = None
        if self.config.causal:
            mask = nn.Transformer.generate_square_subsequent_mask(length, input_ids.device).to(
                self.head.weight.dtype
            )
        states = self.words(input_ids) + self.places.weight[:length]
        return CausalLMOutput(logits=self.head(self.layer(states, src_mask=mask)))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a maker of folders with code of their own, and a tokenizer without a mask."""
    cache = tmp_path / "cache"
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(cache))
    monkeypatch.syspath_prepend(str(cache))

    def make(auto_class="AutoModel", **settings):
        scope: dict = {"__name__": "tiny_diffusion"}
        exec(CODE, scope)
        tokenizer = tiny_bert().tokenizer
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = scope["Network"](scope["Config"](**settings))
        target = tmp_path / "tiny"
        network.save_pretrained(target)
        tokenizer.save_pretrained(target)
        with edited(target / "tokenizer_config.json") as told:
            told.pop("mask_token")
        (target / "code.py").write_text(CODE)
        classes = {"AutoConfig": "code.Config", auto_class: "code.Network"}
        tiny_models.edit_config(target, auto_map=classes)
        return target, network.to(torch.float64).eval()

    return make


def energies(network, mask, shift=False):
    """Return E_norm of the texts by the definition, a pass for each token of each text."""
    tokenizer, found = tiny_bert().tokenizer, []
    for text in TEXTS:
        ids = torch.tensor(tokenizer(text)["input_ids"])
        total = 0.0
        for place in range(1, len(ids) - 1):
            masked = ids.clone()
            masked[place] = mask
            with torch.no_grad():
                answer = network(masked[None])
            logits = getattr(answer, "logits", answer)[0]
            total -= logits[place - shift].log_softmax(-1)[ids[place]].item()
        found.append(total)
    return found


@pytest.mark.parametrize(
    ("auto_class", "settings", "options"),
    [
        ("AutoModel", {"mask_token_id": 4}, {}),  # as LLaDA says it
        ("AutoModelForCausalLM", {}, {"mask_token_id": 4}),
        ("AutoModelForMaskedLM", {}, {"mask_token_id": 11}),  # as MDLM: behind the tokens
        ("AutoModel", {}, {"mask_token_id": 4, "shift_logits": True}),  # as Dream
    ],
)
def test_masked_diffusion_models(folder, call, tmp_path, auto_class, settings, options):
    where, network = folder(auto_class, **settings)
    shift, mask = options.get("shift_logits", False), options.get("mask_token_id", 4)
    model = maskov.load(
        where, "cpu", "float64", trust_remote_code=True, architecture="masked-diffusion", **options
    )
    assert (model.mask_id, model.pads) == (mask, False)
    assert "architecture='masked-diffusion'" in repr(model)
    expected = energies(network, mask, shift)
    scores = maskov.score(model, TEXTS, maskov.Norm())
    assert [one.energy for one in scores] == pytest.approx(expected, abs=1e-9)

    # Lengths that share a call are run apart, because nothing is padded.
    tokens, lengths = torch.tensor([[6, 7, 8], [7, 6, 0], [8, 8, 7]]), torch.tensor([3, 2, 3])
    queries = Queries(tokens, lengths, torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 0]]).bool())
    rows = [torch.tensor([row]) for row in range(3)]
    alone = [model.hidden(queries.rows(row, int(lengths[row]))) for row in rows]
    torch.testing.assert_close(model.hidden(queries), torch.cat(alone), atol=1e-9, rtol=0)

    # `ordered` is −log p of a distribution, so there is nothing for `evidence` to estimate.
    pairs = [f"{one} {two}" for one in WORDS for two in WORDS]
    ordered = [one.energy for one in maskov.score(model, pairs, "ordered(left-to-right)")]
    assert sum(math.exp(-energy) for energy in ordered) == pytest.approx(1, abs=1e-9)
    (target,) = maskov.evidence(model, pairs, "ordered(left-to-right)").targets
    assert target.nats_per_token == pytest.approx(sum(ordered) / 18, abs=1e-9)
    (filled,) = maskov.infill(model, "red [MASK] [MASK]").templates
    assert sum(fill.probability for fill in filled.fills) == pytest.approx(1, abs=1e-6)

    # A run from the command line, continued from its folder alone.
    written = "".join(f", {key}={str(value).lower()}" for key, value in options.items())
    code, _, err = call(
        "sample", "--length", "3", "--chains", "2", "--epochs", "2", "--out", tmp_path / "run",
        "-w", "0", "-m", f"{where}(architecture=masked-diffusion{written})", "--trust-remote-code",
    )  # fmt: skip
    assert code == 0, err
    source = maskov.resume(tmp_path / "run", trust_remote_code=True).manifest.config.model.source
    assert (source.shift_logits, source.mask_token_id) == (shift, options.get("mask_token_id"))


class Plain(nn.Module):
    """A network without settings, whose forward gives the logits themselves."""

    def __init__(self, network, shift=0):
        super().__init__()
        self.inner, self.shift = network, shift

    def forward(self, tokens):
        logits = self.inner(input_ids=tokens).logits
        return logits.roll(-self.shift, 1)


@pytest.mark.parametrize(
    ("wrap", "options"),
    [
        (lambda network: network, {}),
        (Plain, {}),
        (lambda network: Plain(network, 1), {"shift_logits": True}),
        (lambda network: network.train(), {"mask_token_id": 4}),
    ],
)
def test_networks_in_memory(wrap, options, tmp_path):
    known = tiny_bert()
    network = wrap(known.network.requires_grad_(True))
    training = network.training
    expected = energies(known.network.eval(), 4)
    network.train(training)
    model = maskov.load(network, precision="float64", tokenizer=known.tokenizer, **options)
    scores = maskov.score(model, TEXTS, "norm")
    assert [one.energy for one in scores] == pytest.approx(expected, abs=1e-9)
    # The network stays as it was, and its weights are not copied.
    assert network.training == training
    assert all(weight.requires_grad for weight in network.parameters())
    weights = zip(network.parameters(), model.network.parameters(), strict=True)
    assert all(one.data_ptr() == two.data_ptr() for one, two in weights)
    settings = {"length": 3, "chains": 2, "epochs": 3, "progress": False}
    run = maskov.sample(model, **settings, out=tmp_path / "run")
    assert maskov.resume(tmp_path / "run", model).samples == run.samples
    there = PickledModel.of(model).unpack(torch.device("cpu"))
    assert there.fingerprint() == model.fingerprint()
    assert maskov.sample(there, **settings).samples == run.samples
    assert len(maskov.infill(model, "red [MASK]").templates) == 1
    (written,) = maskov.rewrite(model, ["red blue"], contains="green", chains=2, epochs=2)
    assert "green" in written.text
    with pytest.raises(maskov.InputError, match=r"maskov\.load"):
        maskov.score(network, TEXTS)


def _saved(*options, **settings):
    def ask(folder):
        where, _ = folder(mask_token_id=4, **settings)
        return {"name": where, "trust_remote_code": True} | dict(options)

    return ask


def _not_bidirectional(folder):
    where, _ = folder()
    (where / "config.json").write_text('{"model_type": "gpt2"}')
    return {"name": where, "architecture": "masked-diffusion"}


DIFFUSION = ("architecture", "masked-diffusion")


def _memory(network, **options):
    return lambda folder: {"name": network, "tokenizer": tiny_bert().tokenizer} | options


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (_saved(DIFFUSION, causal=True), "looks to the left only"),
        (_saved(), "architecture=masked-diffusion"),
        (_saved(DIFFUSION, time_conditioning=True), "depend on a time"),
        (_memory(build("bert", is_decoder=True)), "looks to the left only"),
        (_memory(tiny_bert().network.bert), "no logits"),
        (_memory(tiny_bert().network, tokenizer=None), "needs its tokenizer"),
        (_memory(tiny_bert().network, mask_token_id=2**30), "mask token 1073741824"),
        (_memory(tiny_bert().network, mask_token_id=99), "only 9 rows"),
        (_not_bidirectional, "maskov.load.network, tokenizer"),
        (_memory(len), "load takes a name"),
        (lambda folder: {"name": "untrained", "shift_logits": True}, "drop the tokenizer"),
        (lambda folder: {"architecture": "diffusion"}, "unknown architecture"),
    ],
)
def test_what_is_refused(folder, asked, said):
    with pytest.raises(maskov.MaskovError, match=said) as caught:
        maskov.load(**asked(folder))
    assert str(caught.value).isprintable()


def test_the_mask_takes_the_space_that_tokens_hold(folder):
    tokenizer, network = tiny_models.gpt2(), tiny_bert().network
    with torch.random.fork_rng():
        network.resize_token_embeddings(len(tokenizer) + 1)
    options = {"mask_token_id": len(tokenizer), "architecture": "masked-diffusion"}
    model = maskov.load(network, tokenizer=tokenizer, **options)
    ids = model.encode("the [MASK] sat")
    assert ids == [*tokenizer("the")["input_ids"], model.mask_id, *tokenizer(" sat")["input_ids"]]
