"""Translate with sampled lengths, beside mask-predict, fixed lengths and the autoregressive model.

    python -m experiments.translation_lengths TESTS --set europarl.dev.deen --most 1000 --out DIR

TESTS is a folder of NAME.LANGUAGE files, such as europarl.dev.deen.de. Systems already in DIR are
not run again, so that an interrupted run can be continued. DIR gets `lengths.json` (BLEU with
sacreBLEU's paired bootstrap against mask-predict with five lengths, energies of each sentence,
passes, seconds), `README.md` (the table) and `texts/`. A source that is too long for the models
counts as an empty translation.

Chains "with the twin" have the target E_norm − 0.5 log p of the autoregressive model; those "from
its translation" also start there. Every system's translations are also scored by that target, so
that the page shows which finds the lowest.

With `--tune` the systems are variants of the chains with sampled lengths, to choose their settings
on held-out pairs, such as those of `recipes.translation.pairs` (`valid.deen`).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.bleu import paired_difference, sentence_counts
from maskov.energies import AutoregressiveTranslation
from maskov.energies.loading import Loading
from maskov.energies.registry import weighted_terms
from maskov.errors import InputError
from maskov.evaluation.translation import compare
from maskov.models import choose_device, device_name, load
from maskov.models.conditional.lengths import choose_lengths
from maskov.models.conditional.model import ConditionalModel, read_sources
from maskov.models.fingerprints import model_weights_hash, weights_hash
from maskov.models.scorer import Scorer
from maskov.runs.files import write_atomically
from maskov.runs.sample import Sample
from maskov.shipped import folder_of, model_for
from maskov.translation.api import drafts_of, energies_of, run_method
from maskov.translation.autoregressive import AutoregressiveTranslator
from maskov.translation.methods import SAMPLED, TranslationMethod
from maskov.translation.selection import least_risk, lowest, lowest_target
from maskov.types import Sequences
from maskov.workers.options import Workers

# All others are compared with it.
BASELINE = "mask-predict, 5 lengths"
CHAINS = 5
# Chosen on held-out pairs (LOG.md): 1 is as good by BLEU, but the twin's own translations then have
# nearly as low an energy as those of the chains.
TWIN_WEIGHT = 0.5
_RESAMPLES = 1000
_SAMPLED = TranslationMethod("mh", lengths="sampled", chains=CHAINS, pick="lowest")
# The settings of the paper's Table 5, written out.
_PAPER = TranslationMethod(
    "mh", energy="raw", moves="site", epochs=33, temperature=0.8, target_temperature=1.0,
    anneal=0.02, target_floor=0.01, force_accept=2, lengths="best", start="greedy",
)  # fmt: skip

# Spans at the length of mask-predict's best candidate, from which they start.
_SEARCHED = TranslationMethod("mh", lengths="searched")
_FIVE = TranslationMethod("mask-predict", iterations=10, length_beam=5)

Selection = Callable[[list[Sample], list[Sample]], Sample]
# From all samples of a source, and from the last ones of its chains.
SELECTIONS: dict[str, Selection] = {
    "first chain": lambda samples, ends: ends[0],
    "lowest per token": lambda samples, ends: lowest(ends, "norm"),
    "lowest of the first chain": lambda samples, ends: lowest_target(
        [one for one in samples if one.chain == ends[0].chain]
    ),
    "lowest": lambda samples, ends: lowest_target(samples),
    "mbr": lambda samples, ends: least_risk(ends),
}
# Of the last samples of chains that have another target, or none.
RESCORED = "lowest with the twin"


@dataclass(frozen=True)
class System:
    """A method, and how one translation of each source is selected; some share a run."""

    method: TranslationMethod
    select: str = "first chain"


def twin_energy(twin: str, weight: float = TWIN_WEIGHT) -> str:
    """Return the target of chains with the twin."""
    return f"norm+{weight}*autoregressive({twin})"


def all_systems(chains: int = CHAINS, twin: str | None = None) -> dict[str, System]:
    """Return the systems; those with sampled lengths have so many chains, all of one run."""
    sampled = replace(_SAMPLED, chains=chains)
    systems = {
        "mask-predict": System(TranslationMethod("mask-predict", iterations=10)),
        BASELINE: System(_FIVE, "lowest per token"),
    }
    if twin is not None:
        systems[f"{BASELINE}, chosen with the twin"] = System(_FIVE, RESCORED)
    systems |= {
        "MH, fixed length (paper)": System(_PAPER),
        "MH, searched length": System(_SEARCHED),
        **_ways("MH, sampled length", sampled),
    }
    if twin is not None:
        method = replace(sampled, energy=twin_energy(twin))
        systems |= _ways("MH, sampled length, with the twin", method)
        method = replace(method, start="autoregressive")
        systems |= _ways("MH, sampled length, with the twin, from its translation", method)
    return systems | {
        "autoregressive, greedy": System(TranslationMethod("ar", beam=1)),
        "autoregressive, beam 5": System(TranslationMethod("ar", beam=5)),
    }


def _ways(name: str, method: TranslationMethod) -> dict[str, System]:
    """Return the ways to select from the chains of one run."""
    return {
        name: System(method),
        f"{name}, lowest of a chain": System(method, "lowest of the first chain"),
        f"{name}, lowest of all chains": System(method, "lowest"),
        f"{name}, MBR over chains": System(method, "mbr"),
    }


def _variants(twin: str | None = None) -> dict[str, System]:
    one = replace(_SAMPLED, chains=1)
    kept = {name: all_systems()[name] for name in ("mask-predict", BASELINE)}
    energies = ["norm", *(f"norm+{weight}*predicted_length" for weight in (0.5, 1, 2, 4))]
    energies += [f"raw+{weight}*predicted_length" for weight in (2, 4)]
    methods = {energy: replace(one, energy=energy) for energy in energies}
    if twin is not None:
        for weight in (0.25, 0.5, 1.0, 2.0):
            energy = twin_energy(twin, weight)
            methods[f"norm+{weight}*twin"] = replace(one, energy=energy)
        started = replace(one, energy=twin_energy(twin), start="autoregressive")
        methods["from the twin's translation"] = started
        for begin, fall in ((0.2, 0.01), (0.05, 0.0)):
            name = f"from the twin's translation, T = {begin}"
            methods[name] = replace(started, target_temperature=begin, anneal=fall)
    methods |= {
        "searched length": _SEARCHED,
        "from T = 1": replace(one, target_temperature=1.0, anneal=0.05),
        "from T = 0.2": replace(one, target_temperature=0.2, anneal=0.01),
        "40 epochs": replace(one, epochs=40, anneal=SAMPLED.anneal / 2),
        "five lengths": replace(
            _SAMPLED, lengths="top", energy=SAMPLED.energy, moves=SAMPLED.moves,
            start="mask-predict", delayed="2", force_accept=0, epochs=SAMPLED.epochs,
            target_temperature=SAMPLED.begin, anneal=SAMPLED.anneal, target_floor=SAMPLED.floor,
        ),
    }  # fmt: skip
    found = {name: System(method) for name, method in methods.items()}
    found["five lengths, lowest"] = System(methods["five lengths"], "lowest")
    found["five lengths, MBR"] = System(methods["five lengths"], "mbr")
    return kept | found


@dataclass(frozen=True)
class Outcome:
    """Some translations with their energies, and what they cost."""

    texts: list[str]
    raw: list[float]
    norm: list[float]
    ids: list[list[int]]
    seconds: float
    passes: int | None


class _Passes:
    """Notes the masked passes of a run."""

    passes = 0

    def begun(self, model: object) -> None:
        """Do nothing."""

    def noted(self, text: str) -> None:
        """Do nothing."""

    def moved(self, chains: object, epoch: int, passes: int) -> None:
        """Do nothing."""

    def epoch_ended(self, epoch: int, values: object, passes: int) -> None:
        """Note the passes so far."""
        self.passes = passes


class Experiment:
    """The models, the sources that they can read, and the runs so far."""

    def __init__(
        self, model: ConditionalModel, twin: AutoregressiveTranslator | None, sources: list[str],
        seed: int, expert: AutoregressiveTranslation | None = None, workers: int = 0,
    ) -> None:  # fmt: skip
        self.given, self.twin, self.seed = model.given(sources), twin, seed
        self._workers = Workers(workers)
        self.sources, self.expert = sources, expert
        self._runs: dict[TranslationMethod, tuple[list[list[Sample]], float, int]] = {}

    def outcome(self, system: System) -> Outcome:
        """Translate with a system."""
        if system.method.name == "ar":
            return self._autoregressive(system.method)
        if system.method not in self._runs:
            self._runs = {system.method: self._run(system.method)}
        samples, seconds, passes = self._runs[system.method]
        ends = [_last(own) for own in samples]
        if system.select == RESCORED:
            chosen = self._rescored(ends)
        else:
            select = SELECTIONS[system.select]
            chosen = [select(own, last) for own, last in zip(samples, ends, strict=True)]
        return Outcome(
            [one.text for one in chosen],
            [one.energy_raw for one in chosen],
            [one.energy_norm for one in chosen],
            [list(one.ids) for one in chosen],
            seconds,
            passes,
        )

    def _rescored(self, ends: list[list[Sample]]) -> list[Sample]:
        """Select the last sample of the lowest target with the twin, for each source."""
        every = [(row, one) for row, own in enumerate(ends) for one in own]
        values = self.twin_energies([row for row, _ in every], [list(one.ids) for _, one in every])
        totals: list[list[float]] = [[] for _ in ends]
        for (row, one), value in zip(every, values, strict=True):
            totals[row].append(one.energy_norm + TWIN_WEIGHT * value)
        return [own[int(np.argmin(total))] for own, total in zip(ends, totals, strict=True)]

    def _run(self, method: TranslationMethod) -> tuple[list[list[Sample]], float, int]:
        start, noted = time.monotonic(), _Passes()
        drafts = None
        if method.needs_twin:
            assert self.twin is not None
            drafts = drafts_of(self.given, self.twin)
        run = run_method(
            self.given, method, drafts, seed=self.seed, listener=noted, workers=self._workers
        )
        samples: list[list[Sample]] = [[] for _ in self.sources]
        for one in run.samples:
            samples[one.template].append(one)
        seconds = time.monotonic() - start
        searched = 0
        if method.length_rule == "searched" and drafts is None:
            tried = choose_lengths(self.given, "top", 5, 0)
            searched = sum(10 * len(lengths) + sum(lengths) for lengths in tried)
        return samples, seconds, noted.passes + searched

    def _autoregressive(self, method: TranslationMethod) -> Outcome:
        assert self.twin is not None
        start = time.monotonic()
        ids = self.twin.translate(self.sources, method.beam or 5)
        texts = [self.twin.tokenizer.decode(line).strip() for line in ids]
        seconds = time.monotonic() - start
        raw, norm = energies_of(self.given, texts)
        return Outcome(texts, raw, norm, list(map(self.given.encode, texts)), seconds, None)

    def length_energies(self, tokens: list[int]) -> list[float]:
        """Return minus the log-probability of each translation's length."""
        scores = -self.given.length_scores().cpu()
        most = scores.shape[1] - 1
        return [float(row[min(count, most)]) for row, count in zip(scores, tokens, strict=True)]

    def twin_energies(self, rows: list[int], ids: list[list[int]]) -> list[float]:
        """Return −log p of translations under the twin; `rows` are their sources."""
        assert self.expert is not None
        device = self.given.device
        lengths = torch.tensor([max(1, len(line)) for line in ids], device=device)
        tokens = torch.full((len(ids), int(lengths.max())), self.given.mask_id, device=device)
        for row, line in enumerate(ids):
            tokens[row, : len(line)] = torch.tensor(line, dtype=torch.long, device=device)
        source = torch.tensor(rows, device=device)
        found: list[float] = self.expert(
            self.given, Sequences(tokens, lengths, source=source)
        ).tolist()
        return found


