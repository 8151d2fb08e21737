"""Score texts: the energy of each and what every token contributes to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import torch

from maskov.energies import Autoregressive, Energy, Raw
from maskov.errors import InputError
from maskov.fasta import Record, spelled
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.starts import read_text
from maskov.types import Sequences

# Texts held at once: the masked passes of more than this add nothing to a full batch.
_GROUP = 256


@dataclass(frozen=True)
class Score:
    """A text's energy; `terms` belong to `tokens` and add up to it.

    `name` is that of a record of FASTA.
    """

    text: str
    tokens: list[str]
    energy: float
    terms: list[float]
    name: str | None = None

    def to_json(self) -> str:
        """Return the score as one line of JSON."""
        data = asdict(self)
        if self.name is None:
            del data["name"]
        return json.dumps(data, ensure_ascii=False)


def score(
    model: MaskedModel,
    texts: Sequence[str | Record],
    energy: Energy | None = None,
    budget: int | None = None,
) -> list[Score]:
    """Return the energy of each text under a masked model; the order is kept."""
    energy = energy or Raw()
    lines = [_read(model, text, number) for number, text in enumerate(texts, 1)]
    engine = Scorer(model, budget)
    scores: list[Score] = []
    for begin in range(0, len(lines), _GROUP):
        group = lines[begin : begin + _GROUP]
        lengths = torch.tensor([len(ids) for ids in group], device=model.device)
        tokens = torch.full((len(group), int(lengths.max())), model.mask_id, device=model.device)
        for row, ids in enumerate(group):
            tokens[row, : len(ids)] = torch.tensor(ids, device=model.device)
        given = Sequences(tokens, lengths)
        sites = None
        if energy.needs_sites:
            sites = engine.sites(given, energy.needs_normaliser, groups=energy.groups)
        engine.check()
        terms = energy.terms(model, replace(given, sites=sites))
        for text, ids, row_terms in zip(
            texts[begin : begin + _GROUP], group, terms.tolist(), strict=True
        ):
            kept = row_terms[: len(ids)]
            total = float(torch.tensor(kept, dtype=torch.float64).sum())
            scores.append(Score(str(text), model.token_strings(ids), total, kept, _name(text)))
    return scores


def _read(model: MaskedModel, text: str | Record, number: int) -> list[int]:
    """Tokenise a line, or the sequence of a record."""
    if isinstance(text, Record):
        return read_text(model, spelled(model, text), f"'{text.name}'")
    return read_text(model, text, f"line {number}", unknown=True)


def _name(text: str | Record) -> str | None:
    return text.name if isinstance(text, Record) else None


def score_autoregressive(energy: Autoregressive, texts: Sequence[str | Record]) -> list[Score]:
    """Return −log p of each text under a causal LM, in that model's own tokens."""
    lines = [energy.tokenise(str(text)) for text in texts]
    for number, ids in enumerate(lines, 1):
        if not ids:
            raise InputError(f"line {number} is empty; give at least one word.")
        if energy.control_ids() & set(ids):
            raise InputError(f"line {number} holds a mask or another special token; take it out.")
    terms = energy.token_terms(lines)
    return [
        Score(str(text), energy.token_strings(ids), float(part.sum()), part.tolist(), _name(text))
        for text, ids, part in zip(texts, lines, terms, strict=True)
    ]
