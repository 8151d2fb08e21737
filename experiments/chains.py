"""Chains as cells: unconditional text, and translations of a test set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import maskov
from experiments import bleu
from experiments.estimates import PARTS, averages, by_replicate, correlation, curves, estimate
from experiments.work import Found, Work
from experiments.workshop import Workshop, pair_of
from maskov import (
    DelayedAcceptance,
    Gibbs,
    Kernel,
    LinearSchedule,
    MaskedConditional,
    Metropolis,
    Schedule,
    Sweep,
)
from maskov.energies import parse_energy
from maskov.errors import InputError
from maskov.evaluation.perplexity import perplexity
from maskov.models.conditional.model import ConditionalModel
from maskov.moves import Site

# Texts that a cell keeps, to be read and rated.
_KEPT = 500
# Guesses, for plans alone: positions of a translation, and the share of proposals that differ.
_LENGTH, _DIFFERENT = 20, 0.4


@dataclass(frozen=True)
class Chains(Work):
    """A sampler and how long it runs.

    `sampler` is deg (degenerate Gibbs), raw, norm, or autoregressive. `block` falls by `shrink` an
    epoch to single positions, the target's temperature by `anneal` from 1. Every test is taken in
    full: delayed acceptance would accept less often than the algorithm whose rates are reported.
    """

    sampler: str
    chains: int
    epochs: int
    burn_in: int
    temperature: float = 1.0
    top_p: float = 1.0
    epsilon: float = 0.0
    block: int = 1
    shrink: float = 0.0
    anneal: float = 0.0
    forced: int = 0
    seed: int = 0

    def kernel(self, workshop: Workshop) -> Kernel:
        """Return the kernel."""
        proposal = MaskedConditional(self.temperature, None, self.top_p, self.epsilon)
        positions = Sweep(block=self.block)
        if self.sampler == "deg":
            return Gibbs(Site(proposal, positions))
        if self.sampler == "autoregressive":
            return Metropolis(workshop.judge(), Site(proposal, positions), delayed=DelayedAcceptance(0))
        return Metropolis(parse_energy(self.sampler), Site(proposal, positions), delayed=DelayedAcceptance(0))

    def schedule(self) -> Schedule:
        """Return the schedule; an annealed target stops at 0.01."""
        return Schedule(
            self.epochs,
            self.burn_in,
            LinearSchedule(1.0, self.anneal, 0.01) if self.anneal else None,
            LinearSchedule(float(self.block), self.shrink, 1.0) if self.shrink else None,
            self.forced,
        )

    def sampled(
        self, model: maskov.MaskedModel, workshop: Workshop, folder: Path, **settings: Any
    ) -> maskov.Run:
        """Run the chains, or go on with a run that was stopped."""
        if (folder / "manifest.json").is_file():
            return maskov.resume(folder, model, stop=workshop.stop)
        return maskov.sample(
            model,
            self.kernel(workshop),
            self.schedule(),
            chains=self.chains,
            seed=self.seed,
            out=folder,
            stop=workshop.stop,
            **settings,
        )

    def cost(self, count: int, length: float) -> float:
        """Guess the passes of `count` chains."""
        steps = count * self.epochs * length / self.block
        each = 1.0 if self.sampler == "deg" else _DIFFERENT * length * min(self.block, 2)
        return steps * each + (count * self.epochs * length if self.sampler == "deg" else 0.0)


def described(run: maskov.Run, each: int, burn_in: int) -> Found:
    """Return what every run of chains has to tell."""
    traces = by_replicate(run.traces, each)
    values = averages(traces, burn_in)
    together = correlation(run.traces, each, burn_in)
    if together is not None:
        values["correlation"] = together
    shown = curves(traces)
    kept = zip(*(shown["energy_norm"][part][burn_in:] for part in PARTS), strict=True)
    best = min((row for row in kept if row[0] is not None), default=None)
    if best is not None:
        values["energy_norm_best"] = dict(zip(PARTS, best, strict=True)) | {"n": each}
    return {
        "signature": run.signature,
        "seed": run.manifest.config.seed,
        "leaves_invariant": run.manifest.leaves_invariant,
        "notes": list(run.manifest.notes),
        "energy_shift": check_of(run),
        "replicates": each,
        "values": values,
        "epochs": shown,
    }


@dataclass(frozen=True)
class TextChains(Chains):
    """Unconditional chains of a masked model, judged by a causal one."""

    kind: ClassVar[str] = "text"

    length: tuple[int, int] = (15, 45)
    model: str = "base"

    def roles(self) -> tuple[str, ...]:
        """Return the models that are used."""
        return (self.model, "judge")

    @property
    def passes(self) -> float:
        """Guess the passes."""
        return self.cost(self.chains, sum(self.length) / 2)

    def run(self, workshop: Workshop, folder: Path) -> Found:
        """Run, and judge the last sequence of each chain."""
        model = workshop.masked(self.model)
        run = self.sampled(model, workshop, folder, length=self.length)
        texts = [one.text for one in run.samples]
        found = described(run, self.chains, self.burn_in)
        said = perplexity(workshop.judge(), texts)
        found["values"] |= {
            name: {"value": one.value, "standard_error": one.standard_error, "n": len(texts)}
            for name, one in (
                ("perplexity", said.per_sentence),
                ("perplexity_per_token", said.per_token),
                ("nll", said.nll),
            )
        }
        return found | {"texts": texts[:_KEPT]}


@dataclass(frozen=True)
class Translations(Chains):
    """Chains of translations, `chains` to each sentence, all started from the same greedy pass.

    The c-th chains of all sentences are one replicate; BLEU is that of a replicate at `every`
    epochs after burn-in, averaged. `best` and `last` are those of the single epochs. Sources of
    more than `longest` tokens are passed over, and so are those that the model cannot read.
    """

    kind: ClassVar[str] = "translation"

    data: str = ""
    sentences: int | None = None
    longest: int | None = None
    every: int = 1
    trace: str = "every"

    def roles(self) -> tuple[str, ...]:
        """Return the models that are used."""
        return (pair_of(self.data),)

    @property
    def passes(self) -> float:
        """Guess the passes."""
        return self.cost(self.chains * (self.sentences or 3000), _LENGTH)

    def run(self, workshop: Workshop, folder: Path) -> Found:
        """Run, and score each replicate."""
        model = workshop.masked(*self.roles())
        assert isinstance(model, ConditionalModel)
        everything = workshop.pairs(self.data)
        sources, references, long = readable(model, *everything, self.sentences, self.longest)
        run = self.sampled(
            model.given(sources), workshop, folder, start="greedy", thin=self.every,
            trace=self.trace,
        )  # fmt: skip
        found = described(run, self.chains, self.burn_in)
        written: dict[int, list[list[str]]] = {}
        for one in run.samples:
            rows = written.setdefault(one.epoch, [[] for _ in range(self.chains)])
            rows[one.chain % self.chains].append(one.text)
        scores = {
            epoch: [bleu.corpus_bleu(texts, references) for texts in rows]
            for epoch, rows in sorted(written.items())
        }
        epochs = list(scores)
        means = [estimate(scores[epoch]) for epoch in epochs]
        found["values"] |= {
            "bleu": estimate([sum(row) / len(row) for row in zip(*scores.values(), strict=True)]),
            "bleu_best": max(means, key=lambda one: one["value"]),
            "bleu_last": means[-1],
        }
        found["epochs"]["bleu"] = {
            "epoch": epochs, **{part: [one[part] for one in means] for part in means[0]}
        }  # fmt: skip
        return found | {
            "sentences": len(sources),
            "left_out": long,
            "bleu_signature": bleu.signature(),
            "texts": written[epochs[-1]][0][:_KEPT],
            "sentence_counts": bleu.sentence_counts(written[epochs[-1]], references),
        }


def readable(
    model: ConditionalModel,
    sources: list[str],
    references: list[str],
    most: int | None,
    longest: int | None = None,
) -> tuple[list[str], list[str], int]:
    """Return the first pairs whose source is not too long, and how many were passed over."""
    limit = min(longest or 10**9, model.network.shape.longest - 1)
    kept: list[tuple[str, str]] = []
    passed = 0
    for pair in zip(sources, references, strict=True):
        if len(kept) == most:
            break
        # The end of the source counts as a token of the model, not of the text.
        if len(model.source_ids(pair[0])) - 1 <= limit:
            kept.append(pair)
        else:
            passed += 1
    if not kept:
        raise InputError(f"no source of the test set has at most {limit} tokens.")
    return [a for a, _ in kept], [b for _, b in kept], passed


def spacing(kept: int, points: int) -> int:
    """Return the smallest step that divides the kept epochs into at most `points`."""
    return next(step for step in range(1, kept + 1) if kept % step == 0 and kept // step <= points)
