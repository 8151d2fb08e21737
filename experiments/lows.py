"""A hunt for ill-formed sequences of low energy: one token over and over, and annealed chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

import maskov
from experiments.estimates import estimate
from experiments.work import Found, Work
from experiments.workshop import Workshop
from maskov import LinearSchedule, Metropolis, Schedule
from maskov.energies import Norm, Raw, parse_energy
from maskov.models.scorer import Scorer
from maskov.types import Sequences

HELD_OUT = Path(__file__).parents[1] / "results" / "english" / "held-out-20.txt"
_SHOWN = 12
_AT_ONCE = 256
# Repeated tokens whose energies are kept for the picture.
_SPREAD = 1000


@dataclass(frozen=True)
class LowEnergies(Work):
    """The lowest energies found among repeated tokens and annealed chains, beside held-out text.

    `tokens` are the first so many of the vocabulary that a chain may hold, each repeated `length`
    times; `texts` held-out sentences of 20 tokens say what ordinary text has.
    """

    kind: ClassVar[str] = "lows"

    tokens: int
    texts: int
    chains: int
    epochs: int
    length: int = 20
    seed: int = 0

    def roles(self) -> tuple[str, ...]:
        """Return the models that are used."""
        return ("base", "judge")

    @property
    def passes(self) -> float:
        """Guess the passes."""
        chains = 2 * self.chains * self.epochs * self.length**2 * 0.3
        return (self.tokens + self.texts) * self.length + chains

    def run(self, workshop: Workshop, folder: Path) -> Found:
        """Search."""
        model, judge = workshop.masked(), workshop.judge()
        lines = HELD_OUT.read_text(encoding="utf-8").splitlines()[: self.texts]
        # Encoded by the model at hand: another vocabulary cuts the same text into other lengths.
        held_out = [ids for ids in map(model.encode, lines) if ids]
        natural = _energies(model, held_out)
        period = model.encode(".")
        allowed = (~model.forbidden).nonzero().flatten().tolist()
        repeated = [[token] * self.length for token in {*allowed[: self.tokens], *period}]
        found = _energies(model, repeated)
        rows = [_row(model, judge, ids, pair) for ids, pair in _lowest(repeated, found)]
        dots = [period * length for length in (self.length // 2, self.length)]
        dotted = [
            _row(model, judge, ids, pair)
            for ids, pair in zip(dots, _energies(model, dots).tolist(), strict=True)
        ]
        annealed = {name: self._annealed(model, judge, name, workshop) for name in ("raw", "norm")}
        each = np.array([len(ids) for ids in held_out])
        low = found / self.length < (natural / each[:, None]).mean(0)
        held = judge.token_terms([judge.tokenise(line) for line in lines])
        return {
            "signature": f"model:{Path(model.name).name}|repeated:{len(repeated)}x{self.length}|"
            f"annealed:{self.chains}x{self.epochs}|seed:{self.seed}",
            "seed": self.seed,
            "leaves_invariant": False,
            "notes": ["energies a token, so that lengths compare; lower is more probable"],
            "values": {
                "held_out_raw": estimate(natural[:, 0] / each),
                "held_out_norm": estimate(natural[:, 1] / each),
                "held_out_perplexity": estimate([float(t.mean().exp()) for t in held]),
                "repeated_below_raw": estimate(low[:, 0].astype(float)),
                "repeated_below_norm": estimate(low[:, 1].astype(float)),
                "period_raw": _one(dotted[-1]["energy_raw"]),
                "period_norm": _one(dotted[-1]["energy_norm"]),
                "period_perplexity": _one(dotted[-1]["perplexity"]),
            },
            "periods": dotted,
            "repeated": rows,
            "annealed": annealed,
            "natural": [
                {"text": line, "energy_raw": float(a / n), "energy_norm": float(b / n)}
                for line, (a, b), n in zip(lines, natural, each, strict=False)
            ][:_SHOWN],
            "spread": {
                "held_out": (natural / each[:, None]).round(3).tolist(),
                "repeated": (found / self.length).round(3)[:_SPREAD].tolist(),
            },
        }

    def _annealed(
        self, model: maskov.MaskedModel, judge: maskov.Autoregressive, name: str, workshop: Workshop
    ) -> list[dict[str, Any]]:
        """Cool chains down and return the lowest that they end at."""
        schedule = Schedule(self.epochs, target_temperature=LinearSchedule(1.0, 1.0 / self.epochs, 0.02))
        run = maskov.sample(
            model, Metropolis(parse_energy(name)), schedule, chains=self.chains,
            length=self.length, seed=self.seed, stop=workshop.stop,
        )  # fmt: skip
        ids = [one.ids for one in run.samples]
        pairs = np.array([(one.energy_raw, one.energy_norm) for one in run.samples])
        column = 0 if name == "raw" else 1
        order = pairs[:, column].argsort()[:_SHOWN]
        return [_row(model, judge, ids[i], pairs[i].tolist()) for i in order.tolist()]


def _energies(model: maskov.MaskedModel, ids: Sequence[Sequence[int]]) -> np.ndarray:
    """Return E_raw and E_norm of each sequence of tokens."""
    engine, parts = Scorer(model), []
    for begin in range(0, len(ids), _AT_ONCE):
        part = ids[begin : begin + _AT_ONCE]
        lengths = torch.tensor([len(line) for line in part], device=model.device)
        tokens = torch.full((len(part), int(lengths.max())), model.mask_id, device=model.device)
        for row, line in enumerate(part):
            tokens[row, : len(line)] = torch.tensor(line, device=model.device)
        known = Sequences(tokens, lengths, engine.sites(Sequences(tokens, lengths)))
        engine.check()
        both = [energy(model, known).cpu().numpy() for energy in (Raw(), Norm())]
        parts.append(np.stack(both, axis=1))
    return np.concatenate(parts)


def _lowest(ids: list[list[int]], pairs: np.ndarray) -> list[tuple[list[int], list[float]]]:
    """Return the lowest by either energy, each sequence once."""
    order = dict.fromkeys(
        index for column in (0, 1) for index in pairs[:, column].argsort()[:_SHOWN].tolist()
    )
    return [(ids[index], pairs[index].tolist()) for index in order]


def _row(
    model: maskov.MaskedModel, judge: maskov.Autoregressive, ids: list[int], pair: Sequence[float]
) -> dict[str, Any]:
    text, count = model.decode(ids), len(ids)
    (terms,) = judge.token_terms([judge.tokenise(text) or [0]])
    return {
        "text": text,
        "tokens": count,
        "energy_raw": pair[0] / count,
        "energy_norm": pair[1] / count,
        "perplexity": float(terms.mean().exp()),
    }


def _one(value: float) -> dict[str, float | int | None]:
    return {"value": value, "standard_error": None, "n": 1}
