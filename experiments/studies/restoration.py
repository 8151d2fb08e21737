"""Gaps in held-out sentences restored: how probable each method finds the missing tokens.

    python -m experiments.studies.restoration measure TEXTS --out results/restoration --gaps 1:500
    python -m experiments.studies.restoration chains TEXTS --out results/restoration --gaps 1:40
    python -m experiments.studies.restoration page --out results/restoration

TEXTS has a paragraph a line, as WikiText has, or is a FASTA file of heavy chains. `--gaps` are
sizes and their numbers of gaps, each in a sentence of 12 to 24 tokens; size 0 is one to four tokens
whose number is not told. A document has a line for each gap. Gaps that it has already are not
measured again, so `measure` may be stopped at any time. `chains` fills gaps that were measured by
Metropolis-Hastings chains. The last command writes the page and the figure from all documents.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import xlogy

import maskov
from maskov.energies import parse_energy
from maskov.energies.ordered import Ordered
from maskov.fasta import read_fasta, spelled
from maskov.filling import DEFAULT_ENERGY, DistinctScorer, Filler, OrderedFills, Shape
from maskov.kernels import Metropolis
from maskov.kernels.base import ended, epoch
from maskov.models.base import Queries
from maskov.moves import Site, Span
from maskov.random import CounterRng
from maskov.types import Chains, Float, Sequences, Tensor
from maskov.ui.detokenise import detokenised

TOP, MOST = 20, 4
# If probabilities are right, the truth is as probable as any of so many draws. The 90 % set has it
# unless all of them are more probable.
DRAWS = 9
# Of a search: they decide how many fills are listed, not how probable these are.
PASSES = 300
FILL_MASK, MASK_PREDICT = "fill-mask (independent blanks)", "mask-predict"
BEAM = "left-to-right beam"
EVEN = "`infill`, lengths equally probable"
SOUND, INFILL, SMALL = "beam with a sound score", "`infill`", "`infill`, 2 orders, search of 4"
# Chains of a gap, their passes where `infill` needs fewer, and their energies.
CHAINS, FEWEST = 4, 50
TARGETS = ("norm", "raw", DEFAULT_ENERGY)
Tokens = tuple[int, ...]


@dataclass
class Gap:
    """A sentence and the places that are missing; how many may be `unknown`."""

    ids: list[int]
    start: int
    size: int
    unknown: bool = False

    @property
    def sizes(self) -> range:
        """The numbers of tokens that the gap may have."""
        return range(1, MOST + 1) if self.unknown else range(self.size, self.size + 1)

    @property
    def truth(self) -> Tokens:
        """The missing tokens."""
        return tuple(self.ids[self.start : self.start + self.size])

    def shape(self, mask: int, size: int) -> Shape:
        """Return the sentence with a gap of some size."""
        ids = [*self.ids[: self.start], *[mask] * size, *self.ids[self.start + self.size :]]
        places = tuple(range(self.start, self.start + size))
        return Shape(torch.tensor(ids), (places,))

    def filled(self, fills: list[Tokens], whole: bool = False) -> Sequences:
        """Return the sentence with fills of one size, of which the gap or the whole is scored."""
        rest = self.ids[: self.start], self.ids[self.start + self.size :]
        tokens = torch.tensor([[*rest[0], *fill, *rest[1]] for fill in fills])
        free = torch.full_like(tokens, whole, dtype=torch.bool)
        free[:, self.start : self.start + len(fills[0])] = True
        return Sequences(tokens, torch.full((len(fills),), tokens.shape[1]), free=free)


class Methods:
    """Each way to fill a gap, on one model."""

    def __init__(self, model: Any, seed: int) -> None:
        self.model, self.scorer, self.seed = model, DistinctScorer(model), seed
        self.left, self.sure = Ordered("left-to-right"), Ordered(rule="confident")
        self.mixture, self.pair = parse_energy(DEFAULT_ENERGY), Ordered(orders=2)

    def answers(self, gap: Gap) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what each method says of the truth, and what its fills cost."""
        yield FILL_MASK, self._independent(gap)
        if gap.size > 1 or gap.unknown:  # one place has one answer
            beam, cost = self._timed(lambda: self._beam(gap))
            yield BEAM, self._listed(gap, beam) | self._ordered(gap, self.left) | cost
        if gap.unknown:
            yield EVEN, self._ordered(gap, self.mixture, draws=0) | {"passes": None}
        elif gap.size > 1:
            one, cost = self._timed(lambda: self._mask_predict(gap))
            row = self._listed(gap, [(one, 0.0)]) | self._ordered(gap, self.sure, draws=0) | cost
            yield MASK_PREDICT, row | {"top": None, "rank20": None}
            again, cost = self._timed(lambda: self._sound_beam(gap))
            yield SOUND, self._listed(gap, again) | {"top": None} | cost
            yield SMALL, self._infill(gap, self.pair, passes=1)
        yield INFILL, self._infill(gap, self.mixture)

    def chains(self, gap: Gap, passes: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what chains say of the truth after some passes.

        Chains start at fills from left to right. The shares are those of the second half of their
        states, with one more that is spread like the independent blanks of fill-mask: a truth that
        was not visited has a probability, too.
        """
        base = math.exp(self._independent(gap)["log_p"])
        for name in TARGETS:
            kernel = Metropolis(parse_energy(name), Span() if gap.size > 1 else Site())
            self.scorer.known.clear()
            begun, spent, states = time.process_time(), self.scorer.passes, list[Tokens]()
            used = 0
            for chains in self._chain_states(gap, kernel):
                rows = chains.tokens[:, gap.start : gap.start + gap.size].tolist()
                states += map(tuple, rows)
                used = self.scorer.passes - spent
                # A chain that has seen all it proposes runs no passes any more.
                if used >= passes or len(states) >= 20 * passes:
                    break
            row = self._shares(gap, Counter(states[len(states) // 2 :]), base)
            cost = {"passes": used, "seconds": round(time.process_time() - begun, 3)}
            yield f"chains, {name}", row | cost

    def _chain_states(self, gap: Gap, kernel: Metropolis) -> Iterator[Chains]:
        """Yield the chains after each step, without end."""
        asked, chain = gap.filled([(self.model.mask_id,) * gap.size] * CHAINS), torch.arange(CHAINS)
        rng, zero = CounterRng(self.seed), torch.zeros_like(chain)
        tokens, *_ = self.left.draw(self.scorer, asked, chain, zero, rng)
        assert asked.free is not None
        chains = Chains.at(tokens, chain, asked.lengths, asked.free)
        while True:
            for after, _ in epoch(kernel, chains, self.scorer, rng):
                chains = after
                yield chains
            chains = ended(chains)

    def _shares(self, gap: Gap, counts: Counter[Tokens], base: float) -> dict[str, Any]:
        """Return what shares of states say of the truth."""
        total, own = counts.total(), counts[gap.truth]
        best = [fill for fill, _ in counts.most_common(TOP)]
        above = sum(n for n in counts.values() if n > own) / total
        return {
            "rank1": best[0] == gap.truth, "rank20": gap.truth in best,
            "top": counts[best[0]] / total, "log_p": math.log((own + base) / (total + 1)),
            "above": above if own else 1.0,
        }  # fmt: skip

    def text(self, gap: Gap, fill: Tokens) -> str:
        """Return the sentence with a fill."""
        ids = gap.filled([fill]).tokens[0].tolist()
        return detokenised(self.model.decode(ids), self.model.token_strings(ids))

    def _timed(self, call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
        self.scorer.known.clear()
        before, begun = self.scorer.passes, time.process_time()
        found = call()
        seconds = round(time.process_time() - begun, 3)
        return found, {"passes": self.scorer.passes - before, "seconds": seconds}

    def _listed(self, gap: Gap, fills: list[tuple[Tokens, float]]) -> dict[str, Any]:
        """Return whether the truth is first and among the first 20 of fills with their log p."""
        texts, truth = [self.text(gap, fill) for fill, _ in fills[:TOP]], self.text(gap, gap.truth)
        return {"rank1": texts[0] == truth, "rank20": truth in texts, "top": math.exp(fills[0][1])}

    def _logs(self, tokens: Tensor, masked: Tensor) -> Float[Tensor, "masked vocabulary"]:
        """Return log p of every token at masked places."""
        length = torch.full((len(tokens),), tokens.shape[1])
        hidden = self.scorer.hidden(Queries(tokens, length, masked))
        scores = torch.cat([self.model.logits(one) for one in hidden.split(self.model.head_rows)])
        return scores.double().masked_fill(self.model.forbidden, -torch.inf).log_softmax(1)

    def _independent(self, gap: Gap) -> dict[str, Any]:
        """Fill each blank as if the others stayed masked (fill-mask of transformers)."""
        even = -math.log(len(gap.sizes))
        generator = torch.Generator().manual_seed(self.seed)

        def best() -> tuple[dict[int, Tensor], list[tuple[Tokens, float]]]:
            every, found = {}, list[tuple[Tokens, float]]()
            for size in gap.sizes:
                tokens = gap.shape(self.model.mask_id, size).tokens[None]
                every[size] = logs = self._logs(tokens, tokens == self.model.mask_id)
                fills, scores = [()], torch.tensor([even], dtype=torch.float64)
                for place in logs:
                    scores, index = (scores[:, None] + place).flatten().topk(TOP)
                    pairs = [divmod(one, len(place)) for one in index.tolist()]
                    fills = [(*fills[before], token) for before, token in pairs]
                found += zip(fills, scores.tolist(), strict=True)
            return every, sorted(found, key=lambda one: -one[1])

        (every, found), cost = self._timed(best)
        log_p = float(every[gap.size].gather(1, torch.tensor(gap.truth)[:, None]).sum())
        if gap.sizes == range(1, 2):
            above = float(every[1].exp()[every[1] > log_p].sum())
        else:
            drawn = []
            for size in self._drawn_sizes(gap):
                token = torch.multinomial(every[size].exp(), 1, generator=generator)
                drawn.append(float(every[size].gather(1, token).sum()))
            above = sum(one > log_p for one in drawn) / (DRAWS + 1)
        return self._listed(gap, found) | {"log_p": log_p + even, "above": above} | cost

    def _drawn_sizes(self, gap: Gap, weights: list[float] | None = None) -> list[int]:
        return random.Random(f"{self.seed} {gap.ids}").choices(gap.sizes, weights, k=DRAWS)

    def _ordered(
        self, gap: Gap, energy: Any, draws: int = DRAWS, lengths: dict[int, float] | None = None
    ) -> dict[str, Any]:
        """Return log p of the truth by an ordered energy, and the share of draws above it."""
        lengths = lengths or dict.fromkeys(gap.sizes, 1 / len(gap.sizes))
        own = -float(energy.evaluate(self.scorer, gap.filled([gap.truth])).value)
        log_p = own + math.log(lengths[gap.size])
        row: dict[str, Any] = {"log_p": log_p}
        if not draws:
            return row
        sizes, above = self._drawn_sizes(gap, list(lengths.values())), 0
        for size in dict.fromkeys(sizes):
            asked = gap.filled([(self.model.mask_id,) * size] * sizes.count(size))
            chain = torch.arange(len(asked.tokens))
            rng = CounterRng(self.seed)
            step = torch.full_like(chain, size)
            tokens, cells, _ = energy.draw(self.scorer, asked, chain, step, rng)
            values = (
                energy.evaluate(self.scorer, asked.with_tokens(tokens)).value
                if cells is None
                else cells.sum(1)
            )
            above += int((math.log(lengths[size]) - values > log_p).sum())
        return row | {"above": above / (DRAWS + 1)}

    def _beam(self, gap: Gap) -> list[tuple[Tokens, float]]:
        """Search from left to right, at each size that the gap may have."""
        found = list[tuple[Tokens, float]]()
        for size in gap.sizes:
            shape = gap.shape(self.model.mask_id, size)
            tokens = shape.tokens[None]
            score = torch.full((1,), -math.log(len(gap.sizes)), dtype=torch.float64)
            for place in shape.places:
                masked = torch.zeros_like(tokens, dtype=torch.bool)
                masked[:, place] = True
                logs = score[:, None] + self._logs(tokens, masked)
                score, best = logs.flatten().topk(TOP)
                tokens = tokens[best // logs.shape[1]]
                tokens[:, place] = best % logs.shape[1]
            found += zip(map(tuple, tokens[:, shape.places].tolist()), score.tolist(), strict=True)
        return sorted(found, key=lambda one: -one[1])

    def _mask_predict(self, gap: Gap) -> Tokens:
        """Fill all blanks, then mask the least sure again, with fewer each time (Ghazvininejad)."""
        tokens = gap.shape(self.model.mask_id, gap.size).tokens[None].clone()
        places = torch.arange(gap.start, gap.start + gap.size)
        sure = torch.zeros(gap.size, dtype=torch.float64)
        again = torch.ones(gap.size, dtype=torch.bool)
        for left in range(gap.size - 1, -1, -1):
            masked = torch.zeros_like(tokens, dtype=torch.bool)
            masked[0, places[again]] = True
            tokens[masked] = self.model.mask_id
            best = self._logs(tokens, masked).exp().max(1)
            tokens[masked], sure[again] = best.indices, best.values
            again = torch.zeros_like(again)
            again[sure.argsort()[:left]] = True
        return tuple(tokens[0, places].tolist())

    def _sound_beam(self, gap: Gap) -> list[tuple[Tokens, float]]:
        """Order the beam by the Hammersley–Clifford–Besag score against a pivot (2402.15020)."""
        fills, pivot = [fill for fill, _ in self._beam(gap)], self._mask_predict(gap)
        mixed = [
            (*fill[:number], self.model.mask_id, *pivot[number + 1 :])
            for fill in fills for number in range(gap.size)
        ]  # fmt: skip
        rows = gap.filled(mixed).tokens
        logs = self._logs(rows, rows == self.model.mask_id).view(len(fills), gap.size, -1)
        both = logs.gather(2, torch.tensor([[*zip(fill, pivot, strict=True)] for fill in fills]))
        scores = (both[..., 0] - both[..., 1]).sum(1)
        return [(fills[index], 0.0) for index in scores.argsort(descending=True).tolist()]

    def _infill(self, gap: Gap, energy: Any, passes: int = PASSES) -> dict[str, Any]:
        """Fill as `maskov infill` does."""
        filler = Filler(energy, 1.0, OrderedFills(self.scorer), passes)
        shapes = [gap.shape(self.model.mask_id, size) for size in gap.sizes]
        found, cost = self._timed(lambda: filler.fill("", shapes))
        texts, truth = [one.text for one in found.fills[:TOP]], self.text(gap, gap.truth)
        row = {"rank1": texts[0] == truth, "rank20": None, "top": found.fills[0].probability}
        if energy is self.mixture:
            row |= {"rank20": truth in texts, "first": texts[0], "truth": truth}
        lengths = {size: p for size, (p, _) in found.lengths.items()}
        if lengths:
            row |= {"length": lengths[gap.size], "lengths": list(lengths.values())}
        draws = 0 if energy is not self.mixture or gap.sizes == range(1, 2) else DRAWS
        return row | self._ordered(gap, energy, draws, lengths) | cost


def sentences(model: Any, path: Path) -> Iterator[list[int]]:
    """Yield the tokens of sentences of 12 to 24 tokens, in lower case, or of all heavy chains."""
    if path.suffix == ".fa":
        heavy = [one for one in read_fasta(path) if "VH" in one.name]
        yield from (model.encode(spelled(model, one)) for one in heavy)
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip().startswith("="):
            continue
        text = line.lower().replace(" @-@ ", "-").replace(" @,@ ", ",").replace(" @.@ ", ".")
        for part in text.split(" . "):
            ids = model.encode(part.strip().rstrip(".").strip() + " .")
            if 12 <= len(ids) <= 24 and not any(bool(model.forbidden[one]) for one in ids):
                yield ids


def document(out: Path, model: str) -> Path:
    """Return the file with the answers of a model, a gap a line."""
    return out / f"{model}.jsonl"


def measure(options: argparse.Namespace) -> None:
    """Fill gaps by every method, or by chains, and keep what each says of the truth."""
    end = time.monotonic() + options.seconds
    torch.set_num_threads(options.threads)
    model = maskov.load(options.model)
    pool = list(sentences(model, options.texts))
    random.Random(options.seed).shuffle(pool)
    methods, path = Methods(model, options.seed), document(options.out, options.model)
    asked = [tuple(map(int, one.split(":"))) for one in options.gaps.split(",")]
    # All kinds advance together, so that a document that is cut short has some of each.
    plan = sorted((n / count, kind, n) for kind, count in asked for n in range(count))
    # Each kind goes through all sentences before it comes back to one.
    stride = next(step for step in itertools.count(MOST + 1) if math.gcd(step, len(pool)) == 1)
    by_chains = options.action == "chains"
    if by_chains:
        rows = {(one["kind"], one["number"]): one["methods"][INFILL] for one in _read(path)}
        path = path.with_suffix(".chains")
    done = {(row["kind"], row["number"]) for row in _read(path)} if path.exists() else set()
    with torch.inference_mode(), path.open("a", encoding="utf-8") as file:
        for _, kind, number in plan:
            if (kind, number) in done:
                continue
            if time.monotonic() > end:
                break
            chosen = random.Random(f"{options.seed} {kind} {number}")
            size = kind or chosen.randint(1, MOST)
            ids = pool[(number * stride + kind) % len(pool)]
            gap = Gap(ids, chosen.randrange(len(ids) - size), size, not kind)
            if by_chains:
                budget = max(rows[kind, number]["passes"], FEWEST)
                answers = dict(methods.chains(gap, budget))
            else:
                answers = dict(methods.answers(gap))
            if not by_chains and gap.sizes == range(1, 2):  # known from all tokens
                answers[INFILL]["above"] = answers[FILL_MASK]["above"]
            row = {"kind": kind, "number": number, "size": size, "methods": answers}
            rounded = json.loads(json.dumps(row), parse_float=lambda text: round(float(text), 4))
            file.write(json.dumps(rounded, ensure_ascii=False) + "\n")
            file.flush()


def page(out: Path, model: str) -> None:
    """Write the tables, the figure and some examples."""
    gaps = _read(document(out, model))
    text = [
        "# Gaps restored", "",
        "Artificial gaps in sentences of 12 to 24 tokens of held-out text (WikiText-2 test), model "
        f"{model}: {_counts(gaps)}. log p is the mean log-probability of "
        "the missing tokens together, in nats. The next column is how much more `infill` gives "
        "them, with the standard error of the paired difference. Coverage is how often the 90 % "
        "set has them, ECE the expected calibration error of the first fill. Passes and seconds "
        "are those of one gap on one core, without what the measurement needs.", "",
        f"`infill` has its default energy, {DEFAULT_ENERGY}. With two orders and a search of width "
        f"4 it needs fewer passes than the beam, whose width is {TOP}; a wider beam finds more "
        f"fills but makes none more probable. Searches of `infill` end after {PASSES} passes; by "
        "default they are wider, which lists more fills and changes no probability. "
        "Of mask-predict, log p is that of the same order, the surest place next, one place a "
        "pass. Peers that know no length take each of four as equally probable. One blank is the "
        "same for all methods.", "", *_table(gaps),
    ]  # fmt: skip
    small = [
        f"{_gain([one['methods'] for one in gaps if one['kind'] == kind], SMALL, BEAM)} ({kind} "
        "tokens)" for kind in _kinds(gaps) if kind > 1
    ]  # fmt: skip
    text += [
        "", f"What `infill` with two orders gains over the beam in log p: {', '.join(small)}. "
        "Mask-predict needs a pass for each token and lists one fill.",
    ]  # fmt: skip
    if (chains := document(out, model).with_suffix(".chains")).exists():
        text += _chains(gaps, _read(chains))
    text += _unknown(gaps)
    for other in sorted({*out.glob("*.jsonl")} - {document(out, model)}):
        theirs = _read(other)
        text += [
            "", "## Antibodies", "", f"Gaps in 25 humanised heavy chains (humab25), model "
            f"{other.stem}: {_counts(theirs)}.", "", *_table(theirs), *_unknown(theirs),
        ]  # fmt: skip
    energies = out / "energies.json"
    if energies.exists():
        text += _energies(json.loads(energies.read_text()))
    text += ["", "![reliability](reliability.svg)", "", "## Examples", ""]
    for title, good in (("Good", True), ("Bad", False)):
        some = [
            one["methods"][INFILL] for one in sorted(gaps, key=lambda one: one["number"])
            if one["size"] > 1 and one["methods"][INFILL]["rank1"] is good
        ][:6]  # fmt: skip
        text += [f"{title}:", ""]
        text += [
            f"- {one['truth']} — first: {one['first']} (p {one['top']:.2f}; log p of the truth "
            f"{one['log_p']:.1f})" for one in some
        ] + [""]  # fmt: skip
    text += ["```console", *_COMMANDS, "```"]
    (out / "README.md").write_text("\n".join(text).rstrip() + "\n", encoding="utf-8")
    _figure([one["methods"] for one in gaps if one["kind"]], out / "reliability.svg")


_COMMANDS = (
    "$ python -m experiments.studies.restoration measure DATA/test/wikitext2_raw.test.txt --out "
    "results/restoration --gaps 1:300,2:300,3:200,4:200,0:200,5:100,6:100,7:100,8:100",
    "$ python -m experiments.studies.restoration chains DATA/test/wikitext2_raw.test.txt --out "
    "results/restoration --gaps 1:30,2:30,3:30",
    "$ python -m experiments.studies.restoration measure "
    "DATA/antibody/humab25/experimental.fa --model sapiens-vh --out results/restoration "
    "--gaps 1:150,2:150,3:150,4:150,0:150",
    "$ python -m experiments.studies.fill_energies DATA/test/wikitext2_raw.valid.txt --model "
    "wiki-any --out results/restoration",
    "$ python -m experiments.studies.restoration page --out results/restoration",
)


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(one) for one in path.read_text(encoding="utf-8").splitlines()]


def _kinds(gaps: list[dict[str, Any]]) -> list[int]:
    return sorted({one["kind"] for one in gaps}, key=lambda kind: kind or math.inf)


def _counts(gaps: list[dict[str, Any]]) -> str:
    """Say how many gaps of each size there are."""
    said = []
    for kind in _kinds(gaps):
        size = f"{kind} token{'s' if kind > 1 else ''}" if kind else "unknown length"
        said.append(f"{sum(one['kind'] == kind for one in gaps)} of {size}")
    return ", ".join(said)


def _table(gaps: list[dict[str, Any]]) -> list[str]:
    """Return the table of all methods."""
    lines = [
        "| tokens | method | gaps | top-1 | top-20 | log p | `infill` gains | coverage | ECE "
        "| passes | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for kind in _kinds(gaps):
        mine = [one["methods"] for one in gaps if one["kind"] == kind]
        label = str(kind) if kind else f"unknown, 1 to {MOST}"
        lines += [_line(label, method, mine) for method in mine[0]]
    return lines


def _chains(gaps: list[dict[str, Any]], filled: list[dict[str, Any]]) -> list[str]:
    """Return the table of chains, beside `infill` on the same gaps."""
    own = {(one["kind"], one["number"]): one["methods"][INFILL] for one in gaps}
    both = [
        one | {"methods": one["methods"] | {INFILL: own[one["kind"], one["number"]]}}
        for one in filled
    ]
    return [
        "", "## Chains", "",
        f"The first gaps of each size again ({_counts(filled)}), by {CHAINS} Metropolis-Hastings "
        "chains (single sites for one token, spans otherwise) that start at fills from left to "
        "right. They end at the first step after as many passes as `infill` needs, or after "
        f"{FEWEST} where that is fewer; equal passes are run once. "
        "For one and two tokens the energies of the starts under `norm` and `raw` must take most "
        "of these passes (steps were not counted). Probabilities are shares of "
        "the second half of their states, with one state more that is spread like fill-mask's "
        "independent blanks, without which a truth that was not visited would have log p −∞.", "",
        *_table(both),
    ]  # fmt: skip


def _unknown(gaps: list[dict[str, Any]]) -> list[str]:
    """Say how well lengths are known."""
    rows = [(one["methods"][INFILL], one["size"]) for one in gaps if not one["kind"]]
    if not rows:
        return []
    true = np.array([max(one["length"], 1e-4) for one, _ in rows])  # as rounded
    every = np.array([one["lengths"] for one, _ in rows])
    inside = [one["length"] > 0 and sum(p for p in one["lengths"] if p > one["length"]) < 0.9
              for one, _ in rows]  # fmt: skip
    return [
        "", f"Unknown lengths, {len(rows)} gaps: the true length has probability "
        f"{np.mean(true):.2f} on average (evenly: {1 / MOST:.2f}; if the probabilities are right, "
        f"{np.mean((every**2).sum(1)):.2f}). Its log score is {_with_error(np.log(true))} (evenly: "
        f"{-math.log(MOST):.2f}; if the probabilities are right, "
        f"{np.mean(xlogy(every, every).sum(1)):.2f}). The 90 % sets of lengths have it in "
        f"{sum(inside)} of {len(rows)} gaps. The order and the reach of the text that tells "
        "lengths were chosen on 112 gaps of WikiText-2 validation.",
    ]  # fmt: skip


def _figure(gaps: list[dict[str, Any]], path: Path) -> None:
    """Draw how often the first fill is right against its probability, for known lengths."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
    for method in (FILL_MASK, BEAM, INFILL):
        # One blank is the same for all.
        rows = [one.get(method, one[INFILL]) for one in gaps]
        bins = [b for b in _bins(rows) if len(b) >= 5]
        right = np.array([np.mean([one["rank1"] for one in b]) for b in bins])
        errors = np.sqrt(right * (1 - right) / [len(b) for b in bins])
        axes.errorbar([np.mean([one["top"] for one in b]) for b in bins], right, errors, fmt="-o",
                      capsize=2, label=method.strip("`"))  # fmt: skip
    axes.set_xlabel("probability of the first fill")
    axes.set_ylabel("how often it is the truth")
    axes.legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=150)


