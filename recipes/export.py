"""Export a trained model for shipping: `python -m recipes.export FOLDER OUT`.

OUT is a Hugging Face folder with float16 weights, which `transformers` loads without our code.
The model computes in float32; measure the effect of rounding with `recipes.measure` on OUT.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

LIMIT = 24 * 2**20


_CARD = """# {name}
A {what} of {parameters:,} parameters in float16, made by `recipes.export`.

- Network: {network}
- Training: {facts}
- Quality: not measured yet; `python -m recipes.measure {kind} FOLDER HELD_OUT`
- Licence: that of the training text
"""


def export(folder: Path, out: Path, facts: str = "not recorded") -> int:
    """Write the float16 folder with a card; return the size of its weights in bytes.

    `facts` describes the training. Quality and licence must be added to the card and `about.json`
    by hand before shipping.
    """
    masked = AutoConfig.from_pretrained(folder).model_type != "llama"
    loader = AutoModelForMaskedLM if masked else AutoModelForCausalLM
    network = loader.from_pretrained(folder, dtype=torch.float16)
    network.save_pretrained(out)
    AutoTokenizer.from_pretrained(folder).save_pretrained(out)
    size = sum(file.stat().st_size for file in out.glob("*.safetensors"))
    if size > LIMIT:
        raise SystemExit(f"{size:,} bytes of weights are more than the {LIMIT:,} we ship")
    config, kind = network.config, "masked" if masked else "causal"
    about = {
        "name": out.name,
        "kind": kind,
        "summary": f"{config.model_type}, {config.num_hidden_layers} layers of "
        f"{config.hidden_size}, {config.vocab_size} tokens",
        "parameters": sum(weight.numel() for weight in network.parameters()),
        "bytes": size,
        "training_data": facts,
        "licence": "that of the training text",
        "quality": {},
    }
    (out / "about.json").write_text(json.dumps(about) + "\n")
    card = _CARD.format(**about, what=f"{kind} LM", network=about["summary"], facts=facts)
    (out / "README.md").write_text(card)
    return size


def main(arguments: list[str] | None = None) -> None:
    """Export one model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--facts", default="not recorded", help="how it was trained, for the card")
    given = parser.parse_args(arguments)
    print(f"{given.out}: {export(given.folder, given.out, given.facts):,} bytes of weights")


if __name__ == "__main__":
    main()
