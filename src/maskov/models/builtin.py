"""Models by name that are not folders: tables of scores, random weights, antibody packages.

A table is small enough to enumerate all its states, and serves exact proofs and tests. Its
conditionals need not come from any joint distribution, so it shows where Gibbs sampling from masked
conditionals fails and Metropolis-Hastings does not.

Antibody models have their weights in the PyPI packages `antiberty` and `sapiens`, which are looked
up, never imported: both import code that their weights do not need, and Sapiens' needs fairseq.
Weights are read as tensors only. Those of Sapiens have fairseq's names and are converted in memory
into `RobertaForMaskedLM`.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from maskov.config import ModelSource
from maskov.errors import ModelError, refuse, refusing, required
from maskov.models.base import MaskedModel, Queries
from maskov.models.huggingface import HuggingFaceModel
from maskov.models.tokens import import_quietly
from maskov.shipped import PACKAGES
from maskov.types import Float, Tensor


class TabularModel(MaskedModel):
    """Conditionals as a table: `scores[i, x_1, ..., x_n]` is the score of x_i at position i.

    If several positions are masked, scores are averaged over all ways to fill the other ones; an
    exact block move needs only some fixed function of the unmasked context.
    """

    def __init__(
        self,
        scores: Float[Tensor, "*table"],
        tokens: Sequence[str],
        forbidden: Sequence[str] = (),
        name: str = "tabular",
    ) -> None:
        length, size = scores.shape[0], len(tokens)
        refuse(
            (
                tuple(scores.shape) != (length, *(size,) * length),
                f"a table for {length} positions and {size} tokens has the shape "
                f"{(length, *(size,) * length)}, not {tuple(scores.shape)}.",
            ),
        )
        self.name = name
        self.tokens = list(tokens)
        self.scores = scores.double()
        self.mask_id = size
        self.forbidden = torch.tensor([token in forbidden for token in tokens])
        self.min_length = self.max_length = length
        self.device = torch.device("cpu")
        self.dtype = torch.float64
        self.precision = "float64"
        self._answers = torch.stack([_averaged(table, i) for i, table in enumerate(self.scores)])

    def hidden(self, queries: Queries) -> Float[Tensor, "masked hidden"]:
        """Look the scores up; they are their own hidden vectors."""
        refuse(
            (
                (queries.lengths != self.max_length).any(),
                f"'{self.name}' takes only sequences of {self.max_length} tokens.",
            )
        )
        row, place = queries.masked.nonzero(as_tuple=True)
        context = queries.tokens.masked_fill(queries.masked, self.mask_id)[row]
        strides = (len(self.tokens) + 1) ** torch.arange(self.max_length - 1, -1, -1)
        # The queried position takes every token, so its own index is left out.
        code = (context * strides).sum(1) - context[torch.arange(len(row)), place] * strides[place]
        every = torch.arange(len(self.tokens))[None] * strides[place][:, None]
        return self._answers.flatten(1)[place[:, None], code[:, None] + every]

    def logits(self, hidden: Float[Tensor, "masked hidden"]) -> Float[Tensor, "masked vocabulary"]:
        """Return the scores unchanged."""
        return hidden

    @property
    def bytes_per_token(self) -> int:
        """Estimate a few numbers per token."""
        return 64 * (len(self.tokens) + 4)

    def encode(self, text: str) -> list[int]:
        """Read tokens separated by spaces; [MASK] is a blank."""
        ids = {token: i for i, token in enumerate(self.tokens)} | {"[MASK]": self.mask_id}
        refuse(
            *(
                (word not in ids, f"'{word}' is not a token of '{self.name}' ({self.tokens}).")
                for word in text.split()
            )
        )
        return [ids[word] for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        """Write tokens separated by spaces."""
        return " ".join(self.token_strings(ids))

    def token_strings(self, ids: Sequence[int]) -> list[str]:
        """Return the spelling of each token."""
        return [[*self.tokens, "[MASK]"][i] for i in ids]

    def fingerprint(self) -> str:
        """Hash the table, the spelling of the tokens and which are forbidden."""
        digest = hashlib.sha256(repr((self.tokens, self.forbidden.tolist())).encode())
        digest.update(self.scores.contiguous().numpy().tobytes())
        return digest.hexdigest()


def _averaged(table: Tensor, place: int) -> Tensor:
    """Add to every axis but `place` an entry for the mask: the average over that axis."""
    for axis in range(table.dim()):
        extra = table.mean(axis, keepdim=True)
        # A lookup never has the mask at `place`; that entry only keeps the shapes equal.
        table = torch.cat([table, torch.zeros_like(extra) if axis == place else extra], axis)
    return table


def counterexample() -> TabularModel:
    """Return the paper's example: two tokens, two positions, inconsistent conditionals.

    X_1 nearly equals X_2, but X_2 is independent of X_1. The odds ratio p(aa)p(bb)/(p(ab)p(ba)) is
    9801 by the first conditional and 1 by the second.
    """
    # p(x_1 | x_2), indexed [x_1, x_2], and p(x_2 | x_1)
    first = torch.tensor([[0.99, 0.01], [0.01, 0.99]], dtype=torch.float64)
    second = torch.full_like(first, 0.5)
    return TabularModel(torch.stack([first, second]).log(), ["a", "b"], name="counterexample")


_WORDS = """
the a an this that these those my your his her its our their some any no every each another one two
three four five ten many few much more most other such own same new old good bad great small large
long short high low young early late big little first last next few public able red green blue white
black dark light cold warm quiet loud bright heavy empty open i you he she it we they me him them us
who what which when where why how and or but if because while as until of at by for with about
against between into through during before after above below to from up down in out on off over
under again then once here there all both not only so than too very just still now never always
often today soon be is are was were been has have had do does did will would can could may might
must should say says said go goes went get gets got make makes made know knows knew think thinks
thought take takes took see sees saw come comes came want wants wanted look looks looked use uses
used find finds found give gives gave tell tells told work works worked call calls called try tries
tried ask asks asked need needs needed feel feels felt leave leaves left keep keeps kept let begin
begins began help helps helped show shows showed hear hears heard play plays played run runs ran
move moves moved live lives lived believe hold holds held bring brings brought write writes wrote
sit sits sat stand stands stood lose loses lost pay meet meets met read learn learned change changed
follow stop stopped speak spoke walk walked cat dog mat bird horse fish tree river mountain sea road
house door window room table chair book letter word sentence story song child woman man girl boy
friend mother father sister brother king queen doctor teacher city country village school market
church garden field forest night day morning evening year week hour summer winter rain snow wind sun
moon star fire water bread milk apple wine gold money time life death world war peace hand head eye
heart voice name number part place thing way side end line night question answer reason law power
. , ; : ? ! ' " ( ) -
"""


def untrained(
    device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> HuggingFaceModel:
    """Build a tiny BERT with random weights, from a fixed seed, over a few hundred English words.

    It makes every command work without a download. Its sentences mean nothing, and every output
    says so.
    """
    transformers = import_quietly()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *dict.fromkeys(_WORDS.split())]
    tokenizer = transformers.BertTokenizer(vocab={word: i for i, word in enumerate(words)})
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=130,
        initializer_range=0.3,  # wide enough that energies differ between words
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = transformers.BertForMaskedLM(config)
    return HuggingFaceModel(
        network.to(device, dtype),
        tokenizer,
        "untrained",
        caution="'untrained' was never trained: its weights are random and its sentences mean "
        "nothing. Give --model for a trained model.",
    )


# fairseq puts the first four before the letters of its dictionary, and the mask after them.
_BEFORE, _MASK = ("<s>", "<pad>", "</s>", "<unk>"), "<mask>"
# fairseq's names of weights, and what stands for them in Hugging Face's.
_NAMES = {
    "decoder.sentence_encoder.embed_tokens": "roberta.embeddings.word_embeddings",
    "decoder.sentence_encoder.embed_positions": "roberta.embeddings.position_embeddings",
    "decoder.sentence_encoder.emb_layer_norm": "roberta.embeddings.LayerNorm",
    "decoder.sentence_encoder.layers": "roberta.encoder.layer",
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
    "decoder.lm_head.weight": "lm_head.decoder.weight",
    "decoder.lm_head.bias": "lm_head.decoder.bias",
    "decoder.lm_head": "lm_head",
}


def load_antibody(name: str, device: torch.device, dtype: torch.dtype) -> HuggingFaceModel:
    """Load one of these models, or say what to install."""
    package = PACKAGES[name]
    folder = required(
        package.folder(),
        f"'{name}' needs the weights in the package '{package.name}': {package.install}",
        ModelError,
    )
    weights, vocabulary = folder / package.weights, folder / package.vocabulary
    if package.name == "antiberty":
        return HuggingFaceModel.load(
            str(weights.parent), ModelSource(name), device, dtype, str(vocabulary), False
        )
    with refusing(
        f"'{weights}' is damaged, of another version, or has more than tensors and settings, "
        "which may be code: nothing in it was run; install its package again.",
        Exception,  # damaged files raise many kinds of errors
        kind=ModelError,
    ):
        lines = vocabulary.read_text(encoding="utf-8").split("\n")
        words = [*_BEFORE, *(line.split(" ")[0] for line in lines if line), _MASK]
        network = _sapiens(weights, len(words))
    # Letters are separated by spaces.
    ids = {word: index for index, word in enumerate(words)}
    begin, pad, end, unknown = _BEFORE
    backend = Tokenizer(models.WordLevel(ids, unk_token=unknown))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", special_tokens=[(begin, ids[begin]), (end, ids[end])]
    )
    tokenizer = import_quietly().PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=begin,
        pad_token=pad,
        eos_token=end,
        unk_token=unknown,
        mask_token=_MASK,
        clean_up_tokenization_spaces=False,
    )
    return HuggingFaceModel(network.to(device, dtype), tokenizer, name)


def _sapiens(file: Path, size: int) -> Any:
    """Read a checkpoint of fairseq's RoBERTa with so many tokens; no code in it runs."""
    transformers = import_quietly()
    with torch.serialization.safe_globals([argparse.Namespace]):
        content = torch.load(file, map_location="cpu", weights_only=True)
    state, settings = {}, vars(content["args"])
    for name, value in content["model"].items():
        for theirs, ours in _NAMES.items():
            name = name.replace(theirs, ours)
        state[name] = value
    state["lm_head.bias"] = state["lm_head.decoder.bias"]
    width = state["roberta.embeddings.word_embeddings.weight"].shape[1]
    # fairseq has no token types, and its layer norm is torch's.
    state["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, width)
    config = transformers.RobertaConfig(
        vocab_size=size,
        hidden_size=width,
        num_hidden_layers=sum(name.endswith("intermediate.dense.bias") for name in state),
        num_attention_heads=settings["encoder_attention_heads"],
        intermediate_size=len(state["roberta.encoder.layer.0.intermediate.dense.bias"]),
        hidden_act=str(settings.get("activation_fn", "gelu")),
        max_position_embeddings=len(state["roberta.embeddings.position_embeddings.weight"]),
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=_BEFORE.index("<pad>"),
        bos_token_id=_BEFORE.index("<s>"),
        eos_token_id=_BEFORE.index("</s>"),
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):  # the weights that are replaced are drawn
        network = transformers.RobertaForMaskedLM(config)
    network.load_state_dict(state)
    return network
