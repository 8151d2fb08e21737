"""Hugging Face masked LMs, from a local folder or by hub name.

A masked LM ends in a small transform and a projection onto the vocabulary. The projection is most
of the cost of a small model, and a masked pass needs it only at the masked positions. Families
whose head is not listed here run their own full forward pass.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Any

import torch
from torch import nn

from maskov.encoders import Encoder
from maskov.errors import InputError, ModelError
from maskov.models.base import Queries, coarse
from maskov.models.checkpoint import load_checkpoint
from maskov.models.packed import Frame, LMHead, PackedModel, pack_masked
from maskov.models.tokens import (
    MARKS,
    check_tokens,
    embedding_rows,
    forbidden_tokens,
    frame_of,
    other_letters,
    silence_transformers,
)
from maskov.types import Float, Int, Tensor, inside

# The steps before the projection, and the projection, by family.
FAMILIES: dict[str, tuple[str | nn.Module, ...]] = {
    "bert": ("cls.predictions.transform", "cls.predictions.decoder"),
    "distilbert": ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
    "albert": (
        "predictions.dense", "predictions.activation", "predictions.LayerNorm",
        "predictions.decoder",
    ),
    "electra": ("generator_predictions", "generator_lm_head"),
    "modernbert": ("head", "decoder"),
} | dict.fromkeys(
    ("roberta", "xlm-roberta", "camembert", "esm"),
    ("lm_head.dense", nn.GELU(), "lm_head.layer_norm", "lm_head.decoder"),
)  # fmt: skip
# Families whose positions start after the padding index, which lowers their maximum length.
_OFFSET_POSITIONS = frozenset(
    {"roberta", "xlm-roberta", "camembert", "esm", "longformer", "mpnet", "data2vec-text",
     "roberta-prelayernorm", "xlm-roberta-xl", "xmod", "ibert"}
)  # fmt: skip


class HuggingFaceModel(PackedModel):
    """A masked LM and its tokenizer; the head runs at the masked positions only."""

    def __init__(self, network: Any, tokenizer: Any, name: str, caution: str = "") -> None:
        if tokenizer.mask_token_id is None:
            raise ModelError(
                f"the tokenizer of '{name}' has no mask token; it is not a masked language model."
            )
        check_tokens(tokenizer, embedding_rows(network), name)
        self.name = name
        self.caution = caution
        # No parameter needs gradients, so no inference context is needed anywhere.
        self.network = network.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.mask_id = int(tokenizer.mask_token_id)
        self.device = network.device
        self.dtype = network.dtype
        self.precision = str(network.dtype).removeprefix("torch.")
        before, after = frame_of(tokenizer, name)
        self.frame = Frame.of(before, after, self.mask_id, self.device)
        pad = tokenizer.pad_token_id
        self._pad_id = int(pad) if pad is not None else self.mask_id
        probe = torch.tensor([[*before, self.mask_id, self.mask_id, *after]], device=self.device)
        with silence_transformers():
            size = network(input_ids=probe).logits.shape[-1]
            check_tokens(tokenizer, size, name)
            self.head = split_head(network, probe)
            self.encoder = None if self.head is None else Encoder.of(network)
        self.packs = self.encoder is not None
        self.forbidden = forbidden_tokens(tokenizer, size).to(self.device)
        if bool(self.forbidden.all()):
            raise ModelError(
                f"every token of '{name}' is special, as if it had no tokenizer of its own: give "
                "one, a folder, a hub name or a vocab.txt: --model 'NAME(tokenizer=vocab.txt)'."
            )
        self.only_given = other_letters(self.token_strings(range(size)), self.forbidden)
        self.forbidden[list(self.only_given)] = True
        self.min_length = 1
        self.max_length = capacity(network.config, tokenizer) - probe.shape[1] + 2

    @classmethod
    def load(
        cls,
        name: str,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        tokenizer: str | None = None,
        trust_remote_code: bool = False,
        called: str | None = None,
        allow_download: bool = True,
    ) -> HuggingFaceModel:
        """Load a checkpoint; no code in pickled weights runs.

        `called` is the model's name, by default what it is loaded from. Without `allow_download`
        the hub is not asked.
        """
        from transformers import AutoModelForMaskedLM

        network, loaded = load_checkpoint(
            AutoModelForMaskedLM,
            "masked language model",
            name,
            dtype,
            tokenizer,
            trust_remote_code,
            allow_download,
        )
        return cls(network.to(device), loaded, called or name)

    def with_prefix(self, text: str) -> HuggingFaceModel:
        """Return this model reading a text before every sequence, which is not part of it.

        The text conditions every pass; chains, energies and experts do not see it.
        """
        if self.prefix:
            raise InputError(f"'{self.name}' reads a prefix already: '{self.prefix}'.")
        ids = self.encode(text)
        if not ids or bool(self.forbidden[torch.tensor(ids, device=self.device)].any()):
            raise InputError(f"the prefix '{text}' has no words, or some that '{self.name}' lacks.")
        room = self.max_length - len(ids)
        if room < self.min_length:
            raise InputError(f"the prefix '{text}' leaves no room for a sequence.")
        added = torch.tensor(ids, device=self.device)
        frame = replace(self.frame, before=torch.cat([self.frame.before, added]))
        return self.changed(prefix=text, frame=frame, max_length=room)

    def with_letters(self, letters: str) -> HuggingFaceModel:
        """Return this model of proteins proposing more letters than the 20 amino acids: "XU"."""
        ids = sorted(self.only_given)
        names = [name.lstrip(MARKS) for name in self.token_strings(ids)]
        if not names:
            raise InputError(
                f"'{self.name}' has no letters besides the 20 amino acids, or is not a model of "
                "proteins: drop extra_letters."
            )
        wanted = sorted(set(letters))
        for one in wanted:
            if one not in names:
                raise InputError(
                    f"'{one}' is not an extra letter of '{self.name}'; those are {''.join(names)}."
                )
        chosen = [number for number, name in zip(ids, names, strict=True) if name in wanted]
        forbidden = self.forbidden.clone()
        forbidden[chosen] = False
        return self.changed(
            extra_letters=self.extra_letters + "".join(wanted),
            only_given=self.only_given - set(chosen),
            forbidden=forbidden,
        )

    def hidden(self, queries: Queries) -> Float[Tensor, "masked hidden"]:
        """Run the masked sequences and select the masked positions."""
        if self.encoder is not None:
            return super().hidden(queries)
        passes = pack_masked(queries.tokens, queries.lengths, queries.masked, self.frame)
        lengths = queries.lengths + self.frame.size
        rows = list(torch.split(passes.ids, lengths.tolist()))
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self._pad_id)
        # Without padding no mask is needed, and attention is faster without one.
        within = inside(lengths, ids.shape[1])
        attention = None if bool(within.all()) else within.long()
        row, place = queries.masked.nonzero(as_tuple=True)
        at = (row, place + len(self.frame.before))
        with coarse(self.coarse_products):
            if self.head is None:
                logits: Tensor = self.network(input_ids=ids, attention_mask=attention).logits[at]
                # Sums of scores are not to be rounded to 16 bits.
                return logits.float() if logits.dtype.itemsize < 4 else logits
            states = self.network.base_model(input_ids=ids, attention_mask=attention)[0]
            return self.project(states[at])

    @property
    def bytes_per_token(self) -> int:
        """Estimate the activations of one layer, plus all logits if the head is not split."""
        config = self.network.config
        width = int(getattr(config, "hidden_size", 512))
        width *= 16  # input, 4 for attention, 4 x 2 for the feed-forward, and slack
        if self.head is None:
            width += 2 * self.vocabulary_size
        return width * self.dtype.itemsize

    def other_inputs(self) -> dict[str, Any]:
        """Return the special tokens around a text, and those that fill up a batch."""
        frame = [self.frame.before.tolist(), self.frame.after.tolist()]
        return {"frame": frame, "pad": self._pad_id}


def capacity(config: Any, tokenizer: Any) -> int:
    """Return how many tokens the model takes, special ones included."""
    limit = int(getattr(config, "max_position_embeddings", None) or 10**9)
    if getattr(config, "model_type", "") in _OFFSET_POSITIONS:
        limit -= int(getattr(config, "pad_token_id", None) or 0) + 1
    return min(limit, int(min(tokenizer.model_max_length, 10**9)))


def family_head(model: Any) -> LMHead:
    """Return the head of a network of a known family, split into its steps and the projection."""
    family = FAMILIES[model.config.model_type]
    parts: list[Any] = [attrgetter(one)(model) if isinstance(one, str) else one for one in family]
    *steps, decoder = parts
    # ESM adds a bias outside its projection.
    outside = model.lm_head.bias if model.config.model_type == "esm" else None
    bias = decoder.bias if outside is None else outside
    return LMHead(nn.Sequential(*steps), decoder.weight, bias)


def split_head(model: Any, probe: Int[Tensor, "1 length"]) -> LMHead | None:
    """Return the model's split head, or None if only its own forward is known to be right.

    The split head is first compared with the model's own logits on a short probe: third-party code
    may use a known family name for a different network.
    """
    if getattr(model.config, "model_type", "") not in FAMILIES:
        return None
    try:
        head = family_head(model)
        ours = head.logits(head.transform(model.base_model(input_ids=probe)[0][0]))
    except (AttributeError, TypeError):
        return None
    theirs = model(input_ids=probe).logits[0]
    scale = theirs.abs().max().clamp(min=1.0)
    same = ours.shape == theirs.shape and bool((ours - theirs).abs().max() <= 1e-3 * scale)
    return head if same else None
