"""Rewrite lines by settings, on held-out lines to choose among these and on the test lines."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import maskov
from experiments.control.bag import Bag
from experiments.control.data import lines_of
from maskov.energies import parse_energy
from maskov.energies.loading import Loading
from maskov.kernels.registry import named_moves, parse_moves
from maskov.models import choose_device, load
from maskov.moves import MaskedConditional
from maskov.rewriting import Rewriter

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
    moves: str = "site:6,span:1,insert-delete:1"
    proposal_temperature: float = 1.0
    experts: tuple[str, ...] = ("deep", "shallow")
    prefixed: bool = True

    @classmethod
    def read(cls, file: Path) -> list[Setting]:
        """Read settings from a JSON list; what is left out has its default."""
        rows = json.loads(file.read_text(encoding="utf-8"))
        return [cls(**row | {"experts": tuple(row.get("experts", cls.experts))}) for row in rows]

    def rewriter(self, models: Path, label: str, device: Any) -> Rewriter:
        """Return the rewriter toward a label."""
        experts = [f"classifier({models / name}, label={label})" for name in self.experts]
        moves, weights = parse_moves(
            self.moves, named_moves(MaskedConditional(self.proposal_temperature), (2, 3))
        )
        return Rewriter(
            parse_energy("+".join(experts), loading=Loading(device)),
            self.strength,
            self.keep,
            self.fluency,
            self.temperature,
            self.hot,
            self.chains,
            self.epochs,
            moves=moves,
            weights=weights,
        )


def rewrite_all(
    work: Path, settings: Sequence[Setting], sources: Sequence[Sequence[str]], out: Path, seed: int
) -> list[dict[str, Any]]:
    """Rewrite negative and positive lines by each setting, each to the other label.

    OUT gets NAME.PICK.LABEL.jsonl, a row for each chain, and NAME.json.
    """
    out.mkdir(parents=True, exist_ok=True)
    models, device = work / "models", choose_device("auto")
    bag, found = Bag.load(models / "bag"), []
    for setting in settings:
        begun, passes, count = time.monotonic(), 0.0, 0
        texts: dict[str, list[list[list[str]]]] = {pick: [] for pick in PICKS}
        for number, lines in enumerate(sources):
            label = LABELS[1 - number]
            model = load(str(models / "domain"), device, prefix=label if setting.prefixed else "")
            rewriter = setting.rewriter(models.resolve(), label, device)
            run = rewriter.run(model, rewriter.kernel, lines, seed)
            passes += float(run.traces["passes"].sum())
            passes += setting.chains * sum(len(model.encode(line)) for line in lines)
            count += len(lines)
            for pick in PICKS:
                rows = list(replace(rewriter, pick=pick).picked(model, run, lines, 0, True))
                file = out / f"{setting.name}.{pick}.{number}.jsonl"
                file.write_text("".join(row.to_json() + "\n" for row in rows), encoding="utf-8")
                chains = [rows[i : i + setting.chains] for i in range(0, len(rows), setting.chains)]
                # The chains of a line in the order of their energies.
                key = (lambda row: row.energies["target"]) if pick == "lowest" else (lambda row: 0)
                texts[pick].append([[r.text for r in sorted(one, key=key)] for one in chains])
        record = asdict(setting) | {
            "lines": count,
            "passes_a_sentence": passes / count,
            "seconds_a_sentence": (time.monotonic() - begun) / count,
            "device": str(device),
            "version": maskov.__version__,
        }
        for pick in PICKS:
            firsts = [[chains[0] for chains in half] for half in texts[pick]]
            record[pick] = scores(bag, firsts, sources)
        (out / f"{setting.name}.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
        found.append(record)
        print(json.dumps(record), flush=True)
    return found


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


def test_lines(work: Path) -> list[list[str]]:
    """Return the lines of the published comparison."""
    files = (work / "test" / f"test.{number}.txt" for number in (0, 1))
    return [file.read_text(encoding="utf-8").rstrip("\n").split("\n") for file in files]
