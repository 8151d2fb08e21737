"""The pages of measured speeds (results/bench) and of mixing (results/mixing), from their documents.

`python -m experiments.findings` writes them.
"""

# ruff: noqa: E501 - Markdown with numbers in it

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_NAMES = {
    "algorithm 1": "Algorithm 1 as written",
    "batched copies": "Algorithm 1, its copies in one batch",
    "one-test": "maskov, without early tests",
    "maskov": "maskov",
}
_PRECISIONS = {"bf16": "bfloat16", "tf32": "TF32", "fp32": "float32"}
_MOVES = {
    "spans of 1 to 3, burn-in with 4 groups (earlier versions, whose groups went in lock-step)": "moves-default-h200",
    "spans of 2 or 3": "moves-span-rounds-h200",
    "single sites": "moves-site-h200",
}
_PROTEINS = {"single sites": "protein-120-site-h200", "spans of 1 to 3": "protein-120-span-h200"}
# Methods of translation, with the file that has each on the H200.
_METHODS = {
    "mask-predict": "translate-h200-tf32-one-group",
    "mask-predict, 5 lengths": "translate-h200-tf32",
    "gibbs": "translate-h200-tf32-one-group",
    "block-gibbs": "translate-h200-tf32-blocks",
    "mh raw": "translate-h200-tf32-slots",
    "mh norm": "translate-h200-tf32-slots",
    "block-mh norm": "translate-h200-tf32-blocks",
    "ar beam 5": "translate-h200-tf32-padded",
}

# What kernels do, in the columns of a table.
_KINDS = {
    "products": ("products of the encoder",),
    "attention": ("attention",),
    "norms, activations": ("norms, activations",),
    "head": ("products of the head", "softmax, log-sum-exp"),
    "choice and book-keeping": ("choice, sorting", "copies", "others"),
    "no kernel": ("no kernel",),
}
# The columns of the page of mixing.
_ROWS = {
    "single sites, one early test": "single sites",
    "spans of 1 to 3": "spans of 1 to 3",
    "spans of 1 to 3, grouped burn-in (the default)": "and grouped burn-in (the default)",
}


