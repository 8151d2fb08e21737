"""Gaps in held-out sentences restored: how probable each method finds the missing tokens.

    python -m experiments.studies.restoration measure TEXTS --out results/restoration --gaps 1:100
    python -m experiments.studies.restoration page --out results/restoration

TEXTS has a paragraph a line, as WikiText has. `--gaps` are sizes and their numbers of gaps, each in
a sentence of 12 to 24 tokens; `--unknown` is the number of gaps of one to four tokens whose length
is not told. The second writes the page and the figure from the document.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import maskov
from maskov.energies import parse_energy
from maskov.energies.ordered import Ordered
from maskov.filling import DEFAULT_ENERGY, DEFAULT_OF_LENGTHS, DistinctScorer, Filler, Shape
from maskov.kernels import Metropolis
from maskov.models.base import Queries
from maskov.random import CounterRng
from maskov.types import Sequences

TOP, DRAWS, MOST = 20, 40, 4


@dataclass
class Gap:
    """A sentence and the places that are missing."""

    ids: list[int]
    start: int
    size: int

    @property
    def truth(self) -> tuple[int, ...]:
        """The missing tokens."""
        return tuple(self.ids[self.start : self.start + self.size])

    def shape(self, mask: int, size: int) -> Shape:
        """Return the sentence with a gap of some size."""
        ids = [*self.ids[: self.start], *[mask] * size, *self.ids[self.start + self.size :]]
        places = tuple(range(self.start, self.start + size))
        return Shape(torch.tensor(ids), (places,))


class Methods:
    """Each method returns its list of fills, log p of the truth and the mass above it, if any."""

    def __init__(self, model: Any, seed: int) -> None:
        self.model, self.scorer, self.rng = model, DistinctScorer(model), CounterRng(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.beam = Filler(parse_energy(DEFAULT_ENERGY), 1.0, self.scorer)

    def independent(self, gap: Gap) -> tuple[list[tuple[int, ...]], float, float, float]:
        """Fill each blank as if the others stayed masked (fill-mask of transformers)."""
        shape = gap.shape(self.model.mask_id, gap.size)
        masked = shape.tokens[None] == self.model.mask_id
        hidden = self.scorer.hidden(
            Queries(shape.tokens[None], torch.tensor([len(gap.ids)]), masked)
        )
        logs = self.model.logits(hidden).double()
        logs = logs.masked_fill(self.model.forbidden, -torch.inf).log_softmax(1)
        fills, scores = torch.zeros((1, 0), dtype=torch.long), torch.zeros(1, dtype=torch.float64)
        for place in logs:
            scores, best = (scores[:, None] + place).flatten().topk(TOP)
            fills = torch.cat([fills[best // len(place)], (best % len(place))[:, None]], dim=1)
        truth = logs.gather(1, torch.tensor(gap.truth)[:, None]).sum()
        drawn = torch.multinomial(logs.exp(), 2000, True, generator=self.generator)
        above = (logs.gather(1, drawn).sum(0) > truth).double().mean()
        return [tuple(one) for one in fills.tolist()], float(truth), float(above), float(scores[0])

    def ordered(
        self, gap: Gap, energy: Ordered
    ) -> tuple[list[tuple[int, ...]], float, float, float]:
        """Fill the blanks one after the other: exact probabilities of an ordered energy."""
        shape, size = gap.shape(self.model.mask_id, gap.size), len(gap.ids)
        self.beam.energy, self.beam._gaps = energy, []
        if energy.order == "left-to-right":
            found = self._left(shape, TOP)
        else:
            found = self._best(shape, energy)
        free = torch.zeros(1, size, dtype=torch.bool)
        free[0, shape.places] = True
        count = 0 if gap.size == 1 else DRAWS
        several = Sequences(
            torch.tensor([gap.ids]).repeat(count + 1, 1), torch.full((count + 1,), size),
            free=free.repeat(count + 1, 1),
        )  # fmt: skip
        chain = torch.arange(count + 1)
        drawn = energy.draw(self.scorer, several, chain, torch.zeros_like(chain), self.rng).tokens
        best = several.tokens[:1].clone()
        best[0, shape.places] = torch.tensor(found[0])
        every = torch.cat([several.tokens[:1], best, drawn[1:]])
        asked = Sequences(every, torch.full((len(every),), size), free=free.repeat(len(every), 1))
        values = -energy.evaluate(self.scorer, asked).value
        if count:
            above = float((values[2:] > values[0]).double().mean())
        else:
            above = self.independent(gap)[2]
        return found, float(values[0]), above, float(values[1])

    def _left(self, shape: Shape, width: int) -> list[tuple[int, ...]]:
        """Beam search from left to right."""
        places, tokens = shape.places, shape.tokens[None]
        score = torch.zeros(1, dtype=torch.float64)
        for number, place in enumerate(places):
            logs = score[:, None] + self.beam._logs(shape, tokens, places, number)
            score, best = logs.flatten().topk(width)
            tokens = tokens[best // logs.shape[1]]
            tokens[:, place] = best % logs.shape[1]
        return [tuple(one) for one in tokens[:, places].tolist()]

    def _best(self, shape: Shape, energy: Ordered) -> list[tuple[int, ...]]:
        """Search as `infill` does."""
        self.beam._kernel = Metropolis(energy)
        known = dict[Any, float]()
        fills = self.beam._search(shape, 2 * TOP)
        self.beam._weigh(known, [(0, one) for one in fills], [shape], whole=False)
        return [fill for _, fill in sorted(known, key=lambda one: -known[one])][:TOP]

    def mask_predict(self, gap: Gap) -> list[tuple[int, ...]]:
        """Fill all blanks, then mask the least sure again, with fewer each time (Ghazvininejad)."""
        tokens = gap.shape(self.model.mask_id, gap.size).tokens[None].clone()
        places = torch.arange(gap.start, gap.start + gap.size)
        sure = torch.zeros(gap.size, dtype=torch.float64)
        again = torch.ones(gap.size, dtype=torch.bool)
        for turn in range(gap.size):
            masked = torch.zeros_like(tokens, dtype=torch.bool)
            masked[0, places[again]] = True
            tokens[masked] = self.model.mask_id
            hidden = self.scorer.hidden(Queries(tokens, torch.tensor([tokens.shape[1]]), masked))
            logits = (
                self.model.logits(hidden).double().masked_fill(self.model.forbidden, -torch.inf)
            )
            best = logits.softmax(1).max(1)
            tokens[masked], sure[again] = best.indices, best.values
            again = torch.zeros_like(again)
            left = gap.size * (gap.size - turn - 1) // gap.size
            again[sure.argsort()[:left]] = True
        return [tuple(tokens[0, places].tolist())]

    def sound_beam(self, gap: Gap) -> list[tuple[int, ...]]:
        """Order the beam by the Hammersley–Clifford–Besag score against a pivot (2402.15020)."""
        shape = gap.shape(self.model.mask_id, gap.size)
        self.beam._gaps = []
        fills, pivot = self._left(shape, TOP), self.mask_predict(gap)[0]
        scores = []
        for fill in fills:
            rows = shape.tokens.repeat(gap.size, 1)
            for number in range(gap.size):
                mixed = [*fill[:number], self.model.mask_id, *pivot[number + 1 :]]
                rows[number, shape.places] = torch.tensor(mixed)
            masked = rows == self.model.mask_id
            length = torch.full((gap.size,), rows.shape[1])
            logs = self.model.logits(self.scorer.hidden(Queries(rows, length, masked))).double()
            pair = torch.tensor([fill, pivot]).T
            both = logs.gather(1, pair)
            scores.append(float((both[:, 0] - both[:, 1]).sum()))
        return [fills[index] for index in np.argsort(scores)[::-1]]

    def energies(self, gap: Gap, energy: str, sizes: range) -> dict[str, Any]:
        """Fill under any energy, at one size or at several."""
        shapes = [gap.shape(self.model.mask_id, size) for size in sizes]
        filler = Filler(parse_energy(energy), 1.0, self.scorer, rng=self.rng)
        found = filler.fill("", shapes)
        number, known = gap.size - sizes[0], dict[Any, float]()
        filler._weigh(known, [(number, gap.truth)], shapes, len(shapes) > 1)
        best = found.fills[0]
        truth = known[number, gap.truth] + best.energy + math.log(best.probability)
        text = filler._spelled(shapes[number], gap.truth)[0]
        texts = [one.text for one in found.fills[:TOP]]
        return {
            "rank1": texts[0] == text, "rank20": text in texts, "log_p": truth,
            "above": found.mass_above(math.exp(truth)), "top": best.probability,
            "error": found.error, "length": {n: p for n, (p, _) in found.lengths.items()},
            "size": gap.size, "texts": texts[:3], "truth": text,
        }  # fmt: skip


def sentences(model: Any, path: Path) -> Iterator[list[int]]:
    """Yield the tokens of sentences of 12 to 24 tokens, in lower case."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip().startswith("="):
            continue
        text = line.lower().replace(" @-@ ", "-").replace(" @,@ ", ",").replace(" @.@ ", ".")
        for part in text.split(" . "):
            ids = model.encode(part.strip().rstrip(".").strip() + " .")
            if 12 <= len(ids) <= 24 and not any(bool(model.forbidden[one]) for one in ids):
                yield ids


