"""Hugging Face masked LMs, from a local folder or by hub name.

Families that `encoders/families.py` knows are read from their files and run in our own encoder:
transformers is not imported. All others run in their own network. A masked LM ends in a projection
onto the vocabulary, which is most of the cost of a small model and is needed at masked positions
only; families whose head is not known run their whole forward pass.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import nn

from maskov.encoders import Encoder, LMHead
from maskov.encoders.families import UNSUPPORTED, Weights, describe_head
from maskov.errors import InputError, ModelError
from maskov.models.base import Queries, coarse
from maskov.models.checkpoint import MASKED, MaskedCheckpoint, load_checkpoint
from maskov.models.packed import Frame, PackedModel, pack_masked
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
        self.name = name
        self.caution = caution
        self.checkpoint = network
        self.tokenizer = tokenizer
        self.mask_id = int(tokenizer.mask_token_id)
        self.device = network.device
        self.dtype = network.dtype
        self.precision = str(network.dtype).removeprefix("torch.")
        before, after = frame_of(tokenizer, name)
        self.frame = Frame.of(before, after, self.mask_id, self.device)
        pad = tokenizer.pad_token_id
        self._pad_id = int(pad) if pad is not None else self.mask_id
        if isinstance(network, MaskedCheckpoint):
            self.encoder, self.head = network.encoder, network.head
            size = len(self.head.weight)
            check_tokens(tokenizer, size, name)
        else:
            size = self._use_network(network, [*before, self.mask_id, self.mask_id, *after])
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
        self.max_length = capacity(network.config, tokenizer) - self.frame.size

    def _use_network(self, network: Any, probe: list[int]) -> int:
        """Use a Hugging Face network, and our encoder if both agree; return the vocabulary size."""
        check_tokens(self.tokenizer, embedding_rows(network), self.name)
        # No parameter needs gradients, so no inference context is needed anywhere.
        self.network = network.eval().requires_grad_(False)
        ids = torch.tensor([probe], device=self.device)
        with silence_transformers():
            size = int(network(input_ids=ids).logits.shape[-1])
            check_tokens(self.tokenizer, size, self.name)
            self.head = split_head(network, ids)
            self.encoder = None if self.head is None else Encoder.of(network)
        return size

    @cached_property
    def network(self) -> Any:
        """The Hugging Face network; if our encoder was read without it, it is built when used."""
        return self.checkpoint.network()

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
        network, loaded = load_checkpoint(
            MASKED,
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
        config = self.checkpoint.config
        width = int(setting(config, "hidden_size") or setting(config, "dim") or 512)
        width *= 16  # input, 4 for attention, 4 x 2 for the feed-forward, and slack
        if self.head is None:
            width += 2 * self.vocabulary_size
        return width * self.dtype.itemsize

    def other_inputs(self) -> dict[str, Any]:
        """Return the special tokens around a text, and those that fill up a batch."""
        frame = [self.frame.before.tolist(), self.frame.after.tolist()]
        return {"frame": frame, "pad": self._pad_id}


def setting(config: Any, name: str) -> Any:
    """Return a setting of a network: of its config.json, or of the object for it; None if none."""
    return config.get(name) if isinstance(config, dict) else getattr(config, name, None)


def capacity(config: Any, tokenizer: Any) -> int:
    """Return how many tokens the model takes, special ones included."""
    limit = int(setting(config, "max_position_embeddings") or 10**9)
    if setting(config, "model_type") in _OFFSET_POSITIONS:
        limit -= int(setting(config, "pad_token_id") or 0) + 1
    return min(limit, int(min(tokenizer.model_max_length, 10**9)))


def family_head(network: Any) -> LMHead:
    """Return the head of a network of a known family, with its own parameters."""
    weights = dict(network.named_parameters(remove_duplicate=False))
    return describe_head(network.config.to_dict(), Weights(weights))


def split_head(model: Any, probe: Int[Tensor, "1 length"]) -> LMHead | None:
    """Return the model's split head, or None if only its own forward is known to be right.

    The split head is first compared with the model's own logits on a short probe: third-party code
    may use a known family name for a different network.
    """
    try:
        head = family_head(model)
        ours = head.logits(head.transform(model.base_model(input_ids=probe)[0][0]))
    except UNSUPPORTED:
        return None
    theirs = model(input_ids=probe).logits[0]
    scale = theirs.abs().max().clamp(min=1.0)
    same = ours.shape == theirs.shape and bool((ours - theirs).abs().max() <= 1e-3 * scale)
    return head if same else None