def _number(value: float) -> str:
    """Write a number with three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def speed(folder: Path) -> str:
    """Return the page of what `python -m benchmarks` measured."""

    def read(name: str) -> Any:
        return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))

    def side_by_side(name: str) -> str:
        found = read(name)
        rows = {row["name"]: row for row in found["rows"]}
        asked, length = found["options"], found["options"]["length"][0]
        first, ours = rows["algorithm 1"], rows["maskov"]
        table = _table(
            ["", "passes per step", "passes/s", "accepted changes/s", "per 1,000 passes", "share of the ceiling"],
            ([title, *(_number(rows[key][one]) for one in ("passes_per_step", "passes_per_second", "novel_per_second")),
              _number(1000 * rows[key]["novel_per_pass"]), f"{rows[key]['share_of_ceiling']:.0%}"]
             for key, title in _NAMES.items() if key in rows),
        )  # fmt: skip
        factors = [ours[one] / first[one] for one in ("novel_per_second", "novel_per_pass")]
        return (
            f"`{asked['model']}`, {asked['chains']} chains of {length} tokens, E_{asked['energy']}, {asked['precision']} "
            f"([{name}.json]({name}.json)). maskov makes {_number(factors[0])} times as many accepted changes a second as "
            f"Algorithm 1, and {_number(factors[1])} times as many a pass.\n\n{table}\n\n![{name}]({name}.svg)"
        )

    def runs(names: dict[str, str]) -> str:
        found = {title: read(name) for title, name in names.items()}
        return _table(
            ["moves", "passes per step", "passes/s", "accepted changes/s", "share of the ceiling"],
            ([f"[{title}]({names[title]}.json)",
              *(_number(one[key]) for key in ("passes_per_step", "passes_per_second", "novel_per_second")),
              f"{one['share_of_ceiling']:.0%} of {one['ceiling_teraflops']:.0f} TFLOP/s"]
             for title, one in found.items()),
        )  # fmt: skip

    encoder = read("encoder-h200")
    encoder_rows = [row for row in encoder["rows"] if row["tokens"] == 131072]
    encoders = _table(
        ["", "ours, ms", "Hugging Face, ms", "factor", "products alone, ms", "share of the ceiling"],
        ([f"{row['model']}, {_PRECISIONS[row['dtype']]}", _number(row["ours_ms"]), _number(row["huggingface_ms"]),
          f"{row['huggingface_ms'] / row['ours_ms']:.2f}", _number(row["products_ms"]), f"{row['share']:.0%}"]
         for row in encoder_rows),
    )  # fmt: skip
    papers = {one: read(f"paper-h200-{one}") for one in ("bfloat16", "tf32")}
    whole = " and ".join(
        f"{run['seconds']:.0f} s in {_PRECISIONS.get(one, one)} ({run['share_of_ceiling']:.0%} of the ceiling)"
        for one, run in papers.items()
    )
    norm = {row["name"]: row for row in read("per-pass-cpu-norm")["rows"]}
    per_pass = norm["maskov"]["novel_per_pass"] / norm["algorithm 1"]["novel_per_pass"]
    scores = [read(name)["score"]["ratio"] for name in ("score-cpu", "side-by-side-cpu-raw")]
    points = read("scaling-chains-h200")["points"]
    chains = ", ".join(f"{one['value']}: {one['share_of_ceiling']:.0%}" for one in points)
    on_cpu = read("translate-cpu")["rows"]
    translation = _table(
        ["", "CPU", "H200", "passes a sentence"],
        ([name, _number(on_cpu[name]["sentences_per_second"]),
          f"[{_number(row['sentences_per_second'])}]({file}.json)",
          _number(row["passes_per_sentence"]) if row.get("passes_per_sentence") else ""]
         for name, file in _METHODS.items() for row in [read(file)["rows"][name]]),
    )  # fmt: skip
    kinds = _table(
        ["", "passes/s", "share of the ceiling", "without the first epochs", "sentences/s"],
        ([name, _number(row["passes_per_second"]),
          *(f"{row[key]:.0%}" if key in row else "" for key in ("share", "steady_share")),
          _number(row["sentences_per_second"]) if "sentences_per_second" in row else ""]
         for file in ("rounds-h200-bfloat16", "rounds-translation-h200-tf32")
         for name, row in read(file)["rows"].items()),
    )  # fmt: skip
    scale = read("scale-cpu")
    speeds = {**scale["workers"]["rows"], **scale["ray"]["rows"]}
    processes = _table(
        ["", "passes/s"],
        (
            [name, _number(row["passes_per_second"])]
            for name, row in speeds.items()
            if "1 workers" not in name
        ),
    )
    most = scale["load"]["runs"]["100000"]["mib_by_epoch"]
    cpu, gpu = (read(f"side-by-side-{name}") for name in ("cpu-raw", "h200"))
    return f"""\
# Speed

`python -m experiments.findings` writes this page from the documents of this folder, which `python -m benchmarks` wrote
([how things are counted](../../docs/reference/benchmarks.md)). Each has versions, options and the machine. CPU: {cpu["machine"]["cores"]} cores of an
{cpu["machine"]["processor"]}, torch {cpu["versions"]["torch"].split("+")[0]}. GPU: one {gpu["machine"]["gpu"]}, torch {gpu["versions"]["torch"]}. The ceiling is what matrix products of the
model's shapes reach alone. `wiki-small-grown` is the shipped model made as large as BERT-base without changing what it
computes; `bert-base` in the table of encoders has random weights.

## Side by side

{side_by_side("side-by-side-cpu-raw")}

{side_by_side("side-by-side-h200")}

With E_norm and 24 tokens maskov makes {per_pass:.1f} times as many accepted changes a pass as Algorithm 1
([per-pass-cpu-norm.json](per-pass-cpu-norm.json)). `score` is {min(scores):.1f} to {max(scores):.1f} times as fast as minicons on the CPU.

## The encoder alone

{encoder_rows[0]["passes"]:,} passes of 15 to 45 tokens, {encoder_rows[0]["tokens"]:,} tokens without padding; Hugging Face's encoder runs them padded
([encoder-h200.json](encoder-h200.json)).

{encoders}

## The paper's run

500 chains of 15 to 45 tokens, 100 epochs of single sites, wiki-small-grown, E_raw: {whole}.