def measure(options: argparse.Namespace) -> None:
    """Fill gaps by every method, and keep what each says of the truth."""
    torch.set_num_threads(options.threads)
    model = maskov.load(options.model)
    chosen = random.Random(options.seed)
    pool = list(sentences(model, options.texts))
    chosen.shuffle(pool)
    methods, path = (
        Methods(model, options.seed),
        options.out / f"{options.model}-{options.name}.json",
    )
    document: dict[str, Any] = {"model": options.model, "seed": options.seed, "rows": []}
    asked = [tuple(map(int, one.split(":"))) for one in options.gaps.split(",") if one]
    plan = [(size, False) for size, count in asked for _ in range(count)]
    plan += [(chosen.randint(1, MOST), True) for _ in range(options.unknown)]
    with torch.inference_mode():
        for (size, unknown), ids in zip(plan, pool, strict=False):
            gap = Gap(ids, chosen.randrange(len(ids) - size), size)
            for name, call in _calls(methods, gap, unknown, options.energies):
                before, begun = methods.scorer.passes, time.process_time()
                row = call()
                row |= {
                    "method": name, "size": size, "unknown": unknown,
                    "passes": methods.scorer.passes - before,
                    "seconds": round(time.process_time() - begun, 3),
                }  # fmt: skip
                document["rows"].append(row)
            path.write_text(json.dumps(document, ensure_ascii=False) + "\n", encoding="utf-8")