def _energies(document: dict[str, Any]) -> list[str]:
    """Return the table by which the default energy was chosen."""
    counts = document["gaps"]
    lines = [
        "", "## Which energy", "",
        f"log p of the missing tokens on other text ({document['texts']}), and the difference to "
        "the first line (`python -m experiments.studies.fill_energies`). "
        "Z of energies that are not normalised is estimated from a few draws. "
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


def _line(label: str, method: str, gaps: list[dict[str, Any]]) -> str:
    """Return the line of the table for one method."""
    rows = [one[method] for one in gaps]

    def mean(name: str, digits: int = 2) -> str:
        values = [one[name] for one in rows if one.get(name) is not None]
        return f"{np.mean(values):.{digits}f}" if values else "–"

    cover = ece = log_p = gain = "–"
    if rows[0].get("log_p") is not None:
        values = np.array([one["log_p"] for one in rows])
        log_p = _with_error(values)
        if method != INFILL:
            gain = _gain(gaps, INFILL, method)
    if rows[0].get("above") is not None:
        cover = f"{np.mean([one['above'] < 0.9 for one in rows]):.2f}"
    if rows[0].get("top") is not None:
        each = [abs(sum(o["top"] - o["rank1"] for o in b)) for b in _bins(rows) if b]
        ece = f"{sum(each) / len(rows):.3f}"
    return (
        f"| {label} | {method} | {len(rows)} | {mean('rank1')} | {mean('rank20')} | {log_p} "
        f"| {gain} | {cover} | {ece} | {mean('passes', 0)} | {mean('seconds')} |"
    )


def _gain(gaps: list[dict[str, Any]], method: str, other: str) -> str:
    """Return how much more log p a method gives the truths than another."""
    return _with_error(np.array([one[method]["log_p"] - one[other]["log_p"] for one in gaps]), "+")


def _with_error(values: Any, sign: str = "") -> str:
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    return f"{np.mean(values):{sign}.2f} ± {error:.2f}"


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("action", choices=("measure", "chains", "page"))
    parser.add_argument("texts", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="wiki-any")
    parser.add_argument("--gaps", default="1:500,2:500,3:500,4:500,0:500", help="SIZE:COUNT,...")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no gap after them")
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