## Moves

The same chains for fewer epochs, in bfloat16. Accepted changes are not comparable between rows: the runs have
different numbers of epochs, chains accept more at first, and a span may change several tokens.

{runs(_MOVES)}

Proteins of 120 letters: AntiBERTy, 64 chains, E_norm, one early test, one epoch from masked starts.

{runs(_PROTEINS)}

The same chains in rounds of every kind, wiki-any made as large as BERT-base ([texts](rounds-h200-bfloat16.json)), and
deroen-small on short sentences that repeat, in TF32 ([translation](rounds-translation-h200-tf32.json)); [where the time goes](rounds.md):

{kinds}

## Scaling

Share of the ceiling by the number of chains of 24 tokens (wiki-small-grown, bfloat16): {chains}.

![chains](scaling-chains-h200.svg) ![length, on the CPU](scaling-length-cpu.svg) ![size, on the CPU](scaling-size-cpu.svg)

## Translation

Sentences a second. CPU: {read("translate-cpu")["sentences"]} short sentences, float32. H200: 1,000 sentences of europarl.dev in TF32 (blocks {read("translate-h200-tf32-blocks")["sentences"]}, beam
search {read("translate-h200-tf32-padded")["sentences"]}). Methods that sample run 33 epochs, eight of them forced, on the CPU 20 (before passes were packed).

{translation}

## Many processes

{scale["options"]["chains"]} chains of {scale["options"]["length"]} tokens ([scale-cpu.json](scale-cpu.json), [more](../../docs/reference/scaling.md)).

{processes}

A resumed run samples {scale["resume"]["sampling"]:.1f} s after its model is loaded. Checkpoints take {scale["checkpoints"]["share_of_run"]:.2%} of a run. A run of
100,000 chains holds {most[0]:.0f} MiB after its first epoch and {most[-1]:.0f} after its last.
"""


def rounds(folder: Path) -> str:
    """Return the page of what the time of rounds goes to, and of populations."""

    def read(name: str) -> Any:
        return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["rows"]

    before, now = read("rounds-kernels-h200"), read("rounds-h200-bfloat16")
    last = read("rounds-kernels-translation-h200")
    kernels = _table(
        ["", "passes/s", "share of the ceiling", *_KINDS],
        ([name, _number(row["passes_per_second"]), f"{row['share']:.0%}" if "share" in row else "",
          *(f"{sum(row['kernels'][one] for one in kinds):.0%}" for kinds in _KINDS.values())]
         for name, row in (before | last).items()),
    )  # fmt: skip
    mixed, lengths = now["mixed"]["share"], last["sampled lengths"]["sentences_per_second"]
    return f"""\
# Where the time of rounds goes

`python -m experiments.findings` writes this page. What half a second of an H200 goes to, of 500 chains of 15 to 45 tokens
of wiki-any made as large as BERT-base, E_raw, bfloat16, of populations of 1,024 particles of wiki-any in lock-step, two of
them in turns ([rounds-kernels-h200.json](rounds-kernels-h200.json)), and of translations of sampled lengths with deroen-small in
TF32, whose products stand under "head" ([rounds-kernels-translation-h200.json](rounds-kernels-translation-h200.json)). Kernels had been compiled
before. All were measured with earlier versions, translations last:

{kernels}

Matrix products run at about 95% of the ceiling, so that attention, norms and activations, which move bytes, bound rounds
of single sites and spans. Rounds of a grouped burn-in, of few chains and of translations are small: to draw, choose and
decide, each launches hundreds of small kernels, which take milliseconds whatever its size. Populations in lock-step
wait for the host.

