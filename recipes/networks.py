"""The networks we train, by name.

Shipped ones have at most 24 MiB in float16 at their usual vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

POSITIONS = 128


@dataclass(frozen=True)
class Shape:
    """The architecture and size of a network."""

    kind: str
    width: int
    layers: int
    feed_forward: int

    @property
    def heads(self) -> int:
        """Number of attention heads, 64 wide."""
        return max(1, self.width // 64)


SHAPES = {
    # As in the paper: post-norm, learned positions, GELU.
    "bert-384x5": Shape("bert", 384, 5, 1536),
    # Rotary positions, GeGLU, pre-norm.
    "modern-384x5": Shape("modernbert", 384, 5, 1088),
    "modern-320x8": Shape("modernbert", 320, 8, 768),
    "modern-512x3": Shape("modernbert", 512, 3, 960),
    "modern-320x6": Shape("modernbert", 320, 6, 768),  # for 16 k tokens
    # The judge: the same, but causal.
    "llama-384x5": Shape("llama", 384, 5, 1088),
    # For tests on a CPU.
    "modern-64x2": Shape("modernbert", 64, 2, 128),
    "llama-64x2": Shape("llama", 64, 2, 128),
}

# As large as BERT-base, to see how results change with size; too large to ship.
LARGE = {
    "bert-768x12": Shape("bert", 768, 12, 3072),
    "modern-768x12": Shape("modernbert", 768, 12, 2048),
}


def build(shape: Shape, tokenizer: Any) -> Any:
    """Return an untrained network over the tokenizer's vocabulary."""
    common = {
        "vocab_size": len(tokenizer),
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.feed_forward,
        "max_position_embeddings": POSITIONS,
        "pad_token_id": tokenizer.pad_token_id,
        "attention_dropout": 0.0,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
    }
    if shape.kind == "bert":
        return _bert(common)
    if shape.kind == "modernbert":
        return _modernbert(common, tokenizer)
    if shape.kind == "llama":
        return _llama(common)
    raise ValueError(f"unknown kind of network '{shape.kind}'")


def _bert(common: dict[str, Any]) -> Any:
    from transformers import BertConfig, BertForMaskedLM

    common = {key: common[key] for key in common if key != "attention_dropout"}
    return BertForMaskedLM(
        BertConfig(**common, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    )


def _modernbert(common: dict[str, Any], tokenizer: Any) -> Any:
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    return ModernBertForMaskedLM(
        ModernBertConfig(
            **common,
            cls_token_id=tokenizer.cls_token_id,
            sep_token_id=tokenizer.sep_token_id,
            # Sentences are shorter than any window: every layer has global attention.
            global_attn_every_n_layers=1,
            embedding_dropout=0.0,
            mlp_dropout=0.0,
        )
    )


def _llama(common: dict[str, Any]) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**common, tie_word_embeddings=True))
