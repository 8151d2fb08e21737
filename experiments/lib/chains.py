"""Cells that sample chains: unconditional text, and translations of a test set."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import maskov
from experiments.lib import bleu
from experiments.lib.cell import LATER, Cell, CellResult
from experiments.lib.context import Context, pair_of
from experiments.lib.estimates import PARTS, averages, by_replicate, correlation, curves, estimate
from experiments.lib.sentences import choose_sentences
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
from maskov.evaluation import most_alike, perplexity
from maskov.models.conditional import ConditionalModel
from maskov.moves import Site

# Texts that a cell stores, to be read and rated.
_STORED_TEXTS = 500
# Rough values for planning: tokens of a translation, share of proposals that differ.
_EXPECTED_LENGTH, _EXPECTED_NOVEL = 20, 0.4


@dataclass(frozen=True)
class Chains(Cell):
    """A sampler and its schedule.

    `sampler` is deg (degenerate Gibbs), raw, norm or autoregressive. Each epoch lowers `block` by
    `shrink`, down to 1, and the target temperature by `anneal`, from `target`. Acceptance is
    delayed only with `nearest`, the positions of its first stage: it accepts less often than the
    algorithm whose rates are reported.
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
    target: float = field(default=1.0, metadata=LATER, kw_only=True)
    nearest: int = field(default=0, metadata=LATER, kw_only=True)

    def kernel(self, context: Context) -> Kernel:
        """Return the kernel."""
        proposal = MaskedConditional(self.temperature, None, self.top_p, self.epsilon)
        positions = Sweep(block=self.block)
        if self.sampler == "deg":
            return Gibbs(Site(proposal, positions))
        if self.sampler == "autoregressive":
            return Metropolis(
                context.judge(), Site(proposal, positions), delayed=DelayedAcceptance(0)
            )
        delayed = DelayedAcceptance(self.nearest)
        return Metropolis(parse_energy(self.sampler), Site(proposal, positions), delayed=delayed)

    def schedule(self) -> Schedule:
        """Return the schedule; annealing stops at temperature 0.01."""
        changes = self.anneal > 0 or self.target != 1
        floor = 0.01 if self.anneal else self.target
        return Schedule(
            self.epochs,
            self.burn_in,
            LinearSchedule(self.target, self.anneal, floor) if changes else None,
            LinearSchedule(float(self.block), self.shrink, 1.0) if self.shrink else None,
            self.forced,
        )

    def sample(
        self, model: maskov.MaskedModel, context: Context, folder: Path, **settings: Any
    ) -> maskov.Run:
        """Run the chains, or resume an interrupted run."""
        if (folder / "manifest.json").is_file():
            return maskov.resume(folder, model, stop=context.stop)
        return maskov.sample(
            model,
            self.kernel(context),
            self.schedule(),
            chains=self.chains,
            seed=self.seed,
            out=folder,
            stop=context.stop,
            **settings,
        )

    def chain_passes(self, count: int, length: float) -> float:
        """Return a rough number of passes of `count` chains."""
        steps = count * self.epochs * length / self.block
        each = 1.0 if self.sampler == "deg" else _EXPECTED_NOVEL * length * min(self.block, 2)
        return steps * each + (count * self.epochs * length if self.sampler == "deg" else 0.0)


def summarize(run: maskov.Run, each: int, burn_in: int) -> CellResult:
    """Return the signature, averages and curves of a run."""
    traces = by_replicate(run.traces, each)
    values = averages(traces, burn_in)
    energy_correlation = correlation(run.traces, each, burn_in)
    if energy_correlation is not None:
        values["correlation"] = energy_correlation
    by_epoch = curves(traces)
    kept = zip(*(by_epoch["energy_norm"][part][burn_in:] for part in PARTS), strict=True)
    best = min((row for row in kept if row[0] is not None), default=None)
    if best is not None:
        values["energy_norm_best"] = dict(zip(PARTS, best, strict=True)) | {"n": each}
    check = run.manifest.precision_check
    return {
        "signature": run.signature,
        "seed": run.manifest.config.seed,
        "leaves_invariant": run.manifest.leaves_invariant,
        "notes": list(run.manifest.notes),
        "energy_shift": None if check is None else asdict(check),
        "replicates": each,
        "values": values,
        "epochs": by_epoch,
    }


