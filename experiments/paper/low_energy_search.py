"""A search for ill-formed sequences of low energy: repeated tokens and annealed chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

import maskov
from experiments.lib.cell import Cell, CellResult
from experiments.lib.context import Context
from experiments.lib.estimates import estimate
from maskov import LinearSchedule, Metropolis, Schedule
from maskov.energies import Norm, Raw, parse_energy
from maskov.models.scorer import Scorer
from maskov.types import Sequences

HELD_OUT = Path(__file__).parents[2] / "results" / "english" / "held-out-20.txt"
_SHOWN = 12
_BATCH = 256
# Repeated tokens whose energies are stored for the figure.
_SCATTER = 1000


@dataclass(frozen=True)
class LowEnergySearch(Cell):
    """The lowest energies among repeated tokens and annealed chains, compared with held-out text.

    The first `tokens` allowed tokens of the vocabulary are each repeated `length` times. The first
    `texts` held-out sentences of 20 tokens give the energies of ordinary text.
    """

    kind: ClassVar[str] = "lows"

    tokens: int
    texts: int
    chains: int
    epochs: int
    length: int = 20
    seed: int = 0

    def roles(self) -> tuple[str, ...]:
        """Return the roles of the models."""
        return ("base", "judge")

    @property
    def expected_passes(self) -> float:
        """A rough number of masked passes."""
        chains = 2 * self.chains * self.epochs * self.length**2 * 0.3
        return (self.tokens + self.texts) * self.length + chains

    def run(self, context: Context, folder: Path) -> CellResult:
        """Search."""
        model, judge = context.masked_model(), context.judge()
        lines = HELD_OUT.read_text(encoding="utf-8").splitlines()[: self.texts]
        # Another vocabulary gives the same texts other lengths.
        held_out = [ids for ids in map(model.encode, lines) if ids]
        natural = _energies(model, held_out)
        period = model.encode(".")
        allowed = (~model.forbidden).nonzero().flatten().tolist()
        repeated = [[token] * self.length for token in {*allowed[: self.tokens], *period}]
        repeated_energies = _energies(model, repeated)
        rows = [_row(model, judge, ids, pair) for ids, pair in _lowest(repeated, repeated_energies)]
        period_rows = [period * length for length in (self.length // 2, self.length)]
        periods = [
            _row(model, judge, ids, pair)
            for ids, pair in zip(period_rows, _energies(model, period_rows).tolist(), strict=True)
        ]
        annealed = {name: self._annealed(model, judge, name, context) for name in ("raw", "norm")}
        lengths = np.array([len(ids) for ids in held_out])
        low = repeated_energies / self.length < (natural / lengths[:, None]).mean(0)
        held_out_terms = judge.token_terms([judge.tokenise(line) for line in lines])
        return {
            "signature": f"model:{Path(model.name).name}|repeated:{len(repeated)}x{self.length}|"
            f"annealed:{self.chains}x{self.epochs}|seed:{self.seed}",
            "seed": self.seed,
            "leaves_invariant": False,
            "notes": ["energies are per token, so lengths compare; lower is more probable"],
            "values": {
                "held_out_raw": estimate(natural[:, 0] / lengths),
                "held_out_norm": estimate(natural[:, 1] / lengths),
                "held_out_perplexity": estimate([float(t.mean().exp()) for t in held_out_terms]),
                "repeated_below_raw": estimate(low[:, 0].astype(float)),
                "repeated_below_norm": estimate(low[:, 1].astype(float)),
                "period_raw": _single(periods[-1]["energy_raw"]),
                "period_norm": _single(periods[-1]["energy_norm"]),
                "period_perplexity": _single(periods[-1]["perplexity"]),
            },
            "periods": periods,
            "repeated": rows,
            "annealed": annealed,
            "natural": [
                {"text": line, "energy_raw": float(a / n), "energy_norm": float(b / n)}
                for line, (a, b), n in zip(lines, natural, lengths, strict=False)
            ][:_SHOWN],
            "spread": {
                "held_out": (natural / lengths[:, None]).round(3).tolist(),
                "repeated": (repeated_energies / self.length).round(3)[:_SCATTER].tolist(),
            },
        }

    def _annealed(
        self, model: maskov.MaskedModel, judge: maskov.Autoregressive, name: str, context: Context
    ) -> list[dict[str, Any]]:
        """Anneal chains and return the final sequences of lowest energy."""
        schedule = Schedule(
            self.epochs, target_temperature=LinearSchedule(1.0, 1.0 / self.epochs, 0.02)
        )
        run = maskov.sample(
            model, Metropolis(parse_energy(name)), schedule, chains=self.chains,
            length=self.length, seed=self.seed, stop=context.stop,
        )  # fmt: skip
        ids = [sample.ids for sample in run.samples]
        pairs = np.array([(sample.energy_raw, sample.energy_norm) for sample in run.samples])
        column = 0 if name == "raw" else 1
        order = pairs[:, column].argsort()[:_SHOWN]
        return [_row(model, judge, ids[i], pairs[i].tolist()) for i in order.tolist()]


def _energies(model: maskov.MaskedModel, ids: Sequence[Sequence[int]]) -> np.ndarray:
    """Return E_raw and E_norm of each sequence of tokens."""
    engine, parts = Scorer(model), []
    for begin in range(0, len(ids), _BATCH):
        part = ids[begin : begin + _BATCH]
        lengths = torch.tensor([len(line) for line in part], device=model.device)
        tokens = torch.full((len(part), int(lengths.max())), model.mask_id, device=model.device)
        for row, line in enumerate(part):
            tokens[row, : len(line)] = torch.tensor(line, device=model.device)
        known = Sequences(tokens, lengths, engine.cache(Sequences(tokens, lengths)))
        engine.check()
        both = [energy(model, known).cpu().numpy() for energy in (Raw(), Norm())]
        parts.append(np.stack(both, axis=1))
    return np.concatenate(parts)


def _lowest(ids: list[list[int]], pairs: np.ndarray) -> list[tuple[list[int], list[float]]]:
    """Return the sequences of lowest E_raw or E_norm, each once."""
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


def _single(value: float) -> dict[str, float | int | None]:
    return {"value": value, "standard_error": None, "n": 1}
