"""Chains side by side: energy, effective samples and text against masked passes per chain.

    python -m experiments.studies.mixing --out results/mixing [--model wiki-small] [--lengths 20 45]

Every row is an exact kernel for the same target; all start from the same masked starts and spend
about the same number of masked passes. A point of a curve is the mean over chains at the end of an
epoch. `reached` is where a row has the energy that the first version's default has after
--reference passes, or at its end if that comes first: a run spends fewer passes than it was given,
so --passes should be larger. Effective samples are those of the second half, per 1,000 passes of a
chain.

    python -m experiments.studies.mixing --page --out results/mixing [--add FOLDER ...]

writes the table of what was measured, which needs ArviZ and sacreBLEU, without running anything.
The numbers of the texts then take their place in `mixing.json`.
Rows of other folders with the same settings are added to it, or take the place of older ones.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.models import load_model

import maskov
from experiments.lib import style
from maskov.diagnostics.convergence import convergence
from maskov.evaluation import distinct, self_bleu
from maskov.kernels.registry import named_kernel
from maskov.models import DEFAULT_MODEL
from maskov.shipped import default_judge


@dataclass(frozen=True)
class Row:
    """A kernel: its moves with their weights, its early tests, and the energy of its burn-in."""

    moves: tuple[maskov.Move, ...]
    weights: tuple[float, ...] = ()
    early: tuple[int, ...] | int = 0
    burn_in: str | None = None


def _spans(*sizes: int) -> tuple[maskov.Move, ...]:
    return (maskov.Span(sizes=sizes),)


FIRST_DEFAULT = "single sites, one early test"
ROWS = {
    "Algorithm 1": Row((maskov.Site(),)),
    FIRST_DEFAULT: Row((maskov.Site(),), early=2),
    "single sites, three early tests": Row((maskov.Site(),), early=(1, 2, 4)),
    "spans of 2": Row(_spans(2), early=2),
    "spans of 2, three early tests": Row(_spans(2), early=(1, 2, 4)),
    "sites and spans in turns": Row((maskov.Site(), *_spans(2, 3)), (1.0, 2.0), 2),
    "spans of 1 to 3": Row(_spans(1, 2, 3), early=2),
    "spans of 1 to 3, grouped burn-in (the default)": Row(
        _spans(1, 2, 3), early=2, burn_in="(groups=4)"
    ),
}


def measure(
    model: maskov.MaskedModel, energy: str, name: str, length: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Run one kernel for the passes; return its curve and what its samples are like."""
    row = ROWS[name]
    delayed = maskov.DelayedAcceptance(row.early)
    kernel = named_kernel("mh", energy, row.moves, row.weights, delayed=delayed)
    schedule = maskov.Schedule(epochs=2)
    if row.burn_in is not None:
        schedule = maskov.Schedule(epochs=9, burn_in=8, burn_in_energy=energy + row.burn_in)
    begin = time.perf_counter()
    run = maskov.sample(
        model, kernel, schedule, chains=options.chains, length=length, seed=options.seed,
        passes=options.passes,
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    traces = run.traces
    spent = traces["passes"].mean(1).cumsum()
    values = traces[f"energy_{energy}"]
    half = len(spent) // 2
    file = options.out / "traces" / f"{energy}-{length}-{list(ROWS).index(name)}.npz"
    file.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        file, energy=traces["energy_target"][half:], tokens=traces["tokens"][half:].astype(np.int32)
    )
    return {
        "row": name,
        "energy": energy,
        "length": length,
        "signature": run.signature,
        "seconds": seconds,
        "epochs": len(spent),
        "passes": spent.round(1).tolist(),
        "mean_energy": np.nanmean(values, axis=1).round(3).tolist(),
        "standard_error": float(np.nanstd(values[-1]) / options.chains**0.5),
        "novel_per_1000_passes": float(1000 * traces["novel"].sum() / traces["passes"].sum()),
        "passes_of_second_half": float(spent[-1] - spent[half]),
        "changed_in_second_half": float(
            (traces["tokens"][-1] != traces["tokens"][half]).mean()
        ),
        "texts": [sample.text for sample in run.samples],
    }  # fmt: skip


def effective(traces: Any, chains: int, passes: float) -> dict[str, float | None]:
    """Return the effective samples of one chain per 1,000 passes, by what is measured."""
    tokens = traces["tokens"]

    def of(values: Any) -> float | None:
        found = convergence(np.ascontiguousarray(values, dtype=np.float64))
        return None if found.ess_bulk is None else found.ess_bulk / chains / passes * 1000

    common = np.argsort(np.bincount(tokens.ravel()))[-8:]
    known = [one for one in (of((tokens == token).mean(2)) for token in common) if one is not None]
    return {
        "energy": of(traces["energy"]),
        "tokens_slowest": min(known, default=None),
        "tokens_fastest": max(known, default=None),
    }


