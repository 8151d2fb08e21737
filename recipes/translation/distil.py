"""Let the twin translate the training sources: its translations are easier to learn than people's.

    python -m recipes.translation.distil TWIN PAIRS --seconds 120

writes PAIRS/NAME.distilled.tgt.xz for each pair of languages, line by line as NAME.train.src.xz.
What does not fit into the time is left empty, so that training passes over it. What the twin
fails at keeps its reference: an empty translation, or one more than twice as long or less than half
as long as the reference.
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from pathlib import Path
from typing import Any

import torch

from maskov.translation.checkpoint import load
from maskov.translation.network import Network
from maskov.translation.search import Marks, search
from recipes.translation.corpus import MOST_TOKENS, read_lines, tokens_of
from recipes.translation.train import PAIRS

_TOKENS = 131_072  # of sources searched at once


def marks_of(tokenizer: Any, size: int, device: torch.device) -> Marks:
    """Return the tokens that steer the search; no special one is ever written."""
    forbidden = torch.zeros(size, dtype=torch.bool)
    forbidden[list(tokenizer.all_special_ids)] = True
    return Marks(
        tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, forbidden.to(device)
    )


def translate(
    network: Network,
    tokenizer: Any,
    lines: list[str],
    device: torch.device,
    beam: int = 1,
    until: float = float("inf"),
    longest: int = MOST_TOKENS,
    length_power: float = 1.0,
) -> list[str | None]:
    """Translate lines, similar lengths together; nothing for those too long or out of time."""
    found: list[str | None] = [None] * len(lines)
    marks = marks_of(tokenizer, network.shape.vocabulary, device)
    ids = [[*tokens, marks.end] for tokens in tokens_of(lines, tokenizer)]
    order = sorted(
        (n for n in range(len(ids)) if len(ids[n]) <= longest), key=lambda n: len(ids[n])
    )
    plan, begin = [], 0
    while begin < len(order):
        count = max(1, _TOKENS // beam // len(ids[order[begin]]))
        count = max(1, _TOKENS // beam // len(ids[order[min(begin + count, len(order)) - 1]]))
        plan.append(order[begin : begin + count])
        begin += count
    generator = torch.Generator().manual_seed(0)
    # In random order, so that what time does not reach is of every length.
    for index in torch.randperm(len(plan), generator=generator).tolist():
        if time.monotonic() > until:
            break
        rows = plan[index]
        # With the position that the network puts in front, a multiple of 8.
        width = max(len(ids[row]) for row in rows)
        width = min(-(-(width + 1) // 8) * 8 - 1, network.shape.longest)
        source = torch.tensor([ids[row] + [marks.pad] * (width - len(ids[row])) for row in rows])
        source = source.to(device)
        texts, _ = search(network, source, source != marks.pad, marks, beam, length_power)
        decoded = tokenizer._tokenizer.decode_batch(texts, skip_special_tokens=True)
        for row, text in zip(rows, decoded, strict=True):
            found[row] = text.strip()
    return found


def search_type(device: torch.device) -> torch.dtype:
    """Return the type of the weights to search with; scores are in float32 in any case."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def fits(text: str, reference: str) -> bool:
    """Whether a translation is there and about as long as the reference."""
    return bool(text) and 0.5 <= (len(text) + 10) / (len(reference) + 10) <= 2.0


def main(arguments: list[str] | None = None) -> None:
    """Distil."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("twin", type=Path)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--seconds", type=float, default=3600.0, help="for all languages together")
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--most", type=int, help="only so many pairs of each language")
    given = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network, tokenizer = load(given.twin, device, search_type(device))
    begun = time.monotonic()
    # The small pair first, so that it is done whatever the time.
    for name in reversed(PAIRS):
        sources = read_lines(given.pairs / f"{name}.train.src.xz")[: given.most]
        references = read_lines(given.pairs / f"{name}.train.tgt.xz")[: given.most]
        since, until = time.monotonic(), begun + given.seconds
        found = translate(network, tokenizer, sources, device, given.beam, until)
        spent = time.monotonic() - since
        kept = [
            "" if text is None else text if fits(text, reference) else reference
            for text, reference in zip(found, references, strict=True)
        ]
        content = lzma.compress(("\n".join(kept) + "\n").encode(), preset=1)
        (given.pairs / f"{name}.distilled.tgt.xz").write_bytes(content)
        facts = {
            "pairs": len(kept),
            "translated": (translated := sum(text is not None for text in found)),
            "kept": sum(
                text is not None and fits(text, reference)
                for text, reference in zip(found, references, strict=True)
            ),
            "beam": given.beam,
            "seconds": round(time.monotonic() - begun, 1),
        }
        (given.pairs / f"{name}.distilled.json").write_text(json.dumps(facts))
        print(name, facts, f"{translated / spent:,.0f} sentences/s", flush=True)


if __name__ == "__main__":
    main()
