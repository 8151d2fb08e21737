"""Hugging Face masked LMs, from a local folder or by hub name.

A masked LM ends in a small transform and a projection onto the vocabulary. The projection is most
of the cost of a small model, and a masked pass needs it only at the masked positions. Families
whose head is not listed here run their own full forward pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from maskov.encoders import Encoder
from maskov.errors import InputError, ModelError
from maskov.models.base import Queries, coarse
from maskov.models.checkpoint import fingerprint, forbidden_ids, load_checkpoint
from maskov.models.packed import Frame, PackedModel
from maskov.models.tokens import (
    MARKS,
    check_tokens,
    embedding_rows,
    forbidden_tokens,
    frame_of,
    other_letters,
    silence_transformers,
)
from maskov.types import Float, Int, Tensor


@dataclass(frozen=True)
class LMHead:
    """A transform of the encoder's output and the projection onto the vocabulary."""

    transform: Callable[[Tensor], Tensor]
    weight: Float[Tensor, "vocabulary hidden"]
    bias: Float[Tensor, " vocabulary"] | None

    def logits(self, hidden: Float[Tensor, "masked hidden"]) -> Float[Tensor, "masked vocabulary"]:
        """Score the full vocabulary."""
        return F.linear(hidden, self.weight, self.bias)

    def logit_of(
        self, hidden: Float[Tensor, "masked hidden"], tokens: Int[Tensor, " masked"]
    ) -> Float[Tensor, " masked"]:
        """Score one token per row, with one row of the projection."""
        score = (hidden * self.weight[tokens]).sum(-1)
        return score if self.bias is None else score + self.bias[tokens]


def _projection(transform: Callable[[Tensor], Tensor], decoder: Any, bias: Any = None) -> LMHead:
    return LMHead(transform, decoder.weight, decoder.bias if bias is None else bias)


def _bert(model: Any) -> LMHead:
    return _projection(model.cls.predictions.transform, model.cls.predictions.decoder)


def _distilbert(model: Any) -> LMHead:
    def transform(x: Tensor) -> Tensor:
        out: Tensor = model.vocab_layer_norm(model.activation(model.vocab_transform(x)))
        return out

    return _projection(transform, model.vocab_projector)


def _roberta(model: Any) -> LMHead:
    head = model.lm_head

    def transform(x: Tensor) -> Tensor:
        out: Tensor = head.layer_norm(F.gelu(head.dense(x)))
        return out

    # ESM adds the bias outside its projection, RoBERTa inside; both store it here.
    return _projection(transform, head.decoder, head.bias)


def _albert(model: Any) -> LMHead:
    head = model.predictions

    def transform(x: Tensor) -> Tensor:
        out: Tensor = head.LayerNorm(head.activation(head.dense(x)))
        return out

    return _projection(transform, head.decoder)


def _electra(model: Any) -> LMHead:
    return _projection(model.generator_predictions, model.generator_lm_head)


def _modernbert(model: Any) -> LMHead:
    return _projection(model.head, model.decoder)


FAMILIES: dict[str, Callable[[Any], LMHead]] = {
    "bert": _bert,
    "distilbert": _distilbert,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
    "camembert": _roberta,
    "esm": _roberta,
    "albert": _albert,
    "electra": _electra,
    "modernbert": _modernbert,
}


