"""A small causal LM of the domain, which judges fluency and takes no part in any energy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from recipes.labelled import Batch, LabelledCorpus, Lines, hold_out
from recipes.networks import POSITIONS
from recipes.trainer import BestAverage, Trainer, Training
from torch import Tensor


def build(tokenizer: Any, width: int, layers: int, dropout: float = 0.1) -> Any:
    """Return an untrained GPT-2 over the tokenizer's vocabulary."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=POSITIONS,
            n_embd=width,
            n_layer=layers,
            n_head=max(1, width // 64),
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
            bos_token_id=tokenizer.cls_token_id,
            eos_token_id=tokenizer.sep_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def train_judge(
    lines: Lines,
    tokenizer: Any,
    out: Path,
    device: torch.device,
    seconds: float,
    epochs: float,
    width: int = 256,
    layers: int = 4,
) -> dict[str, Any]:
    """Train on the lines, keep the averaged weights with the lowest held-out loss, and save."""
    torch.manual_seed(0)
    kept, held = hold_out(lines, 1000, 0)
    corpus = LabelledCorpus.of(kept, tokenizer, device)
    measured = LabelledCorpus.of(held, tokenizer, device)
    network = build(tokenizer, width, layers)

    def loss(batch: Batch, generator: Any) -> Tensor:
        logits = network(input_ids=batch.ids[:, :-1]).logits
        return F.cross_entropy(logits.float().flatten(0, 1), batch.ids[:, 1:].flatten())

    recipe = Training(rate=1e-3, batch_tokens=8192, weight_decay=0.1, warm_up=0.05, average=0.995)
    trainer = Trainer(network, loss, recipe, device)

    def held_out() -> float:
        total, tokens = 0.0, 0
        for batch in measured.epoch(32_768):
            count = batch.ids[:, 1:].numel()
            total += count * float(loss(batch, None))
            tokens += count
        return total / tokens

    best = BestAverage(trainer, held_out)
    batches = corpus.batches(recipe.batch_tokens, torch.Generator().manual_seed(0))
    steps = max(1, round(epochs * corpus.steps(recipe.batch_tokens)))
    trainer.run(batches, seconds, steps, check=best)
    best.use()
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        setattr(network.config, name, 0.0)
    network.to(torch.float16).save_pretrained(out)
    tokenizer.save_pretrained(out)
    return {
        "parameters": sum(weight.numel() for weight in network.parameters()),
        "perplexity": math.exp(best.value),
        "steps": trainer.step,
        "best_step": best.step,
        "seconds": trainer.seconds,
        "history": best.history,
    }