Now a round makes fewer of these kernels, one of them draws tokens, populations go in rounds, and attention takes
several heads one after the other. The default run has reached {now["default"]["share"]:.0%} of the ceiling ({before["default"]["share"]:.0%} before), sites and spans mixed {mixed:.0%}, populations
{_number(now["populations"]["passes_per_second"])} passes a second, recording included ({_number(before["populations"]["passes_per_second"])} before), and translations of sampled lengths {lengths:.0f} sentences a
second ([rounds-h200-bfloat16.json](rounds-h200-bfloat16.json)). Details are in `experiments/LOG.md`.
"""


def mixing(folder: Path) -> str:
    """Return the page of chains side by side."""

    def read(name: str) -> Any:
        return json.loads((folder / name).read_text(encoding="utf-8"))

    table, found = [], {}
    for model, title in (("wiki-small", "wiki-small"), ("base", "BERT-base size")):
        rows = read(f"{model}/mixing.json")["rows"]
        found |= {(model, one["energy"], one["length"], one["row"]): one for one in rows}
        for energy, length in dict.fromkeys((one["energy"], one["length"]) for one in rows):
            cells = [found.get((model, energy, length, name), {}).get("reached") for name in _ROWS]
            shown = ["–" if one is None else f"{one:,.0f}" for one in cells]
            table.append([f"{title}, E_{energy}, {length} tokens", *shown])

    def of(name: str, key: str) -> Any:
        return found["wiki-small", "raw", 20, name][key]

    sites, spans, default = _ROWS
    proteins = {one["row"]: one["points"][-1] for one in read("sapiens/proteins.json")["rows"]}
    points = read("sapiens/proteins.json")["settings"]["points"]
    return f"""\
# Chains side by side

`python -m experiments.findings` writes this page from the documents of its folders, which these commands wrote:

```console
$ python -m experiments.studies.mixing --out results/mixing/wiki-small --device cuda --lengths 20 45
$ python -m experiments.studies.mixing --out results/mixing/base --model wiki-small-grown --precision bfloat16 --chains 64 --lengths 20 45
$ python -m experiments.studies.proteins --out results/mixing/sapiens --device cpu --points {" ".join(map(str, points))}
```

Every row is exact for its target. All chains start from the same masked starts; a point is the mean over chains. Rows
were measured on an H200, some at the same time, so seconds are not comparable.

## Passes until an energy is reached

Masked passes of a chain until it has the energy that single sites with one early test end with. Grouped burn-in is
eight epochs whose target scores each position in the pass that masks its whole group of four, then the energy itself.
Its first point is often below that energy already, so the last column is "at most".

{_table(["model, target, length", *_ROWS.values()], table)}

The model of BERT-base's size is wiki-small grown without changing its function, so its chains differ by rounding alone.
Tables and curves: [wiki-small](wiki-small/README.md), [BERT-base size](base/README.md).

![Mean energy against masked passes per chain](wiki-small/mixing.svg)

- **Three early tests are worse than one.** They accept more moves of single sites per 1,000 passes ({of("single sites, three early tests", "novel_per_1000_passes"):.1f} instead of {of(sites, "novel_per_1000_passes"):.1f}),
  fewer of spans of 2 ({of("spans of 2, three early tests", "novel_per_1000_passes"):.1f} instead of {of("spans of 2", "novel_per_1000_passes"):.1f}), and energies fall more slowly with both. One early test is the default.
- **No chain here has converged.** Effective samples are about one for each chain in every row: the chains do not agree
  yet. In the second half {of(sites, "changed_in_second_half"):.0%} of the tokens change with single sites, {of(spans, "changed_in_second_half"):.0%} with spans (E_raw, 20 tokens).
- Text: the judge's perplexity is {of(sites, "judge_perplexity"):.0f} with single sites, {of(spans, "judge_perplexity"):.0f} with spans, {of(default, "judge_perplexity"):.0f} with the default (E_raw, 20 tokens).
- Effective samples per pass were compared on templates: [effective samples](../effective/README.md).

## Proteins of 120 letters

Sapiens (`sapiens-vh`), E_norm, on one core of a CPU. Mean energy after {points[-1]:,} masked passes of a chain, and the steps
that they paid for:

{_table(["row", "E_norm", "steps"], ([name, f"{one['energy']:.1f} ± {one['standard_error']:.1f}", f"{one['steps']:.0f}"] for name, one in proteins.items()))}

- **Groups help proteins most**: a step costs 4 passes instead of about 80. A grouped target is another law, so it
  is not the default; `--burn-in 12 --burn-in-energy "norm(groups=4)"` has a longer grouped burn-in.
- No chain has converged: energies still fall, and the chains of a row differ much.

All points and curves: [sapiens](sapiens/README.md).
"""
