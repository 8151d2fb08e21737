"""Train what the comparison needs, in one go on one GPU; parts that are there are skipped."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from recipes.labelled import LabelledCorpus, Lines, write_folder

from experiments.studies.control.bag import train_bag
from experiments.studies.control.data import lines_of
from experiments.studies.control.judge import train_judge
from recipes import adapt, classifier


@dataclass(frozen=True)
class Plan:
    """Most seconds and epochs of each part, and sizes; the defaults are for an H200."""

    base: str = "wiki-small"
    add_words: int = 6500
    domain: tuple[float, float] = (200.0, 40.0)
    deep: tuple[float, float] = (60.0, 8.0)
    shallow: tuple[float, float] = (30.0, 15.0)
    judge: tuple[float, float] = (60.0, 20.0)
    genre: tuple[float, float] = (50.0, 6.0)
    width: int = 256
    layers: int = 4
    small: tuple[str, ...] = ()  # further arguments of every recipe


QUICK = Plan(
    add_words=30, domain=(5, 1), deep=(5, 1), shallow=(5, 1), judge=(5, 1), genre=(5, 1), width=64,
    layers=1, small=("--batch-tokens", "512"),
)  # fmt: skip


def train(work: Path, plan: Plan) -> None:
    """Train all models into WORK/models; WORK/models/log.json has what they measured."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    models, begun = work / "models", time.monotonic()
    models.mkdir(parents=True, exist_ok=True)
    log_file = models / "log.json"
    log: dict[str, Any] = json.loads(log_file.read_text()) if log_file.exists() else {}
    both = work / "both-halves"
    every = lines_of(work, "half-a", "half-b")
    write_folder(every, both)
    held = lines_of(work, "held")

    def part(name: str, run: Callable[[], dict[str, Any]]) -> None:
        if name in log:
            print(f"{name}: there already", flush=True)
            return
        print(f"== {name} ({time.monotonic() - begun:.0f} s)", flush=True)
        since = time.monotonic()
        log[name] = {**run(), "wall_seconds": time.monotonic() - since}
        log_file.write_text(json.dumps(log, indent=1))
        shown = {k: v for k, v in log[name].items() if not isinstance(v, list | dict)}
        print(f"{name}: {json.dumps(shown)}", flush=True)

    def limits(limit: tuple[float, float]) -> list[str]:
        return ["--minutes", str(limit[0] / 60), "--epochs", str(limit[1]), *plan.small]

    def domain() -> dict[str, Any]:
        out = models / "domain"
        adapt.main([str(both), "--model", plan.base, "--out", str(out), "--spaces",
                    "--add-words", str(plan.add_words), "--label-prefix",
                    *limits(plan.domain)])  # fmt: skip
        return _record(out)

    def classify(name: str, folder: Path, *arguments: str) -> dict[str, Any]:
        out = models / name
        classifier.main([str(folder), "--out", str(out), *arguments])
        return _record(out)

    half, source = work / "lines" / "half-a", str(models / "domain")
    part("domain", domain)
    part("deep", lambda: {
        **classify("deep", half, "--base", source, *limits(plan.deep)),
        "held": measure(models / "deep", held, device)})  # fmt: skip
    part("shallow", lambda: {
        **classify("shallow", half, "--tokenizer", source, "--layers", "1", "--width",
                   str(plan.width // 2), "--dropout", "0.2", *limits(plan.shallow)),
        "held": measure(models / "shallow", held, device)})  # fmt: skip

    def bag(name: str, half: str) -> dict[str, Any]:
        found, record = train_bag(lines_of(work, half), device)
        found.save(models / name)
        return {**record, "held_accuracy": found.accuracy(held)}

    part("bag", lambda: bag("bag", "half-b"))
    part("bag-a", lambda: bag("bag-a", "half-a"))

    def judge() -> dict[str, Any]:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(models / "domain")
        seconds, epochs = plan.judge
        return train_judge(
            every, tokenizer, models / "judge", device, seconds, epochs, plan.width, plan.layers
        )

    part("judge", judge)
    if (work / "genre").exists():
        part("genre", lambda: classify(
            "wiki-genre", work / "genre", "--words", "8:40", "--layers", "2",
            "--width", "128", *limits(plan.genre)))  # fmt: skip
    shutil.rmtree(both)
    print(f"all: {time.monotonic() - begun:.0f} s", flush=True)


def measure(folder: Path, held: Lines, device: torch.device) -> dict[str, float]:
    """Return a classifier's quality on the held-out lines."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    network = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    network.to(device).eval()
    corpus = LabelledCorpus.of(held, AutoTokenizer.from_pretrained(folder), device)
    result = classifier.quality(*classifier.logits_of(network, corpus, 16_384))
    print(f"{folder.name}: held-out lines {result}", flush=True)
    return result


def _record(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "training.json").read_text())
    return {key: value for key, value in record.items() if key != "log"}
