"""Translate with sampled lengths, against mask-predict, fixed lengths and the autoregressive model.

    python -m experiments.studies.lengths TESTS --set NAME --most 1000 --out DIR

TESTS is a folder of NAME.LANGUAGE files, such as europarl.dev.deen.de. Systems already in DIR are
not run again, so that an interrupted run can be continued. DIR gets `lengths.json` (BLEU with
sacreBLEU's paired bootstrap against mask-predict with five lengths, mean energies, passes,
seconds), `README.md` (the table), `lengths.svg` and `texts/`. A source that is too long for the
models counts as an empty translation.

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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.lib.bleu import paired_difference, sentence_counts
from experiments.lib.context import model_weights_hash
from experiments.studies.lengths.page import draw, page
from experiments.studies.lengths.systems import (
    BASELINE,
    CHAINS,
    RESCORED,
    SELECTIONS,
    TWIN_WEIGHT,
    System,
    all_systems,
    variants,
)
from maskov.energies import AutoregressiveTranslation
from maskov.energies.networks import Loading
from maskov.errors import InputError
from maskov.evaluation import compare
from maskov.models import choose_device, device_name, load
from maskov.models.autoregressive import AutoregressiveTranslator
from maskov.models.checkpoint import weights_hash
from maskov.models.conditional import ConditionalModel, choose_lengths, source_ids
from maskov.models.scorer import Scorer
from maskov.runs.files import write_atomically
from maskov.shipped import folder_of, model_for
from maskov.translation import TranslationMethod, drafts_of, energies_of, run_method
from maskov.types import Sample, Sequences
from maskov.workers import Workers

_RESAMPLES = 1000


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
        if method.needs_autoregressive:
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
        if method.settled.lengths == "searched" and drafts is None:
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
        source_ids(model, [source])
    except InputError:
        return False
    return True


def row_of(
    experiment: Experiment, system: System, outcome: Outcome, texts: list[str], refs: list[str]
) -> dict[str, Any]:
    """Return the numbers of a system; energies are means over sentences."""
    method = {key: value for key, value in asdict(system.method).items() if value is not None}
    tokens = [max(1, len(ids)) for ids in outcome.ids]
    lengths = experiment.length_energies(tokens)
    twin = {}
    if experiment.expert is not None:
        scores = experiment.twin_energies(list(range(len(outcome.ids))), outcome.ids)
        twin = {"autoregressive": float(np.mean(scores))}
    return {
        "method": method,
        "target": None if system.method.name != "mh" else system.method.settled.energy,
        "select": system.select,
        **asdict(compare(texts, refs)),
        "energy_norm": float(np.mean(outcome.norm)),
        "energy_raw": float(np.mean(outcome.raw)),
        "predicted_length": float(np.mean(lengths)),
        **twin,
        "tokens": float(np.mean(tokens)),
        "seconds": outcome.seconds,
        "sentences_per_second": len(outcome.texts) / outcome.seconds,
        "passes_per_sentence": None
        if outcome.passes is None
        else outcome.passes / len(outcome.texts),
    }


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
    twin_name = options.twin or model_for(options.pair, "autoregressive")
    systems = variants(twin_name) if options.tune else all_systems(options.chains, twin_name)
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
        draw(results, options.out / "lengths.svg")
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
