"""The sentences of a test set that a cell translates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maskov.errors import InputError
from maskov.models.conditional import ConditionalModel


@dataclass(frozen=True)
class Sentences:
    """The sources that the model can read, and the references of all sentences that are scored.

    `readable` has an entry for each reference. A sentence whose source the model cannot read
    counts as an empty translation; `left_out` is the number of sources that are not translated.
    """

    sources: list[str]
    references: list[str]
    readable: list[bool]
    left_out: int

    def with_empty(self, texts: Sequence[str]) -> list[str]:
        """Return a translation for each reference, given those of the readable sources."""
        translated = iter(texts)
        return [next(translated) if readable else "" for readable in self.readable]


def choose_sentences(
    model: ConditionalModel,
    sources: list[str],
    references: list[str],
    most: int | None,
    longest: int | None = None,
) -> Sentences:
    """Return the first `most` sentences, or those with at most `longest` source tokens.

    With `longest`, longer sources are skipped, and so are those that the model cannot read.
    """
    limit = min(longest or 10**9, model.network.shape.longest - 1)
    kept: list[tuple[str, str, bool]] = []
    skipped = 0
    tokens = model.tokenizer(list(sources), add_special_tokens=False)["input_ids"]
    for source, reference, ids in zip(sources, references, tokens, strict=True):
        if len(kept) == most:
            break
        fits = len(ids) <= limit
        if fits or longest is None:
            kept.append((source, reference, fits))
        else:
            skipped += 1
    readable = [fits for _, _, fits in kept]
    if not any(readable):
        raise InputError(f"no source of the test set has at most {limit} tokens.")
    return Sentences(
        [source for source, _, fits in kept if fits],
        [reference for _, reference, _ in kept],
        readable,
        skipped + readable.count(False),
    )
