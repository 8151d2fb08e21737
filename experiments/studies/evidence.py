"""Which energy is a good distribution of English: nats per token of held-out sentences.

    python -m experiments.studies.evidence measure --out results/evidence
    python -m experiments.studies.evidence page --out results/evidence

The first measures each target once and keeps it in the document; targets that are there already are
skipped. The second writes the page and the figure from the document.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import maskov
from maskov.energies import Autoregressive, parse_energy
from maskov.energies.ordered import Ordered
from maskov.likelihood import EvidencePlan, TargetEvidence, measure
from maskov.shipped import default_judge

HELD_OUT = Path("results/english/held-out-20.txt")
# Energies and temperatures of the targets.
NORMALISED = (
    "ordered", "ordered(seed=1)", "ordered(left-to-right)", "ordered(right-to-left)",
    "ordered(rule=confident)", "ordered(groups=4)", "ordered(orders=8)",
)  # fmt: skip
TARGETS = (
    ("0.69*ordered+0.26*norm", 1.0), ("norm", 1.0), ("norm", 1.45), ("raw", 2.8), ("raw", 1.0),
)  # fmt: skip


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("action", choices=("measure", "page"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--texts", type=Path, default=HELD_OUT)
    parser.add_argument("--model", default="wiki-small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--particles", type=int, default=64)
    parser.add_argument("--populations", type=int, default=4)
    parser.add_argument("--moves", type=int, default=4)
    parser.add_argument("--passes", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help="targets such as norm@1.45")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{options.model}.json"
    document: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"targets": {}}
    if options.action == "measure":
        _measure(options, document, path)
    else:
        _page(document, options.out, options.model)


def _measure(options: argparse.Namespace, document: dict[str, Any], path: Path) -> None:
    torch.set_num_threads(1)
    model = maskov.load(options.model, options.device)
    texts = [line for line in options.texts.read_text().splitlines() if line.strip()]
    plan = EvidencePlan(
        maskov.Site(), Ordered(), options.particles, options.populations, options.moves,
        options.passes, options.seed,
    )  # fmt: skip
    document |= {
        "model": options.model, "fingerprint": model.fingerprint(), "texts": str(options.texts),
        "sentences": len(texts), "particles": plan.particles, "populations": plan.populations,
        "moves": plan.moves, "seed": plan.seed, "version": maskov.__version__,
    }  # fmt: skip
    with torch.inference_mode():
        for energy, temperature in (*((name, 1.0) for name in NORMALISED), *TARGETS):
            name = f"{energy}@{temperature:g}"
            if name in document["targets"] or (options.only and name not in options.only):
                continue
            begun = time.perf_counter()
            found = measure(model, texts, [(parse_energy(energy), temperature)], plan)
            target = found.targets[0]
            document["uniform"] = found.uniform
            document["targets"][name] = {
                **asdict(target), "best": target.best, "agree": target.agree,
                "populations": plan.populations,
                "seconds": round(time.perf_counter() - begun, 1),
            }  # fmt: skip
            _say(name, target)
            path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        if "causal" not in document:
            judge = Autoregressive(str(default_judge()), options.device)
            terms = judge.token_terms([judge.tokenise(text) for text in texts])
            document["causal"] = float(sum(t.sum() for t in terms) / sum(len(t) for t in terms))
            path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _say(name: str, target: TargetEvidence) -> None:
    one = target.lengths[0]
    print(
        f"{name}: log Z {one.log_z:.2f} ± {one.error:.2f}, {target.nats_per_token:.3f} nats per "
        f"token, best {target.best}, {one.passes:.0f} passes, agree {target.agree}",
        flush=True,
    )


def _rows(document: dict[str, Any]) -> list[tuple[float, str]]:
    """Return the nats per token and the line of each distribution."""
    rows = [
        (document["uniform"], f"| uniform over the word pieces | {document['uniform']:.3f} | | |")
    ]
    if "causal" in document:
        name = "wiki-judge, a causal model of the same size that is not told the length"
        rows.append((document["causal"], f"| {name} | {document['causal']:.3f} | | |"))
    for name, one in document["targets"].items():
        energy, _, temperature = name.rpartition("@")
        shown = f"`{energy}`" + (f", T = {temperature}" if temperature != "1" else "")
        length = one["lengths"][0]
        nats = one["nats_per_token"]
        if one["exact"]:
            rows.append((nats, f"| {shown} | {nats:.3f} | 0, exactly | |"))
            continue
        verdict = "agree" if one["agree"] else "do not agree: a lower bound"
        rows.append(
            (nats, f"| {shown} | ≥ {nats:.3f} ± {one['error']:.3f} | {length['log_z']:.2f} ± "
             f"{length['error']:.2f} | {one['populations']}, {length['passes']:.0f} passes, "
             f"{verdict} |")
        )  # fmt: skip
    return sorted(rows)


def _page(document: dict[str, Any], out: Path, model: str) -> None:
    from experiments.lib.style import OTHERS, STYLE, plt

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8, 5))
        curves = {n: one for n, one in document["targets"].items() if one["lengths"][0]["curve"]}
        for (name, one), colour in zip(curves.items(), OTHERS, strict=False):
            curve = one["lengths"][0]["curve"]
            energy, _, temperature = name.rpartition("@")
            label = energy if temperature == "1" else f"{energy}, T = {temperature}"
            axes.plot([p["share"] for p in curve], [p["nats_per_token"] for p in curve], "-o",
                      color=colour, label=label, markersize=4)  # fmt: skip
        lines = {"causal model": document.get("causal")}
        lines["mixture of 8 orders"] = document["targets"]["ordered(orders=8)@1"]["nats_per_token"]
        for (label, value), style in zip(lines.items(), ("--", "-."), strict=True):
            if value is not None:
                axes.axhline(value, linestyle=style, color="#5C5C5C", linewidth=1)
                axes.annotate(label, (0.99, value), xycoords=("axes fraction", "data"),
                              ha="right", va="bottom", fontsize=10)  # fmt: skip
        axes.set_xlabel("share b of the target in q^(1−b) · exp(−bE/T)")
        axes.set_ylabel("nats per token of held-out text")
        axes.legend(frameon=False, fontsize=10)
        figure.tight_layout()
        figure.savefig(out / f"{model}.svg", metadata={"Date": None})
        plt.close(figure)
    best = min(
        (one["best"][1], one["best"][0], name)
        for name, one in document["targets"].items()
        if one["best"] and one["agree"]
    )
    lines = [
        "# Which energy is a good distribution of English", "",
        f"Nats per token of {document['sentences']} held-out sentences of 20 tokens "
        f"({document['texts']}), {model}; lower is better. log Z is estimated by "
        f"independent populations of {document['particles']} particles "
        f"that start from `ordered` and make {document['moves']} single-site moves at each point "
        "of a path found by a pilot. An estimate of Z is unbiased, so log Z is a lower bound up "
        "to chance, and so are the nats per token of an energy: it can only be worse than shown. "
        "Populations that agree may all miss the same part of the target: more passes can raise "
        "log Z. Ordered energies are normalised, and their numbers exact.", "",
        f"![nats per token along the path]({model}.svg)", "",
        "| distribution | nats per token | log Z | populations |", "|---|---|---|---|",
        *(line for _, line in _rows(document)), "",
        f"The best product on a path: q^{1 - best[1]:.2f} · exp(−{best[1]:.2f}·E/T) on the way to "
        f"`{best[2].rpartition('@')[0]}` (T = {best[2].rpartition('@')[2]}), {best[0]:.3f} nats "
        "per token.", "",
        "```console",
        f"$ python -m experiments.studies.evidence measure --out {out} --model {model} --particles "
        f"{document['particles']} --populations {document['populations']} --moves "
        f"{document['moves']}",
        "# a target that is to be measured again, taken out of the document:",
        f'$ python -m experiments.studies.evidence measure --out {out} --model {model} --only '
        '"0.69*ordered+0.26*norm@1" --passes 800 --populations 2',
        f"$ python -m experiments.studies.evidence page --out {out} --model {model}", "```", "",
    ]  # fmt: skip
    (out / "README.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