def at(row: dict[str, Any], passes: float) -> float:
    """Return a row's mean energy after so many passes."""
    return float(np.interp(passes, row["passes"], row["mean_energy"]))


def reached(row: dict[str, Any], energy: float) -> float | None:
    """Return after how many passes a row first has an energy, if it has."""
    values = np.minimum.accumulate(np.nan_to_num(row["mean_energy"], nan=np.inf))
    below = np.nonzero(values <= energy)[0]
    return float(row["passes"][below[0]]) if len(below) else None


def compare(rows: list[dict[str, Any]], passes: float) -> None:
    """Note for every row where it has the energy of the first default after so many passes."""
    wanted = {
        (row["energy"], row["length"]): at(row, passes)
        for row in rows
        if row["row"] == FIRST_DEFAULT
    }
    for row in rows:
        if (row["energy"], row["length"]) in wanted:
            row["reached"] = reached(row, wanted[row["energy"], row["length"]])


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the curves, one panel an energy and length, one colour a row."""
    panels = list(dict.fromkeys((row["energy"], row["length"]) for row in rows))
    figure, axes = style.plt.subplots(
        1, len(panels), figsize=(3.9 * len(panels), 4.2), squeeze=False
    )
    lines: dict[str, Any] = {}
    for axis, (energy, length) in zip(axes[0], panels, strict=True):
        for row in rows:
            if (row["energy"], row["length"]) == (energy, length):
                number = list(ROWS).index(row["row"])
                colour = "black" if number == len(ROWS) - 1 else f"C{number}"
                (lines[row["row"]],) = axis.plot(row["passes"], row["mean_energy"], color=colour)
        axis.set_xlabel("masked passes per chain")
        axis.set_title(f"mean E_{energy}, {length} tokens", fontsize=10)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.xaxis.set_minor_formatter("")
        axis.grid(alpha=0.2)
    columns = 2 if len(panels) < 3 else 4
    figure.legend(
        lines.values(), lines, loc="lower center", ncols=columns, frameon=False, fontsize=8
    )
    figure.tight_layout(rect=(0, 0.06 * -(-len(lines) // columns), 1, 1))
    style.write(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every row, write them and draw them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="wiki-small")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--chains", type=int, default=128)
    parser.add_argument("--lengths", type=int, nargs="+", default=[20])
    parser.add_argument("--passes", type=int, default=6000, help="masked passes per chain")
    parser.add_argument("--reference", type=int, help="passes of the energy to be reached")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--energies", nargs="+", default=["raw", "norm"])
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    parser.add_argument("--page", action="store_true", help="only write tables and figure")
    parser.add_argument("--add", type=Path, nargs="+", default=[], help="with --page: more rows")
    parser.add_argument("--figure", type=Path, help="draw only --rows, --energies and --lengths")
    options = parser.parse_args(arguments)
    if options.figure is not None:
        rows = json.loads((options.out / "mixing.json").read_text())["rows"]
        chosen = [row for row in rows if row["row"] in options.rows
                  and row["energy"] in options.energies
                  and row["length"] in options.lengths]  # fmt: skip
        draw(chosen, options.figure)
        return
    if options.page:
        for folder in options.add:
            add_rows(options.out, folder)
        write_page(options.out, options.reference)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    model = load_model(options.model, options.device, options.precision)
    judge = _judge(options.model, model.device)
    rows: list[dict[str, Any]] = []
    for length in options.lengths:
        for energy in options.energies:
            for name in options.rows:
                row = measure(model, energy, name, length, options)
                if judge is not None:
                    row["judge_perplexity"] = _perplexity(judge, row["texts"])
                rows.append(row)
                compare(rows, options.reference or options.passes)
                shown = {p: round(at(row, p), 1) for p in (500, 1000, 2000, 4000, 6000)}
                print(energy, length, row["row"], shown, row.get("reached"),
                      f"{row['seconds']:.0f} s",
                      row.get("judge_perplexity"), flush=True)  # fmt: skip
                settings = {key: str(value) for key, value in vars(options).items()}
                content = {"settings": settings, "rows": rows}
                (options.out / "mixing.json").write_text(json.dumps(content) + "\n")
    draw(rows, options.out / "mixing.svg")


_HEADER = (
    "row", "E at 1,000", "at 2,000", "at the end", "passes to reach", "effective energy",
    "slowest token", "fastest token", "changed", "perplexity", "repeats", "distinct-2", "self-BLEU",
)  # fmt: skip


def add_rows(out: Path, folder: Path) -> None:
    """Add the rows of a folder to those of another; the same ones take the place of older ones."""
    new = json.loads((folder / "mixing.json").read_text())
    content = (
        json.loads((out / "mixing.json").read_text())
        if (out / "mixing.json").exists()
        else {"rows": []}
    )
    rows = {_key(row): row for row in [*content["rows"], *new["rows"]]}
    content = {"settings": content.get("settings", new["settings"])}
    content["rows"] = [rows[key] for key in sorted(rows)]
    (out / "traces").mkdir(parents=True, exist_ok=True)
    for file in (folder / "traces").glob("*.npz"):
        shutil.copy(file, out / "traces")
    (out / "mixing.json").write_text(json.dumps(content) + "\n")


def _key(row: dict[str, Any]) -> tuple[int, bool, str, int]:
    """Return what orders rows: lengths, then E_raw before others, then the order of the kernels."""
    energy = row["energy"]
    return row["length"], energy != "raw", energy, list(ROWS).index(row["row"])


def write_page(out: Path, reference: int | None = None) -> None:
    """Add effective samples and text statistics to what was measured, and write the tables."""
    content = json.loads((out / "mixing.json").read_text())
    settings, rows = content["settings"], content["rows"]
    compare(rows, reference or float(settings["passes"]))
    unjudged = [row for row in rows if "judge_perplexity" not in row]
    judge = _judge(settings["model"], torch.device("cpu")) if unjudged else None
    for row in unjudged:
        if judge is not None:
            row["judge_perplexity"] = _perplexity(judge, row["texts"])
    lines = [
        "# Energy, effective samples and text against masked passes",
        "",
        f"`{settings['model']}`, {settings['chains']} chains, {settings['passes']} passes each;",
        "how: `experiments.studies.mixing`. Effective samples are those of a chain per 1,000",
        "passes in the second half of the run; `changed` is the share of tokens that differ",
        "between its begin and its end.",
        "",
        "![curves](mixing.svg)",
    ]
    for energy, length in dict.fromkeys((row["energy"], row["length"]) for row in rows):
        lines += ["", f"## E_{energy}, {length} tokens", "", f"| {' | '.join(_HEADER)} |",
                  "|" + "---|" * len(_HEADER)]  # fmt: skip
        for row in rows:
            if (row["energy"], row["length"]) == (energy, length):
                lines.append(_line(row, out, int(settings["chains"])))
    (out / "README.md").write_text("\n".join(lines) + "\n")
    draw(rows, out / "mixing.svg")
    (out / "mixing.json").write_text(json.dumps(content) + "\n")


def _line(row: dict[str, Any], out: Path, chains: int) -> str:
    name = f"{row['energy']}-{row['length']}-{list(ROWS).index(row['row'])}.npz"
    if (out / "traces" / name).exists():
        with np.load(out / "traces" / name) as traces:
            row["effective"] = effective(traces, chains, row["passes_of_second_half"])
    texts = row.pop("texts", None)
    if texts is not None:
        words = [text.split() for text in texts]
        row["repeats"] = float(np.mean([1 - len(set(one)) / len(one) for one in words]))
        row["distinct_2"], row["self_bleu"] = distinct(texts, 2), self_bleu(texts).value
    measured = [row["effective"][key] for key in ("energy", "tokens_slowest", "tokens_fastest")]
    shown = [f"{at(row, passes):.1f}" for passes in (1000, 2000)]
    shown += [f"{row['mean_energy'][-1]:.1f}"]
    shown += ["–" if row.get("reached") is None else f"{row['reached']:,.0f}"]
    shown += ["–" if one is None else f"{one:.3f}" for one in measured]
    shown += [f"{row['changed_in_second_half']:.2f}"]
    judged = row.get("judge_perplexity")
    shown += ["–" if judged is None else f"{judged:.0f}"]
    shown += [f"{row['repeats']:.3f}", f"{row['distinct_2']:.3f}", f"{row['self_bleu']:.1f}"]
    return f"| {row['row']} | {' | '.join(shown)} |"


def _judge(model: str, device: torch.device) -> maskov.Autoregressive | None:
    """Return the judge of the package, if it is there and the model is of its language."""
    name = default_judge() if model.startswith(DEFAULT_MODEL) else None
    return None if name is None else maskov.Autoregressive(name, device)


def _perplexity(judge: maskov.Autoregressive, texts: list[str]) -> float:
    """Return the perplexity of the texts, by token, under the causal model."""
    terms = judge.token_terms([judge.tokenise(text) for text in texts])
    total = sum(float(part.sum()) for part in terms)
    return float(np.exp(total / sum(len(part) for part in terms)))


if __name__ == "__main__":
    main()
