"""Sequence-level distillation: translate the training sources with the autoregressive model.

    python -m recipes.translation.distil MODEL PAIRS --seconds 120

writes PAIRS/NAME.distilled.tgt.xz for each language pair, aligned with NAME.train.src.xz. Lines
that do not fit into the time stay empty, and training skips them. A translation that is empty, or
less than half or more than twice as long as the reference, is replaced by the reference.
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from pathlib import Path

import torch

from maskov.models.autoregressive import AutoregressiveTranslator
from maskov.models.network import load_translation
from recipes.translation.corpus import MOST_TOKENS, read_lines, tokens_of
from recipes.translation.train import PAIRS

_TOKENS = 131_072  # source tokens per batch, between two checks of the clock


def load_twin(folder: Path) -> AutoregressiveTranslator:
    """Load an autoregressive model, on a GPU in bfloat16; scores are always float32."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    return AutoregressiveTranslator(*load_translation(folder, device, dtype), folder.name)


def translate_lines(
    twin: AutoregressiveTranslator,
    lines: list[str],
    beam: int = 1,
    until: float = float("inf"),
    longest: int = MOST_TOKENS,
    length_power: float = 1.0,
) -> list[str | None]:
    """Translate lines; None for those that are too long or out of time."""
    translations: list[str | None] = [None] * len(lines)
    ids = [[*tokens, twin.special.end] for tokens in tokens_of(lines, twin.tokenizer)]
    most = min(longest, twin.network.shape.longest)
    order = sorted(
        (n for n in range(len(ids)) if 1 < len(ids[n]) <= most), key=lambda n: len(ids[n])
    )
    plan, begin = [], 0
    while begin < len(order):
        count = max(1, _TOKENS // beam // len(ids[order[begin]]))
        count = max(1, _TOKENS // beam // len(ids[order[min(begin + count, len(order)) - 1]]))
        plan.append(order[begin : begin + count])
        begin += count
    generator = torch.Generator().manual_seed(0)
    # In random order, so that lines out of time are of every length.
    for index in torch.randperm(len(plan), generator=generator).tolist():
        if time.monotonic() > until:
            break
        rows = plan[index]
        written = twin.translate([lines[row] for row in rows], beam, length_power)
        decoded = twin.tokenizer.backend_tokenizer.decode_batch(written, skip_special_tokens=True)
        for row, text in zip(rows, decoded, strict=True):
            translations[row] = text.strip()
    return translations


def fits(text: str, reference: str) -> bool:
    """Whether a translation is not empty and about as long as the reference."""
    return bool(text) and 0.5 <= (len(text) + 10) / (len(reference) + 10) <= 2.0


def main(arguments: list[str] | None = None) -> None:
    """Distil."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("twin", type=Path)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--seconds", type=float, default=3600.0, help="for all languages together")
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--most", type=int, help="maximum pairs of each language")
    given = parser.parse_args(arguments)
    twin = load_twin(given.twin)
    begun = time.monotonic()
    # The small pair first, so that it is always finished.
    for name in reversed(PAIRS):
        sources = read_lines(given.pairs / f"{name}.train.src.xz")[: given.most]
        references = read_lines(given.pairs / f"{name}.train.tgt.xz")[: given.most]
        since, until = time.monotonic(), begun + given.seconds
        translations = translate_lines(twin, sources, given.beam, until)
        spent = time.monotonic() - since
        kept = [
            "" if text is None else text if fits(text, reference) else reference
            for text, reference in zip(translations, references, strict=True)
        ]
        content = lzma.compress(("\n".join(kept) + "\n").encode(), preset=1)
        (given.pairs / f"{name}.distilled.tgt.xz").write_bytes(content)
        counts = {
            "pairs": len(kept),
            "translated": (translated := sum(text is not None for text in translations)),
            "kept": sum(
                text is not None and fits(text, reference)
                for text, reference in zip(translations, references, strict=True)
            ),
            "beam": given.beam,
            "seconds": round(time.monotonic() - begun, 1),
        }
        (given.pairs / f"{name}.distilled.json").write_text(json.dumps(counts))
        print(name, counts, f"{translated / spent:,.0f} sentences/s", flush=True)


if __name__ == "__main__":
    main()