@dataclass(frozen=True)
class TextChains(Chains):
    """Unconditional chains of a masked model, with perplexities from a causal one."""

    kind: ClassVar[str] = "text"

    length: tuple[int, int] = (15, 45)
    model: str = "base"

    def roles(self) -> tuple[str, ...]:
        """Return the roles of the models."""
        return (self.model, "judge")

    @property
    def expected_passes(self) -> float:
        """A rough number of masked passes."""
        return self.chain_passes(self.chains, sum(self.length) / 2)

    def run(self, context: Context, folder: Path) -> CellResult:
        """Sample; compute the perplexity of the last sequence of each chain."""
        model = context.masked_model(self.model)
        run = self.sample(model, context, folder, length=self.length)
        texts = [sample.text for sample in run.samples]
        result = summarize(run, self.chains, self.burn_in)
        _, per_sentence, per_token, nll = perplexity(context.judge(), texts)
        result["values"] |= {
            name: {"value": mean.value, "standard_error": mean.standard_error, "n": len(texts)}
            for name, mean in (
                ("perplexity", per_sentence),
                ("perplexity_per_token", per_token),
                ("nll", nll),
            )
        }
        return result | {"texts": texts[:_STORED_TEXTS]}


@dataclass(frozen=True)
class Translations(Chains):
    """Chains of translations: `chains` per sentence, all started from the same greedy pass.

    The c-th chains of all sentences form one replicate. BLEU is computed for each replicate every
    `every` epochs after burn-in and averaged; `bleu_best` and `bleu_last` are single epochs.
    `bleu_mbr` is that of one translation per sentence, chosen from the last ones of all chains by
    minimum Bayes risk. Sources with more than `longest` tokens are skipped; without `longest`, a
    source that is too long for the model counts as an empty translation.
    """

    kind: ClassVar[str] = "translation"

    data: str = ""
    sentences: int | None = None
    longest: int | None = None
    every: int = 1
    trace: str = "every"

    def roles(self) -> tuple[str, ...]:
        """Return the roles of the models."""
        return (pair_of(self.data),)

    @property
    def expected_passes(self) -> float:
        """A rough number of masked passes."""
        return self.chain_passes(self.chains * (self.sentences or 3000), _EXPECTED_LENGTH)

    def run(self, context: Context, folder: Path) -> CellResult:
        """Sample; compute BLEU of each replicate."""
        model = context.masked_model(*self.roles())
        assert isinstance(model, ConditionalModel)
        chosen = choose_sentences(model, *context.pairs(self.data), self.sentences, self.longest)
        references = chosen.references
        run = self.sample(
            model.given(chosen.sources), context, folder, start="greedy", thin=self.every,
            trace=self.trace,
        )  # fmt: skip
        result = summarize(run, self.chains, self.burn_in)
        replicates: dict[int, list[list[str]]] = {}
        for sample in run.samples:
            texts = replicates.setdefault(sample.epoch, [[] for _ in range(self.chains)])
            texts[sample.chain % self.chains].append(sample.text)
        replicates = {
            epoch: [chosen.with_empty(texts) for texts in rows]
            for epoch, rows in replicates.items()
        }
        scores = {
            epoch: [bleu.corpus_bleu(texts, references) for texts in rows]
            for epoch, rows in sorted(replicates.items())
        }
        epochs = list(scores)
        means = [estimate(scores[epoch]) for epoch in epochs]
        result["values"] |= {
            "bleu": estimate([sum(row) / len(row) for row in zip(*scores.values(), strict=True)]),
            "bleu_best": max(means, key=lambda mean: mean["value"]),
            "bleu_last": means[-1],
        }
        result["epochs"]["bleu"] = {
            "epoch": epochs, **{part: [mean[part] for mean in means] for part in means[0]}
        }  # fmt: skip
        last = replicates[epochs[-1]]
        if self.chains > 2:
            likest = [texts[most_alike(texts)] for texts in zip(*last, strict=True)]
            counts = bleu.sentence_counts([likest], references)
            result["mbr_counts"] = counts
            result["values"]["bleu_mbr"] = {
                "value": bleu.corpus_bleu(likest, references),
                "standard_error": bleu.bleu_error(counts),
                "n": len(references),
            }
        return result | {
            "sentences": len(references),
            "left_out": chosen.left_out,
            "bleu_signature": bleu.signature(),
            "texts": last[0][:_STORED_TEXTS],
            "sentence_counts": bleu.sentence_counts(last, references),
        }


def spacing(kept: int, points: int) -> int:
    """Return the smallest step that divides the kept epochs into at most `points` parts."""
    return next(step for step in range(1, kept + 1) if kept % step == 0 and kept // step <= points)