def read(path: Path, most: int | None = None) -> list[str]:
    """Read lines."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")[:most]


def fits_model(model: ConditionalModel, source: str) -> bool:
    """Whether the model can read a source."""
    try:
        read_sources(model, [source], ["line"])
    except InputError:
        return False
    return True


def row_of(
    experiment: Experiment, system: System, outcome: Outcome, texts: list[str], refs: list[str]
) -> dict[str, Any]:
    """Return the numbers of a system; energies are lists with one for each sentence."""
    method = {key: value for key, value in asdict(system.method).items() if value is not None}
    tokens = [max(1, len(ids)) for ids in outcome.ids]
    lengths = experiment.length_energies(tokens)
    twin = {}
    if experiment.expert is not None:
        scores = experiment.twin_energies(list(range(len(outcome.ids))), outcome.ids)
        twin = {"autoregressive": _rounded(scores)}
    return {
        "method": method,
        "target": None if system.method.name != "mh" else system.method.target,
        "select": system.select,
        **compare(texts, refs).to_dict(),
        "energy_norm": _rounded(outcome.norm),
        "energy_raw": _rounded(outcome.raw),
        "predicted_length": _rounded(lengths),
        **twin,
        "tokens": tokens,
        "seconds": outcome.seconds,
        "sentences_per_second": len(outcome.texts) / outcome.seconds,
        "passes_per_sentence": None
        if outcome.passes is None
        else outcome.passes / len(outcome.texts),
    }


def _rounded(values: list[float]) -> list[float]:
    return [round(value, 4) for value in values]


def with_comparisons(
    rows: dict[str, Any], texts: dict[str, list[str]], references: list[str]
) -> dict[str, Any]:
    """Add to each row how it compares with the baseline: the same resampled sentences for both."""
    if BASELINE not in rows or len(rows) < 2:
        return rows
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.significance import PairedTest

    names = [BASELINE, *(name for name in rows if name != BASELINE)]
    systems = [(name, texts[name]) for name in names]
    _, scores = PairedTest(
        systems, {"BLEU": BLEU()}, [references], "bs", n_samples=_RESAMPLES
    )()  # fmt: skip
    base = sentence_counts([texts[BASELINE]], references)
    for name, score in zip(names, scores["BLEU"], strict=True):
        if name == BASELINE:
            continue
        gap, error = paired_difference(base, sentence_counts([texts[name]], references))
        found = {"bleu": gap, "standard_error": error, "p": float(score.p_value)}
        rows[name] = rows[name] | {"against_baseline": found}
    return rows


def page(results: dict[str, Any]) -> str:
    """Return the table in Markdown."""
    lines = [
        "# Translation with sampled lengths",
        "",
        f"{results['sentences']} sentences of {results['set']}, {results['model']['name']}, "
        f"{results['device']}, {results['precision']}. Difference and p: sacreBLEU's paired "
        f"bootstrap against {BASELINE}. Energies are means over sentences. *Own target* is the "
        "energy that the chains of a row sample; *with lengths* "
        f"({SAMPLED.energy.replace('*', '·')}) and *with the twin* "
        f"({twin_energy(results['twin']['name']).replace('*', '·')}) are the two targets of "
        "sampled lengths, for all rows. The lowest of a column is bold.",
        "",
        "| | BLEU | difference | p | length | own target | with lengths | with the twin | E_norm "
        "| E_raw | sentences/s | passes |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    columns = {name: _energies(row) for name, row in results["rows"].items()}
    least = [min(column[number] for column in columns.values()) for number in range(4)]
    for name, row in results["rows"].items():
        against = row.get("against_baseline")
        gap = f"{against['bleu']:+.2f} ± {against['standard_error']:.2f}" if against else ""
        chance = f"{against['p']:.3f}" if against else ""
        values = columns[name]
        shown = [
            f"**{value:.2f}**" if value == lowest else f"{value:.2f}"
            for value, lowest in zip(values, least, strict=True)
        ]
        own = "" if row["target"] is None else f"{mean_energy(row, row['target']):.2f}"
        passes = row["passes_per_sentence"]
        lines.append(
            f"| {name} | {row['bleu']:.2f} | {gap} | {chance} | {row['length_ratio']:.3f} | "
            f"{own} | {' | '.join(shown)} | {row['sentences_per_second']:.1f} | "
            f"{'' if passes is None else f'{passes:.0f}'} |"
        )
    return "\n".join([*lines, "", "All numbers: [lengths.json](lengths.json).", ""])


def _energies(row: dict[str, Any]) -> list[float]:
    """Return mean energies that all rows have: both targets of sampled lengths, E_norm, E_raw."""
    targets = (SAMPLED.energy, twin_energy("twin"), "norm", "raw")
    return [mean_energy(row, target) for target in targets]


def mean_energy(row: dict[str, Any], target: str) -> float:
    """Return the mean over sentences of a sum of energies, by the row's means of its parts."""
    keys = {"norm": "energy_norm", "raw": "energy_raw", "predicted_length": "predicted_length"}
    total = 0.0
    for weight, name in weighted_terms(target):
        key = "autoregressive" if name.startswith("autoregressive(") else keys[name]
        total += weight * float(np.mean(row[key]))
    return total


