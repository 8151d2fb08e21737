"""Make what ships of a trained model: `python -m recipes.export FOLDER OUT`.

OUT is a Hugging Face folder with float16 weights, which `transformers` loads anywhere without
code of ours. Loaded again, they compute in float32; what rounding them cost is measured, not
assumed: `recipes.measure` runs on OUT.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

LIMIT = 24 * 2**20


def export(folder: Path, out: Path) -> int:
    """Write the float16 folder; return the size of its weights in bytes."""
    masked = AutoConfig.from_pretrained(folder).model_type != "llama"
    loader = AutoModelForMaskedLM if masked else AutoModelForCausalLM
    loader.from_pretrained(folder, dtype=torch.float16).save_pretrained(out)
    AutoTokenizer.from_pretrained(folder).save_pretrained(out)
    size = sum(file.stat().st_size for file in out.glob("*.safetensors"))
    if size > LIMIT:
        raise SystemExit(f"{size:,} bytes of weights are more than the {LIMIT:,} we ship")
    return size


def main(arguments: list[str] | None = None) -> None:
    """Export one model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args(arguments)
    print(f"{given.out}: {export(given.folder, given.out):,} bytes of weights")


if __name__ == "__main__":
    main()
