"""Write the folder of a translation model, which `maskov.models.network` reads."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from maskov.models.checkpoint import ARCHITECTURE
from maskov.models.network import TranslationNetwork


def save_translation(
    folder: Path, network: TranslationNetwork, tokenizer: Any, dtype: torch.dtype
) -> None:
    """Write a network and its tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.to(dtype).contiguous() for name, value in network.state_dict().items()}
    save_file({name: value.cpu() for name, value in weights.items()}, folder / "model.safetensors")
    config = {"architecture": ARCHITECTURE, **asdict(network.shape)}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tokenizer.save_pretrained(folder)