def main(arguments: list[str] | None = None) -> None:
    """Run the systems that are not in DIR yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", type=Path)
    parser.add_argument("--pair", default="de-en")
    parser.add_argument("--set", dest="name", default="europarl.dev.deen")
    parser.add_argument("--model")
    parser.add_argument("--twin")
    parser.add_argument("--most", type=int, help="maximum number of sentences")
    parser.add_argument("--chains", type=int, default=CHAINS, help="chains with sampled lengths")
    parser.add_argument("--tune", action="store_true", help="variants, for held-out pairs")
    parser.add_argument("--systems", nargs="*", help="names of systems (default: all)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--workers", type=int, default=0, help="processes of chains on a CPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    twin_name = options.twin or model_for(options.pair, "twin")
    systems = _variants(twin_name) if options.tune else all_systems(options.chains, twin_name)
    unknown = sorted(set(options.systems or ()) - systems.keys())
    if unknown:
        parser.error(f"unknown systems {unknown}; there are {', '.join(systems)}.")
    languages = options.name.rsplit(".", 1)[1]
    sources = read(options.tests / f"{options.name}.{languages[:2]}", options.most)
    references = read(options.tests / f"{options.name}.{languages[2:]}", options.most)
    name = options.model or model_for(options.pair, "translation")
    model = load(name, options.device, options.precision)
    assert isinstance(model, ConditionalModel)
    device = choose_device(options.device)
    chosen = {key: systems[key] for key in options.systems or systems}
    twin = AutoregressiveTranslator.load(folder_of(twin_name) or Path(twin_name), device, twin_name)
    expert = AutoregressiveTranslation(twin_name, Loading(device))
    fits = [fits_model(model, source) for source in sources]
    kept = [source for source, fit in zip(sources, fits, strict=True) if fit]
    results: dict[str, Any] = {
        "set": options.name,
        "sentences": len(sources),
        "too_long": fits.count(False),
        "model": {"name": Path(model.name).name, "fingerprint": model_weights_hash(model)},
        "twin": {
            "name": Path(twin_name).name,
            "fingerprint": weights_hash(twin.network, twin.tokenizer),
        },
        "seed": options.seed,
        "chains": options.chains,
        "precision": options.precision,
        "device": device_name(device),
        "token_budget": Scorer(model).batcher.budget,
        "rows": {},
    }
    file, folder = options.out / "lengths.json", options.out / "texts"
    folder.mkdir(parents=True, exist_ok=True)
    if file.exists():
        stored = json.loads(file.read_text(encoding="utf-8"))
        if {**stored, "rows": {}} != results:
            parser.error(f"'{file}' contains another experiment; give another --out.")
        results = stored
    experiment = Experiment(model, twin, kept, options.seed, expert, options.workers)
    texts = {row: read(folder / f"{_file(row)}.txt") for row in results["rows"]}
    for row, system in chosen.items():
        if row in results["rows"]:
            continue
        outcome = experiment.outcome(system)
        remaining = iter(outcome.texts)
        texts[row] = [next(remaining) if fit else "" for fit in fits]
        found = row_of(experiment, system, outcome, texts[row], references)
        content = "".join(text + "\n" for text in texts[row])
        write_atomically(folder / f"{_file(row)}.txt", content.encode())
        results["rows"][row] = found
        results["rows"] = with_comparisons(results["rows"], texts, references)
        write_atomically(file, json.dumps(results, ensure_ascii=False).encode() + b"\n")
        write_atomically(options.out / "README.md", page(results).encode())
        print(next(line for line in page(results).splitlines() if line.startswith(f"| {row} |")))


def _last(samples: list[Sample]) -> list[Sample]:
    """Return the last sample of each chain."""
    last = max(one.epoch for one in samples)
    return [one for one in samples if one.epoch == last]


def _file(row: str) -> str:
    """Return the name of a file for the texts of a system."""
    return "".join(sign if sign.isalnum() else "-" for sign in row)


if __name__ == "__main__":
    main()
