"""The LM head of each model family, split so that it runs at masked positions only.

A masked LM ends in a small transform and a projection onto the vocabulary. The projection is most
of the cost of a small model, and a masked pass needs it only at the masked positions. Families
that are not listed here run their own full forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F

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
