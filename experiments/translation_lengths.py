"""Translate with sampled lengths, beside mask-predict, fixed lengths and the autoregressive model.

    python -m experiments.translation_lengths TESTS --set europarl.dev.deen --most 1000 --out DIR

TESTS is a folder of NAME.LANGUAGE files, such as europarl.dev.deen.de. Systems already in DIR are
not run again, so that an interrupted run can be continued. DIR gets `lengths.json` (BLEU with
sacreBLEU's paired bootstrap against mask-predict with five lengths, energies of each sentence,
passes, seconds), `README.md` (the table) and `texts/`. A source that is too long for the models
counts as an empty translation.

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

from experiments.bleu import paired_difference, sentence_counts
from maskov.errors import InputError
from maskov.evaluation.translation import compare
from maskov.models import choose_device, device_name, load
from maskov.models.conditional.lengths import choose_lengths
from maskov.models.conditional.model import ConditionalModel, read_sources
from maskov.models.fingerprints import model_weights_hash
from maskov.models.scorer import Scorer
from maskov.runs.files import write_atomically
from maskov.runs.sample import Sample
from maskov.shipped import folder_of, model_for
from maskov.translation.api import energies_of, run_method
from maskov.translation.autoregressive import AutoregressiveTranslator
from maskov.translation.methods import SAMPLED, TranslationMethod
from maskov.translation.selection import least_risk, lowest, lowest_target

# All others are compared with it.
BASELINE = "mask-predict, 5 lengths"
CHAINS = 5
_RESAMPLES = 1000
_SAMPLED = TranslationMethod("mh", lengths="sampled", chains=CHAINS, pick="lowest")
# The settings of the paper's Table 5, written out.
_PAPER = TranslationMethod(
    "mh", energy="raw", moves="site", epochs=33, temperature=0.8, target_temperature=1.0,
    anneal=0.02, target_floor=0.01, force_accept=2, lengths="best", start="greedy",
)  # fmt: skip

# Spans at the length of mask-predict's best candidate, from which they start.
_SEARCHED = TranslationMethod("mh", lengths="searched")

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


@dataclass(frozen=True)
class System:
    """A method, and how one translation of each source is selected; some share a run."""

    method: TranslationMethod
    select: str = "first chain"


def all_systems(chains: int = CHAINS) -> dict[str, System]:
    """Return the systems; those with sampled lengths have so many chains, all of one run."""
    sampled = replace(_SAMPLED, chains=chains)
    return {
        "mask-predict": System(TranslationMethod("mask-predict", iterations=10)),
        BASELINE: System(
            TranslationMethod("mask-predict", iterations=10, length_beam=5), "lowest per token"
        ),
        "MH, fixed length (paper)": System(_PAPER),
        "MH, searched length": System(_SEARCHED),
        "MH, sampled length": System(sampled),
        "MH, sampled length, lowest of a chain": System(sampled, "lowest of the first chain"),
        "MH, sampled length, lowest of all chains": System(sampled, "lowest"),
        "MH, sampled length, MBR over chains": System(sampled, "mbr"),
        "autoregressive, greedy": System(TranslationMethod("ar", beam=1)),
        "autoregressive, beam 5": System(TranslationMethod("ar", beam=5)),
    }


def _variants() -> dict[str, System]:
    one = replace(_SAMPLED, chains=1)
    kept = {name: all_systems()[name] for name in ("mask-predict", BASELINE)}
    energies = ["norm", *(f"norm+{weight}*predicted_length" for weight in (0.5, 1, 2, 4))]
    energies += [f"raw+{weight}*predicted_length" for weight in (2, 4)]
    methods = {energy: replace(one, energy=energy) for energy in energies}
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
    tokens: list[int]
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
        seed: int,
    ) -> None:  # fmt: skip
        self.given, self.twin, self.seed = model.given(sources), twin, seed
        self.sources = sources
        self._runs: dict[TranslationMethod, tuple[list[list[Sample]], float, int]] = {}

    def outcome(self, system: System) -> Outcome:
        """Translate with a system."""
        if system.method.name == "ar":
            return self._autoregressive(system.method)
        if system.method not in self._runs:
            self._runs = {system.method: self._run(system.method)}
        samples, seconds, passes = self._runs[system.method]
        chosen = []
        for own in samples:
            last = max(one.epoch for one in own)
            ends = [one for one in own if one.epoch == last]
            chosen.append(SELECTIONS[system.select](own, ends))
        return Outcome(
            [one.text for one in chosen],
            [one.energy_raw for one in chosen],
            [one.energy_norm for one in chosen],
            [len(one.ids) for one in chosen],
            seconds,
            passes,
        )

    def _run(self, method: TranslationMethod) -> tuple[list[list[Sample]], float, int]:
        start, noted = time.monotonic(), _Passes()
        run = run_method(self.given, method, seed=self.seed, listener=noted)
        samples: list[list[Sample]] = [[] for _ in self.sources]
        for one in run.samples:
            samples[one.template].append(one)
        seconds = time.monotonic() - start
        searched = 0
        if method.length_rule == "searched":
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
        tokens = [max(1, len(self.given.encode(text))) for text in texts]
        return Outcome(texts, raw, norm, tokens, seconds, None)

    def length_energies(self, tokens: list[int]) -> list[float]:
        """Return minus the log-probability of each translation's length."""
        scores = -self.given.length_scores().cpu()
        most = scores.shape[1] - 1
        return [float(row[min(count, most)]) for row, count in zip(scores, tokens, strict=True)]


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
    lengths = experiment.length_energies(outcome.tokens)
    return {
        "method": method,
        "select": system.select,
        **compare(texts, refs).to_dict(),
        "energy_norm": _rounded(outcome.norm),
        "energy_raw": _rounded(outcome.raw),
        "predicted_length": _rounded(lengths),
        "tokens": outcome.tokens,
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
    weighed = SAMPLED.energy.replace("*", "·")
    lines = [
        "# Translation with sampled lengths",
        "",
        f"{results['sentences']} sentences of {results['set']}, {results['model']['name']}, "
        f"{results['device']}, {results['precision']}. Difference and p: sacreBLEU's paired "
        f"bootstrap against {BASELINE}. Energies are means over sentences; the target is "
        f"{weighed}.",
        "",
        "| | BLEU | difference | p | length | target | E_norm | E_raw | sentences/s | passes |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in results["rows"].items():
        against = row.get("against_baseline")
        gap = f"{against['bleu']:+.2f} ± {against['standard_error']:.2f}" if against else ""
        chance = f"{against['p']:.3f}" if against else ""
        norm, raw, predicted = (
            float(np.mean(row[key])) for key in ("energy_norm", "energy_raw", "predicted_length")
        )
        target = norm + length_weight() * predicted
        passes = row["passes_per_sentence"]
        lines.append(
            f"| {name} | {row['bleu']:.2f} | {gap} | {chance} | {row['length_ratio']:.3f} | "
            f"{target:.2f} | {norm:.2f} | {raw:.1f} | {row['sentences_per_second']:.1f} | "
            f"{'' if passes is None else f'{passes:.0f}'} |"
        )
    return "\n".join([*lines, "", "All numbers: [lengths.json](lengths.json).", ""])


def length_weight() -> float:
    """Return the weight of the length predictor in the default target."""
    from maskov.energies import parse_energy
    from maskov.energies.lengths import PredictedLength

    parts = parse_energy(SAMPLED.energy).parts
    return next(weight for weight, part in parts if isinstance(part, PredictedLength))


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
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    systems = _variants() if options.tune else all_systems(options.chains)
    unknown = sorted(set(options.systems or ()) - systems.keys())
    if unknown:
        parser.error(f"unknown systems {unknown}; there are {', '.join(systems)}.")
    languages = options.name.rsplit(".", 1)[1]
    sources = read(options.tests / f"{options.name}.{languages[:2]}", options.most)
    references = read(options.tests / f"{options.name}.{languages[2:]}", options.most)
    name = options.model or model_for(options.pair, "translation")
    model = load(name, options.device, options.precision)
    assert isinstance(model, ConditionalModel)
    twin, device = None, choose_device(options.device)
    chosen = {key: systems[key] for key in options.systems or systems}
    if any(system.method.name == "ar" for system in chosen.values()):
        twin_name = options.twin or model_for(options.pair, "twin")
        folder = folder_of(twin_name) or Path(twin_name)
        twin = AutoregressiveTranslator.load(folder, device, twin_name)
    fits = [fits_model(model, source) for source in sources]
    kept = [source for source, fit in zip(sources, fits, strict=True) if fit]
    results: dict[str, Any] = {
        "set": options.name,
        "sentences": len(sources),
        "too_long": fits.count(False),
        "model": {"name": Path(model.name).name, "fingerprint": model_weights_hash(model)},
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
    experiment = Experiment(model, twin, kept, options.seed)
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


def _file(row: str) -> str:
    """Return the name of a file for the texts of a system."""
    return "".join(sign if sign.isalnum() else "-" for sign in row)


if __name__ == "__main__":
    main()
