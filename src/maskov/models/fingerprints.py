"""Fingerprints of models: a hash of everything that decides their answers.

Those are the weights, what uses them (the shape), and how texts become inputs: the tokenizer whole,
with its template of special tokens, and the tokens that a model masks with and forbids.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from maskov.models.conditional.bpe import BytePairTokenizer
from maskov.models.conditional.network import TranslationNetwork
from maskov.types import Bool, Tensor

# Configuration entries that do not affect the network's shape.
_NOT_SHAPE = {"_name_or_path", "transformers_version", "architectures", "dtype"}
# What the last call of a tokenizer left in it; every call sets it again.
_LEFT_BY_CALLS = {"truncation", "padding"}


def fingerprint(network: Any, tokenizer: Any, **inputs: Any) -> str:
    """Hash a network, its tokenizer and what else decides its inputs."""
    digest = hashlib.sha256(weights_hash(network, tokenizer).encode())
    for part in (tokenizer_data(tokenizer), inputs):
        digest.update(json.dumps(part, sort_keys=True).encode())
    return digest.hexdigest()


def weights_hash(network: Any, tokenizer: Any) -> str:
    """Hash weights, shape and vocabulary alone."""
    digest = hashlib.sha256()
    for key, value in sorted(network.state_dict().items()):
        digest.update(key.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    digest.update(json.dumps(tokenizer.get_vocab(), sort_keys=True).encode())
    digest.update(json.dumps(_shape(network), sort_keys=True, default=str).encode())
    return digest.hexdigest()


def model_weights_hash(model: Any) -> str:
    """Hash the full-precision weights, shape and vocabulary of a loaded model."""
    exact = getattr(model, "exact", None) or model
    return weights_hash(exact.network, exact.tokenizer)


def _shape(network: Any) -> dict[str, Any]:
    """Return what uses the weights: equal ones may have another activation or head count."""
    if isinstance(network, TranslationNetwork):
        return asdict(network.shape)
    entries = network.config.to_diff_dict().items()
    return {key: value for key, value in entries if key not in _NOT_SHAPE and value is not None}


def tokenizer_data(tokenizer: Any) -> dict[str, Any]:
    """Return all that decides what a tokenizer makes of a text and of tokens, in plain data."""
    if isinstance(tokenizer, BytePairTokenizer):
        return {"words": tokenizer_data(tokenizer.words), "merges": tokenizer.merges.lines()}
    data: dict[str, Any] = {
        "special": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        "special_ids": sorted(tokenizer.all_special_ids),
        "clean_up": bool(getattr(tokenizer, "clean_up_tokenization_spaces", False)),
    }
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        whole = json.loads(backend.to_str())
        return data | {key: whole[key] for key in whole.keys() - _LEFT_BY_CALLS}
    # Written in Python: its class, its options and the files of its vocabulary.
    added = {index: repr(token) for index, token in tokenizer.added_tokens_decoder.items()}
    options = {
        key: value
        for key, value in tokenizer.init_kwargs.items()
        if isinstance(value, bool | int | float) and key != "model_max_length"
    }
    return data | {
        "class": type(tokenizer).__qualname__,
        "added": added,
        "options": options,
        "files": _files(tokenizer),
    }


def _files(tokenizer: Any) -> dict[str, str]:
    """Return a hash of each file that a tokenizer saves its vocabulary to."""
    with TemporaryDirectory() as folder:
        with suppress(NotImplementedError):  # one without files has its vocabulary alone
            tokenizer.save_vocabulary(folder, None)
        return {
            file.name: hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(Path(folder).iterdir())
        }


def forbidden_ids(forbidden: Bool[Tensor, " vocabulary"]) -> list[int]:
    """Return which tokens are forbidden, and how many rows there are."""
    return [len(forbidden), *forbidden.nonzero().flatten().tolist()]
