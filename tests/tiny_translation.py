"""Tiny translation models with random weights, small enough to enumerate what they say.

Every parameter is random, biases and scales of norms included, and large: what stands at a place
depends strongly on the source and on all other places.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from recipes.translation.folders import save_translation
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from maskov.models.autoregressive import AutoregressiveTranslator
from maskov.models.conditional import ConditionalModel
from maskov.models.network import TranslationNetwork, TranslationShape

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "<mask>", "<length>")
WORDS = ("red", "green", "blue", "white")
# Positions of the source, its end included, and of the target.
LONGEST = 10
# Of mixed lengths, none like another.
SOURCES = ["red", "blue green white", "white white red blue green red", "green blue"]


def tokenizer(words: Sequence[str] = WORDS) -> Any:
    """Return a tokenizer of whole words, with the special tokens of a translation model."""
    every = {word: index for index, word in enumerate((*SPECIAL, *words))}
    backend = Tokenizer(models.WordLevel(every, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    pad, begin, end, unknown, mask, length = SPECIAL
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=pad,
        bos_token=begin,
        eos_token=end,
        unk_token=unknown,
        mask_token=mask,
        extra_special_tokens=[length],
    )


def network(
    seed: int = 0, dtype: torch.dtype = torch.float64, **changes: Any
) -> TranslationNetwork:
    """Return a random network of two layers a side."""
    vocabulary = len(SPECIAL) + len(WORDS)
    shape = replace(TranslationShape(vocabulary, 16, 2, 32, 2, 2, LONGEST), **changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        found = TranslationNetwork(shape).double()
        for name, value in found.named_parameters():
            # Places and what is read from the source must be felt among all else.
            large = "attention." in name or ".cross." in name or "_positions" in name
            scale = 0.3 if name.startswith("lengths") else 1.0 if large else 0.5
            middle = float("norm" in name and name.endswith("weight"))
            value.data = middle + (0.3 if "norm" in name else scale) * torch.randn_like(value)
        # The shortest translations would test little, and are not the likeliest.
        found.lengths.weight.data[1:3] *= 0.1
        if shape.causal:
            # Nor does writing end before it has begun.
            found.words.weight.data[SPECIAL.index("</s>")] *= 0.3
    return found.to(dtype).eval().requires_grad_(False)


def conditional(seed: int = 0, dtype: torch.dtype = torch.float64, **changes: Any) -> Any:
    """Return a model that translates, in float64 so that equality is sharp."""
    return ConditionalModel(network(seed, dtype, **changes), tokenizer(), "tiny-translation")


def twin(seed: int = 1, dtype: torch.dtype = torch.float32) -> AutoregressiveTranslator:
    """Return a model that writes from left to right."""
    return AutoregressiveTranslator(network(seed, dtype, causal=True), tokenizer(), "tiny-twin")


def save(folder: Path, seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any) -> Path:
    """Write a model, or with `causal` a twin, as users have it; return the folder."""
    save_translation(folder, network(seed, **changes), tokenizer(), dtype)
    return folder


def shelf(root: Path, **pairs: Sequence[str]) -> Path:
    """Fill a folder with a model and its twin, described as those of the repository are."""
    for name, kind in (("tiny-translation", "translation"), ("tiny-twin", "autoregressive")):
        folder = save(root / name, causal=kind == "autoregressive")
        about = {
            "name": name,
            "kind": kind,
            "summary": "random weights",
            "parameters": 1,
            "bytes": 1,
            "training_data": "nothing",
            "licence": "CC0",
            "quality": {},
            "pairs": list(pairs.get(kind, ("de-en", "ro-en"))),
        }
        (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
    return root


def plain_logits(
    model: ConditionalModel, source: str, target: Sequence[int], masked: Sequence[int]
) -> torch.Tensor:
    """Return the scores at each place of one target, some of them masked: no batch, no cache."""
    net, end = model.network, model.tokenizer.eos_token_id
    words = [model.tokenizer.get_vocab()[word] for word in source.split()]
    ids = torch.tensor([[*words, end]])
    line = [model.mask_id if place in masked else token for place, token in enumerate(target)]
    if net.shape.target_end:
        line.append(end)
    memory = net.read(ids, torch.ones_like(ids, dtype=torch.bool))[0][:, 1:]
    states = net.decode(torch.tensor([line]), net.cross_key_values(memory), None)
    return torch.nn.functional.linear(states[0], net.words.weight)[: len(target)]


def plain_energies(
    model: ConditionalModel, source: str, target: Sequence[int]
) -> tuple[float, float]:
    """Return E_raw and E_norm of a target, one masked place after the other."""
    raw = norm = 0.0
    for place, token in enumerate(target):
        scores = plain_logits(model, source, target, [place])[place].double()
        raw -= float(scores[token])
        norm -= float(scores.log_softmax(0)[token])
    return raw, norm