def _calls(
    methods: Methods, gap: Gap, unknown: bool, energies: list[str]
) -> Iterator[tuple[str, Any]]:
    """Yield the methods that a gap is given to."""

    def listed(fills: list[tuple[int, ...]], *numbers: float) -> dict[str, Any]:
        row: dict[str, Any] = {
            "rank1": fills[0] == gap.truth,
            "rank20": gap.truth in fills[:TOP] if len(fills) > 1 else None,
        }
        if numbers:
            row |= {"log_p": numbers[0], "above": numbers[1], "top": math.exp(numbers[2])}
        return row

    if unknown:
        sizes = range(1, MOST + 1)
        yield "`infill`, length unknown", lambda: methods.energies(gap, DEFAULT_OF_LENGTHS, sizes)
        return
    mixture, left = parse_energy(DEFAULT_ENERGY), Ordered("left-to-right")
    assert isinstance(mixture, Ordered)
    yield "fill-mask (independent blanks)", lambda: listed(*methods.independent(gap))
    yield "mask-predict", lambda: listed(methods.mask_predict(gap))
    yield "beam from left to right", lambda: listed(*methods.ordered(gap, left))
    yield "beam with a sound score", lambda: listed(methods.sound_beam(gap))
    yield f"`infill`, {DEFAULT_ENERGY}", lambda: listed(*methods.ordered(gap, mixture))
    known = range(gap.size, gap.size + 1)
    for energy in energies:
        yield f"`infill`, {energy}", lambda energy=energy: methods.energies(gap, energy, known)


