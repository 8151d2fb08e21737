"""Rewrite the test lines by settings, and held-out lines to choose among these."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.studies.control.bag import Bag
from experiments.studies.control.data import lines_of
from maskov.energies import parse_energy
from maskov.energies.networks import Loading
from maskov.kernels.registry import parse_moves
from maskov.models import choose_device, load
from maskov.moves import MaskedConditional, Span
from maskov.plan import execute
from maskov.rewriting import Task, picked, plan_rewriting

LABELS = ("negative", "positive")
PICKS = ("lowest", "last")


@dataclass(frozen=True)
class Setting:
    """How lines are rewritten; `prefixed` says that the model reads the label first."""

    name: str
    strength: float = 3.0
    keep: float = 1.5
    fluency: str = "norm"
    temperature: float = 1.0
    hot: float = 1.0
    epochs: int = 40
    chains: int = 8
    moves: str = "span"
    span_weights: tuple[float, ...] = (6.0, 1.0, 1.0)
    proposal_temperature: float = 1.0
    experts: tuple[str, ...] = ("deep", "shallow")
    prefixed: bool = True

    @classmethod
    def read(cls, file: Path) -> list[Setting]:
        """Read settings from a JSON list; what is left out has its default."""
        rows = json.loads(file.read_text(encoding="utf-8"))
        lists = ("experts", "span_weights")
        return [
            cls(**row | {name: tuple(row.get(name, getattr(cls, name))) for name in lists})
            for row in rows
        ]

    def task(self, model: Any, lines: Sequence[str], models: Path, label: str, seed: int) -> Task:
        """Return how lines are rewritten toward a label."""
        experts = [f"classifier({models / name}, label={label})" for name in self.experts]
        proposal = MaskedConditional(self.proposal_temperature)
        sizes = tuple(range(1, 1 + len(self.span_weights)))
        moves, weights, _ = parse_moves(self.moves, proposal)
        spans = Span(proposal, sizes, self.span_weights)
        moves = tuple(spans if isinstance(move, Span) else move for move in moves)
        return plan_rewriting(
            model=model,
            texts=lines,
            toward=parse_energy("+".join(experts), loading=Loading(model.device)),
            strength=self.strength,
            keep=self.keep,
            fluency=self.fluency,
            target_temperature=self.temperature,
            hot=self.hot,
            chains=self.chains,
            epochs=self.epochs,
            moves=list(zip(moves, weights, strict=True)),
            seed=seed,
        )


def rewrite_all(
    work: Path,
    settings: Sequence[Setting],
    test: Sequence[Sequence[str]],
    held: Sequence[Sequence[str]],
    out: Path,
    seed: int,
) -> None:
    """Rewrite test lines and held-out lines by each setting, each to the other label.

    OUT gets NAME.PICK.LABEL.jsonl, a row for each chain of each test line, the same of held-out
    lines as NAME.held.PICK.LABEL.jsonl, and NAME.json with the scores of the held-out lines, which
    settings are chosen by.
    """
    out.mkdir(parents=True, exist_ok=True)
    for setting in settings:
        record = asdict(setting) | _rewritten(work, setting, test, held, out, seed)
        (out / f"{setting.name}.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
        print(json.dumps(record), flush=True)


def _rewritten(
    work: Path,
    setting: Setting,
    test: Sequence[Sequence[str]],
    held: Sequence[Sequence[str]],
    out: Path,
    seed: int,
) -> dict[str, Any]:
    models, device, begun = work / "models", choose_device("auto"), time.monotonic()
    chosen: dict[str, list[list[str]]] = {pick: [] for pick in PICKS}
    passes, steps, count = 0.0, 0.0, 0
    for number, (tested, tuned) in enumerate(zip(test, held, strict=True)):
        label, lines = LABELS[1 - number], [*tested, *tuned]
        model = load(str(models / "domain"), device, prefix=label if setting.prefixed else "")
        task = setting.task(model, lines, models.resolve(), label, seed)
        assert task.plan is not None  # no line is empty
        run = execute(task.plan)
        passes += float(run.traces["passes"].sum())
        passes += setting.chains * sum(len(model.encode(line)) for line in lines)
        steps += float(run.traces["steps"].sum())
        count += len(lines)
        for pick in PICKS:
            rows = list(picked(model, run, lines, pick, every_chain=True))
            end = len(tested) * setting.chains
            for what, part in (("", rows[:end]), (".held", rows[end:])):
                file = out / f"{setting.name}{what}.{pick}.{number}.jsonl"
                file.write_text("".join(row.to_json() + "\n" for row in part), encoding="utf-8")
            best = picked(model, run, lines, pick)
            chosen[pick].append([row.text for row in best if row.line >= len(tested)])
    bag = Bag.load(models / "bag")
    return {
        "lines": count,
        "passes_a_sentence": passes / count,
        "steps_a_sentence": steps / count,
        "seconds_a_sentence": (time.monotonic() - begun) / count,
        "device": str(device),
        "held": {pick: scores(bag, chosen[pick], held) for pick in PICKS},
    }


def scores(
    bag: Bag, outputs: Sequence[Sequence[str]], sources: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Return accuracy by the classifier for tuning, self-BLEU and the share of unchanged lines."""
    import sacrebleu

    hits = [
        bag_label == LABELS[1 - number]
        for number, texts in enumerate(outputs)
        for bag_label in bag.predict(list(texts))
    ]
    flat = [text for half in outputs for text in half]
    given = [text for half in sources for text in half]
    bleu = sacrebleu.corpus_bleu(flat, [given], lowercase=True, force=True).score
    same = sum(one == other for one, other in zip(flat, given, strict=True))
    return {
        "accuracy": 100 * sum(hits) / len(hits),
        "self_bleu": bleu,
        "unchanged": same / len(flat),
    }


def held_lines(work: Path, count: int) -> list[list[str]]:
    """Return the first held-out lines of each label."""
    lines = lines_of(work, "held")
    return [list(lines[label])[:count] for label in LABELS]


def published_lines(work: Path, count: int | None = None) -> list[list[str]]:
    """Return the lines of the published comparison, or the first of them."""
    files = (work / "test" / f"test.{number}.txt" for number in (0, 1))
    return [file.read_text(encoding="utf-8").rstrip("\n").split("\n")[:count] for file in files]
