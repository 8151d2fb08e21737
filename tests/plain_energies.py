"""The energies in plain Hugging Face code: one masked copy at a time, never a batch.

Slow and obvious on purpose: this is what the library's batches, caches and split heads must equal.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def content_places(tokenizer: Any, text: str) -> tuple[list[int], list[int]]:
    """Return a text's ids in their frame, and which of them are the text."""
    coded = tokenizer(text, return_special_tokens_mask=True)
    places = [i for i, special in enumerate(coded["special_tokens_mask"]) if not special]
    return coded["input_ids"], places


def masked_logits(
    network: Any, tokenizer: Any, ids: Sequence[int], places: Sequence[int]
) -> Tensor:
    """Mask some places of one framed text together; return the network's logits there."""
    masked = torch.tensor([ids])
    masked[0, list(places)] = tokenizer.mask_token_id
    with torch.no_grad():
        logits: Tensor = network(input_ids=masked).logits
    return logits[0, list(places)]


def site_terms(network: Any, tokenizer: Any, text: str) -> tuple[Tensor, Tensor]:
    """Return what each token adds to E_raw and to E_norm."""
    ids, places = content_places(tokenizer, text)
    raw, norm = [], []
    for place in places:
        logits = masked_logits(network, tokenizer, ids, [place])[0].double()
        raw.append(-logits[ids[place]])
        norm.append(-logits.log_softmax(0)[ids[place]])
    return torch.stack(raw), torch.stack(norm)


def causal_terms(network: Any, start: int, ids: Sequence[int]) -> Tensor:
    """Return −log p(token | start and all tokens before it), one prefix at a time."""
    terms = []
    for end, token in enumerate(ids):
        prefix = torch.tensor([[start, *ids[:end]]])
        with torch.no_grad():
            logits = network(input_ids=prefix).logits[0, -1].double()
        terms.append(-logits.log_softmax(0)[token])
    return torch.stack(terms)