def page(out: Path, model: str) -> None:
    """Write the table, the figure and some examples."""
    from matplotlib.figure import Figure

    documents = [json.loads(one.read_text()) for one in sorted(out.glob(f"{model}-*.json"))]
    rows = [row for one in documents for row in one["rows"]]
    lines = [
        "# Gaps restored", "",
        "Artificial gaps in sentences of 12 to 24 tokens of held-out text (WikiText-2 test), model "
        f"{model}. log p is the mean log-probability of the missing tokens together, in nats; "
        "coverage is how often the 90 % set has them; ECE is the expected calibration error of the "
        "first fill. Passes include those that measure coverage by draws; seconds are of one busy "
        "core. Few gaps were measured: the errors are large.", "",
        "| tokens | method | gaps | top-1 | top-20 | log p | coverage | ECE | passes | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    keys = dict.fromkeys((one["unknown"], 0 if one["unknown"] else one["size"], one["method"])
                         for one in rows)  # fmt: skip
    for unknown, size, method in sorted(keys, key=lambda one: one[:2]):
        mine = [
            one for one in rows
            if one["method"] == method and one["unknown"] == unknown and size in (0, one["size"])
        ]  # fmt: skip
        lines.append(_line("unknown, 1 to 4" if unknown else str(size), method, mine))
    sized = [one for one in rows if one["unknown"]]
    if sized:
        given = [one["length"].get(str(one["size"]), 0.0) for one in sized]
        lines += ["", f"Lengths: the true one of four has probability {np.mean(given):.2f} on "
                  f"average (evenly: 0.25)."]  # fmt: skip
    energies = out / "energies.json"
    if energies.exists():
        lines += _energies(json.loads(energies.read_text()))
    shown = [one for one in rows if one.get("texts")]
    lines += ["", "![reliability](reliability.png)", "", "## Examples", ""]
    for title, good in (("Good", True), ("Bad", False)):
        some = [one for one in shown if one["rank1"] is good][:4]
        lines += [f"{title}:", ""]
        lines += [f"- {one['truth']} — first: {one['texts'][0]} (log p {one['log_p']:.1f})"
                  for one in some] + [""]  # fmt: skip
    (out / "README.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
    for method in dict.fromkeys(
        one["method"] for one in rows if "top" in one and not one["unknown"]
    ):
        mine = [one for one in rows if one["method"] == method]
        bins = [b for b in _bins(mine) if len(b) >= 5]
        axes.plot([np.mean([o["top"] for o in b]) for b in bins],
                  [np.mean([o["rank1"] for o in b]) for b in bins], "-o", label=method)  # fmt: skip
    axes.set_xlabel("probability of the first fill")
    axes.set_ylabel("how often it is the truth")
    axes.legend(frameon=False, fontsize=7)
    figure.savefig(out / "reliability.png", dpi=150)


def _energies(document: dict[str, Any]) -> list[str]:
    """Return the table by which the default energy was chosen."""
    counts = document["gaps"]
    lines = [
        "", "## Which energy", "",
        f"log p of the missing tokens on other text ({document['texts']}), and the difference to "
        "the first line. Z of energies that are not normalised is estimated from a few draws. "
        "These make it rather too small, which favours such energies.", "",
        "| energy | " + " | ".join(f"size {one} ({n} gaps)" for one, n in counts.items()) + " |",
        "|---|" + "---|" * len(counts),
    ]  # fmt: skip
    for name, sizes in document["energies"].items():
        cells = [f"{p:.2f} ({gain:+.2f} ± {error:.2f})" for p, gain, error in sizes.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _bins(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [[one for one in rows if low <= min(one["top"], 0.999) < low + 0.2]
            for low in (0.0, 0.2, 0.4, 0.6, 0.8)]  # fmt: skip


def _line(size: str, method: str, rows: list[dict[str, Any]]) -> str:
    def mean(name: str, digits: int = 2) -> str:
        values = [one[name] for one in rows if one.get(name) is not None]
        return f"{np.mean(values):.{digits}f}" if values else "–"

    cover = ece = log_p = "–"
    if "log_p" in rows[0]:
        values = [one["log_p"] for one in rows]
        error = np.std(values) / math.sqrt(len(values))
        log_p = f"{np.mean(values):.2f} ± {error:.2f}"
        cover = f"{np.mean([one['above'] < 0.9 for one in rows]):.2f}"
        each = [abs(sum(o["top"] - o["rank1"] for o in b)) for b in _bins(rows) if b]
        ece = f"{sum(each) / len(rows):.3f}"
    return (
        f"| {size} | {method} | {len(rows)} | {mean('rank1')} | {mean('rank20')} | {log_p} "
        f"| {cover} | {ece} | {mean('passes', 0)} | {mean('seconds', 1)} |"
    )


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("action", choices=("measure", "page"))
    parser.add_argument("texts", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="wiki-small")
    parser.add_argument("--gaps", default="1:500,2:500,4:500,8:500", help="SIZE:COUNT,...")
    parser.add_argument("--unknown", type=int, default=500)
    parser.add_argument("--energies", nargs="*", default=[], help="other energies of `infill`")
    parser.add_argument("--name", default="gaps", help="of the document; pages have all of them")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.action == "page":
        page(options.out, options.model)
    else:
        measure(options)


if __name__ == "__main__":
    main()