def split_head(model: Any, probe: Int[Tensor, "1 length"]) -> LMHead | None:
    """Return the model's split head, or None if only its own forward is known to be right.

    The split head is first compared with the model's own logits on a short probe: third-party code
    may use a known family name for a different network.
    """
    family = FAMILIES.get(getattr(model.config, "model_type", ""))
    if family is None:
        return None
    try:
        head = family(model)
        ours = head.logits(head.transform(model.base_model(input_ids=probe)[0][0]))
    except (AttributeError, TypeError):
        return None
    theirs = model(input_ids=probe).logits[0]
    scale = theirs.abs().max().clamp(min=1.0)
    same = ours.shape == theirs.shape and bool((ours - theirs).abs().max() <= 1e-3 * scale)
    return head if same else None


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
        self._before, self._after = frame_of(tokenizer, name)
        pad = tokenizer.pad_token_id
        self._pad_id = int(pad) if pad is not None else self.mask_id
        probe = torch.tensor(
            [[*self._before, self.mask_id, self.mask_id, *self._after]], device=self.device
        )
        with silence_transformers():
            size = network(input_ids=probe).logits.shape[-1]
            check_tokens(tokenizer, size, name)
            self._head = split_head(network, probe)
            self.encoder = None if self._head is None else Encoder.of(network)
        self.packs = self.encoder is not None
        self.frame = Frame.of(self._before, self._after, self.mask_id, self.device)
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
        changed = copy.copy(self)
        changed.prefix = text
        if isinstance(self.exact, HuggingFaceModel):
            changed.exact = self.exact.with_prefix(text)
        changed._before = [*self._before, *ids]
        changed.frame = Frame.of(changed._before, self._after, self.mask_id, self.device)
        changed.max_length = self.max_length - len(ids)
        if changed.max_length < changed.min_length:
            raise InputError(f"the prefix '{text}' leaves no room for a sequence.")
        return changed

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
        changed = copy.copy(self)
        changed.extra_letters = self.extra_letters + "".join(wanted)
        changed.only_given = self.only_given - set(chosen)
        changed.forbidden = self.forbidden.clone()
        changed.forbidden[chosen] = False
        if isinstance(self.exact, HuggingFaceModel):
            changed.exact = self.exact.with_letters(letters)
        return changed

    def hidden(self, queries: Queries) -> Float[Tensor, "masked hidden"]:
        """Run the masked sequences and select the masked positions."""
        # In lower precision all passes must be those of one network. In full precision on a CPU the
        # network's own forward is as fast.
        if self.encoder is not None and (self.exact is not None or self.device.type == "cuda"):
            return self.hidden_packed(queries)
        ids, attention = self._framed(queries)
        offset = len(self._before)
        row, place = queries.masked.nonzero(as_tuple=True)
        with coarse(self.coarse_products):
            if self._head is None:
                logits: Tensor = self.network(input_ids=ids, attention_mask=attention).logits
                return _at_least_single(logits[row, place + offset])
            states = self.network.base_model(input_ids=ids, attention_mask=attention)[0]
            masked = states[row, place + offset].to(self._head.weight.dtype)
            return self._head.transform(masked)

    def project(self, states: Float[Tensor, "masked width"]) -> Float[Tensor, "masked hidden"]:
        """Apply the head up to its projection."""
        assert self._head is not None
        return self._head.transform(states.to(self._head.weight.dtype))

    def trained_logits(
        self, hidden: Float[Tensor, "masked hidden"]
    ) -> Float[Tensor, "masked vocabulary"]:
        """Apply the projection, unless the vectors are logits already."""
        if self._head is None:
            return hidden
        with coarse(self.coarse_products):
            return self._head.logits(hidden)

    def trained_logit_of(
        self, hidden: Float[Tensor, "masked hidden"], tokens: Int[Tensor, " masked"]
    ) -> Float[Tensor, " masked"]:
        """Apply one row of the projection."""
        if self._head is None:
            return hidden.gather(1, tokens[:, None]).squeeze(1)
        return self._head.logit_of(hidden, tokens)

    def in_precision(self, dtype: torch.dtype, coarse_products: bool = False) -> HuggingFaceModel:
        """Return this model with the passes of its encoder in another precision.

        The head keeps its precision: it runs at masked positions only, and energies depend on it
        directly. If the head cannot be split, the whole network is converted.
        """
        changed = copy.copy(self)
        changed.exact = self
        if dtype != self.dtype and self.encoder is not None:
            changed.encoder = self.encoder.to(dtype)
        elif dtype != self.dtype:
            changed.network = copy.deepcopy(self.network)
            (changed.network if self._head is None else changed.network.base_model).to(dtype)
        changed.dtype = dtype
        changed.precision = "tf32" if coarse_products else str(dtype).removeprefix("torch.")
        changed.coarse_products = coarse_products or dtype.itemsize < 4
        return changed

    @property
    def hidden_width(self) -> int:
        """Width of the vector before the projection, or of the logits if the head is not split."""
        return self.vocabulary_size if self._head is None else self._head.weight.shape[1]

    @property
    def head_at_masked_positions(self) -> bool:
        """Whether the head is split (otherwise the model's full forward pass runs)."""
        return self._head is not None

    @property
    def bytes_per_token(self) -> int:
        """Estimate the activations of one layer, plus all logits if the head is not split."""
        config = self.network.config
        width = int(getattr(config, "hidden_size", 512))
        width *= 16  # input, 4 for attention, 4 x 2 for the feed-forward, and slack
        if self._head is None:
            width += 2 * self.vocabulary_size
        return width * self.dtype.itemsize

    def _framed(self, queries: Queries) -> tuple[Tensor, Tensor | None]:
        """Return the masked queries with the model's special tokens, and an attention mask."""
        count, width = queries.tokens.shape
        content = queries.tokens.masked_fill(queries.masked, self.mask_id)
        before = torch.tensor(self._before, dtype=torch.long, device=self.device)
        after = torch.tensor(self._after, dtype=torch.long, device=self.device)
        if bool((queries.lengths == width).all()):
            # Without padding no mask is needed, and attention is faster without one.
            ids = torch.cat([before.expand(count, -1), content, after.expand(count, -1)], dim=1)
            return ids, None
        place = torch.arange(len(before) + width + len(after), device=self.device)[None]
        end = (len(before) + queries.lengths)[:, None]
        ids = torch.full((count, place.shape[1]), self._pad_id, device=self.device)
        ids[:, : len(before)] = before
        ids[:, len(before) : len(before) + width] = content
        ids = ids.masked_fill(place >= end, self._pad_id)
        for offset, token in enumerate(self._after):
            ids = torch.where(place == end + offset, token, ids)
        return ids, (place < end + len(after)).long()

    def fingerprint(self) -> str:
        """Hash the full-precision weights, how texts become inputs and what is removed."""
        if isinstance(self.exact, HuggingFaceModel):
            return self.exact.fingerprint()
        return fingerprint(
            self.network,
            self.tokenizer,
            frame=[self._before, self._after],
            mask=self.mask_id,
            pad=self._pad_id,
            forbidden=forbidden_ids(self.forbidden),
            **self._identity(),
        )


def capacity(config: Any, tokenizer: Any) -> int:
    """Return how many tokens the model takes, special ones included."""
    limit = int(getattr(config, "max_position_embeddings", None) or 10**9)
    if getattr(config, "model_type", "") in _OFFSET_POSITIONS:
        limit -= int(getattr(config, "pad_token_id", None) or 0) + 1
    return min(limit, int(min(tokenizer.model_max_length, 10**9)))


def _at_least_single(scores: Tensor) -> Tensor:
    """Return scores in float32 or better, so that sums of them are not rounded to 16 bits."""
    return scores.float() if scores.dtype.itemsize < 4 else scores
