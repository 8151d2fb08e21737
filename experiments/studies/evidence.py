"""Which energy is a good distribution: nats per token of texts that models were not trained on.

    python -m experiments.studies.evidence text --out results/evidence
    python -m experiments.studies.evidence text --texts results/evidence/held-out-10.txt ...
    python -m experiments.studies.evidence translation --data DATA/test --out results/evidence
    python -m experiments.studies.evidence antibody --data DATA/antibody --out results/evidence
    python -m experiments.studies.evidence page --out results/evidence

Each of the first measures what is not in its document yet; the last writes the page and the figure
from the documents. Only `text` estimates log Z: translations and antibodies are measured with
ordered energies, which are exact, and E_norm, whose exp(−E) is not a probability.

With `--model FOLDER` give `--name`, after which the document is named. `--no-causal` leaves out
wiki-judge, the causal model to compare with.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import maskov
from maskov.energies import Autoregressive, parse_energy
from maskov.fasta import parse
from maskov.likelihood import EvidencePlan, TargetEvidence, causal_nats, measure
from maskov.models.autoregressive import AutoregressiveTranslator
from maskov.shipped import default_judge

HELD_OUT = Path("results/english/held-out-20.txt")
# Energies and temperatures of the targets.
NORMALISED = (
    "ordered", "ordered(seed=1)", "ordered(left-to-right)", "ordered(right-to-left)",
    "ordered(rule=confident)", "ordered(groups=4)", "ordered(orders=8)",
)  # fmt: skip
TARGETS = (
    ("0.69*ordered+0.26*norm", 1.0), ("0.69*ordered+0.26*norm", 0.7), ("norm", 1.0),
    ("norm", 1.45), ("raw", 2.8), ("raw", 1.0),
)  # fmt: skip
# What is exact, and E_norm to compare.
FEW = ("ordered", "ordered(left-to-right)", "ordered(rule=confident)", "ordered(orders=4)",
       "ordered(orders=8)", "norm")  # fmt: skip
MASKED, TWIN = Path("models/deroen-small"), Path("models/deroen-twin")
SETS = ("multi30k.test2016.deen", "europarl.dev.deen")
MODELS = ("sapiens-vh", "sapiens-vl", "antiberty")
# Models that are not shipped, and what the page says of them.
ABOUT = {
    "wiki-base": "wiki-base has the size of BERT-base: {parameters} M parameters in 12 layers of "
    "768. It has the tokens of wiki-any and was trained on 1.55 M of the same sentences, at every "
    "mask rate, too ([how](../../recipes/README.md#the-size-of-bert-base)). It is not shipped."
}


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("action", choices=("text", "translation", "antibody", "page"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--texts", type=Path, default=HELD_OUT)
    parser.add_argument("--data", type=Path, help="folder of test sets, or of antibodies")
    parser.add_argument("--most", type=int, default=100, help="sentence pairs or chains of a set")
    parser.add_argument("--model", default="wiki-any", help="name or folder")
    parser.add_argument("--name", help="of the model in the document and the page")
    parser.add_argument("--no-causal", action="store_true", help="without wiki-judge")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--particles", type=int, default=64)
    parser.add_argument("--populations", type=int, default=4)
    parser.add_argument("--passes", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", nargs="*", default=[], help="targets such as norm@1.45, or of antibodies energies"
    )
    options = parser.parse_args()
    options.name = options.name or options.model
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.action == "page":
        _page(options.out, options.name)
        return
    name = {"text": f"{options.name}-{options.texts.stem.rpartition('-')[2]}"}
    path = options.out / f"{name.get(options.action, options.action)}.json"
    document: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"targets": {}}
    steps: dict[str, Callable[..., None]] = {
        "text": _measure, "translation": _translations, "antibody": _antibodies,
    }  # fmt: skip
    steps[options.action](options, document, path)


def _write(document: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _likelihoods(
    document: dict[str, Any],
    path: Path,
    key: str,
    model: Any,
    texts: list[str],
    only: Sequence[str] = (),
) -> None:
    """Score texts by every energy; keep nats per token and its standard error over texts."""
    for energy in FEW:
        if energy in document["targets"].setdefault(key, {}) or (only and energy not in only):
            continue
        scores = maskov.score(model, texts, energy)
        rates = torch.tensor([one.energy / len(one.tokens) for one in scores]).double()
        tokens = sum(len(one.tokens) for one in scores)
        found = {
            "nats_per_token": sum(one.energy for one in scores) / tokens,
            "text_error": float(rates.std()) / len(rates) ** 0.5,
            "texts": len(scores), "tokens": tokens,
        }  # fmt: skip
        document["targets"][key][energy] = found
        print(key, energy, found, flush=True)
        _write(document, path)


def _translations(options: argparse.Namespace, document: dict[str, Any], path: Path) -> None:
    """Measure references given their sources, and under the autoregressive model."""
    for name in SETS:
        sources, references = (
            (options.data / f"{name}.{side}").read_text().splitlines()[: options.most]
            for side in ("de", "en")
        )
        masked = maskov.load(str(MASKED), options.device).given(sources)  # type: ignore[attr-defined]
        _likelihoods(document, path, name, masked, references)
        if "twin" in document["targets"][name]:
            continue
        twin = AutoregressiveTranslator.load(TWIN, torch.device(options.device), "deroen-twin")
        lines = [masked.encode(text) for text in references]
        lengths = torch.tensor([len(line) for line in lines])
        tokens = torch.tensor([line + [0] * (int(lengths.max()) - len(line)) for line in lines])
        terms = twin.token_terms(twin.read(sources), torch.arange(len(lines)), tokens, lengths)
        ends = terms.gather(1, lengths[:, None]).sum()
        document["targets"][name]["twin"] = {
            "nats_per_token": float(terms.sum() / lengths.sum()),
            "without_ends": float((terms.sum() - ends) / lengths.sum()),
            "texts": len(lines), "tokens": int(lengths.sum()),
        }  # fmt: skip
        _write(document, path)


def _antibodies(options: argparse.Namespace, document: dict[str, Any], path: Path) -> None:
    """Measure natural antibodies: the mouse and rat parents, and what was made human of them."""
    for name in (options.model,) if options.model in MODELS else MODELS:
        model = maskov.load(name, options.device)
        for kind in ("parental", "experimental"):
            file = options.data / "humab25" / f"{kind}.fa"
            records = parse(file.read_text().splitlines(), str(file))
            chains = name[-2:].upper() if name.startswith("sapiens") else ("VH", "VL")
            for chain in (chains,) if isinstance(chains, str) else chains:
                texts = [one for one in records if one.name.endswith(chain)][: options.most]
                label = f"{name}, {kind} {chain}"
                _likelihoods(document, path, label, model, texts, options.only)


def _measure(options: argparse.Namespace, document: dict[str, Any], path: Path) -> None:
    model = maskov.load(options.model, options.device, options.precision)
    texts = [line for line in options.texts.read_text().splitlines() if line.strip()]
    plan = EvidencePlan(
        options.particles, options.populations, passes=options.passes, seed=options.seed
    )  # fmt: skip
    document |= {
        "model": options.name, "fingerprint": model.fingerprint(), "texts": str(options.texts),
        "sentences": len(texts), "moves": plan.moves, "longer": maskov.Population.longer,
        "seed": plan.seed, "version": maskov.__version__,
    }  # fmt: skip
    if options.name in ABOUT:
        network: torch.nn.Module = model.network  # type: ignore[attr-defined]
        document["parameters"] = sum(weight.numel() for weight in network.parameters())
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
                "populations": plan.populations, "particles": plan.particles,
                "precision": options.precision, "device": options.device,
                "seconds": round(time.perf_counter() - begun, 1),
            }  # fmt: skip
            _say(name, target)
            _write(document, path)
        if "causal_given_length" not in document and not options.no_causal:
            judge = Autoregressive(str(default_judge()), options.device)
            document["causal"], told = causal_nats(judge, model, texts, seed=plan.seed)
            document["causal_given_length"] = asdict(told) if told else None
            _write(document, path)


def _say(name: str, target: TargetEvidence) -> None:
    one = target.lengths[0]
    print(
        f"{name}: log Z {one.log_z:.2f} ± {one.error:.2f}, {target.nats_per_token:.3f} nats per "
        f"token, best {target.best}, {one.passes:.0f} passes, agree {target.agree}",
        flush=True,
    )


def _rows(document: dict[str, Any]) -> list[str]:
    """Return a line for each distribution, the best first."""
    uniform = document["uniform"]
    rows = [(uniform, f"| uniform over the word pieces | {uniform:.3f} | | |")]
    if "causal" in document:
        name = "wiki-judge, a causal model of the same size that is not told the length"
        rows.append((document["causal"], f"| {name} | {document['causal']:.3f} | | |"))
    if told := document.get("causal_given_length"):
        rows.append((told["value"], "| wiki-judge given the length, by draws of it | "
                     f"{told['value']:.3f} ± {told['error']:.3f} | | |"))  # fmt: skip
    for name, one in document["targets"].items():
        energy, _, temperature = name.rpartition("@")
        shown = f"`{energy}`" + (f", T = {temperature}" if temperature != "1" else "")
        length, nats = one["lengths"][0], one["nats_per_token"]
        if one["exact"]:
            rows.append((nats, f"| {shown} | {nats:.3f} | 0, exactly | |"))
            continue
        verdict = "agree" if one["agree"] else "do not agree: a lower bound"
        if length["problems"] and all("too few to compare" in said for said in length["problems"]):
            verdict = "too few for a verdict: a lower bound"
        if one["agree"] and "longer" not in document:
            verdict = "agree, but none moved longer than the others: a lower bound"
        rows.append(
            (nats, f"| {shown} | ≥ {nats:.3f} ± {one['error']:.3f} | {length['log_z']:.2f} ± "
             f"{length['error']:.2f} | {one['populations']} × {one['particles']}, "
             f"{length['passes']:.0f} passes, {verdict} |")
        )  # fmt: skip
    return [line for _, line in sorted(rows)]


def _few_rows(document: dict[str, Any]) -> list[str]:
    """Return a line for each set of texts, with the nats per token of each energy."""
    rows = []
    for name, found in document["targets"].items():
        cells = [f"{found[one]['nats_per_token']:.3f}" if one in found else "" for one in FEW]
        error, twin = found[FEW[0]]["text_error"], found.get("twin")
        cells[0] += f" ± {error:.3f}"
        cells += [] if "twin" not in found else [f"{twin['without_ends']:.3f}"]
        rows.append(f"| {name} | {found[FEW[0]]['texts']} | {' | '.join(cells)} |")
    return rows


def _figure(document: dict[str, Any], path: Path) -> None:
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
        mixture = document["targets"].get("ordered(orders=8)@1", {})
        lines["mixture of 8 orders"] = mixture.get("nats_per_token")
        for (label, value), style in zip(lines.items(), ("--", "-."), strict=True):
            if value is not None:
                axes.axhline(value, linestyle=style, color="#5C5C5C", linewidth=1)
                axes.annotate(label, (0.99, value), xycoords=("axes fraction", "data"),
                              ha="right", va="bottom", fontsize=10)  # fmt: skip
        axes.set_xlabel("share b of the target in q^(1−b) · exp(−bE/T)")
        axes.set_ylabel("nats per token of held-out text")
        axes.legend(frameon=False, fontsize=10)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def _page(out: Path, model: str) -> None:
    """Write the page of all documents that are there."""
    lines = [
        "# Which energy is a good distribution", "",
        "Nats per token of texts that the models were not trained on; lower is better. Ordered "
        "energies are normalised, and their numbers exact. log Z of the others is estimated by "
        "independent populations that start from `ordered` and go along a path found by a pilot. "
        "An estimate of Z is unbiased, so log Z is a lower bound up to chance, and so are the nats "
        "per token (≥): an energy can only be worse than shown. Every second population moves "
        "longer, and populations agree only if these find hardly more.", "",
    ]  # fmt: skip
    names = (model, *ABOUT, "wiki-small")
    paths = [path for name in names for path in sorted(out.glob(f"{name}-*.json"))]
    for path in dict.fromkeys(paths):
        document = json.loads(path.read_text())
        figure = []
        if any(one["lengths"][0]["curve"] for one in document["targets"].values()):
            _figure(document, path.with_suffix(".svg"))
            figure = [f"![nats per token along the path]({path.stem}.svg)", ""]
        said = ABOUT.get(document["model"], "")
        if said:
            said = " " + said.format(parameters=round(document["parameters"] / 1e6))
        length = document["targets"]["ordered@1"]["lengths"][0]["length"]
        lines += [
            f"## English, sentences of {length} tokens, {document['model']}", "",
            f"{document['sentences']} sentences ({document['texts']}).{said}", "",
            *figure,
            "| distribution | nats per token | log Z | populations × particles |",
            "|---|---|---|---|",
            *_rows(document), "",
        ]  # fmt: skip
    sizes = " | ".join("---" for _ in FEW)
    energies = " | ".join(f"`{one}`" for one in FEW)
    about = {
        "translation": (
            "German to English, the reference given the source",
            " | deroen-twin |", " --- |",
            "deroen-small, and deroen-twin, an autoregressive model of the same size, whose terms "
            "of the end are left out: `ordered` is told the length, too.",
        ),
        "antibody": (
            "Antibodies",
            " |", "",
            "The 25 parents from mouse and rat and what laboratories made human of them (Hu-mAb).",
        ),
    }  # fmt: skip
    for name, (title, more, rule, text) in about.items():
        if (path := out / f"{name}.json").exists():
            lines += [
                f"## {title}", "",
                f"{text} E_norm is −log of the pseudo-likelihood, which is not a probability and "
                "usually looks better.", "",
                f"| texts | number | {energies}{more}", f"|---|---|{sizes} |{rule}",
                *_few_rows(json.loads(path.read_text())), "",
            ]  # fmt: skip
    lines += ["```console", *_COMMANDS, "```", ""]
    (out / "README.md").write_text("\n".join(lines))


_ORDERED = " ".join(f"'{energy}@1'" for energy in NORMALISED)
_BASE = (
    "python -m experiments.studies.evidence text --model wiki-base/model --name wiki-base "
    "--no-causal --device cuda --out results/evidence"
)
_COMMANDS = (
    "$ python -m experiments.studies.evidence text --device cuda --particles 1024 --passes 800 "
    "--only '0.69*ordered+0.26*norm@1' --out results/evidence",
    "$ python -m experiments.studies.evidence text --device cuda --precision bfloat16 --particles "
    "1024 --populations 2 --passes 4000 --only '0.69*ordered+0.26*norm@0.7' --out results/evidence",
    "$ python -m experiments.studies.evidence text --device cuda --precision bfloat16 --particles "
    "1024 --passes 3500 --only norm@1 --out results/evidence",
    "$ python -m experiments.studies.evidence text --device cuda --particles 512 --passes 2000 "
    "--only norm@1.45 --out results/evidence",
    "$ python -m experiments.studies.evidence text --device cuda --particles 256 --passes 2000 "
    "--only raw@2.8 raw@1 --out results/evidence",
    "$ python -m experiments.studies.evidence text --texts results/evidence/held-out-10.txt "
    "--device cuda --particles 512 --passes 600 --out results/evidence",
    "$ python -m experiments.studies.evidence text --texts results/evidence/held-out-40.txt --out "
    "results/evidence --only " + _ORDERED,
    "$ python -m experiments.studies.evidence text --texts results/evidence/held-out-40.txt "
    "--particles 48 --populations 4 --passes 200 --only '0.69*ordered+0.26*norm@1' --out "
    "results/evidence",
    "$ python -m experiments.studies.evidence text --out results/evidence --only " + _ORDERED,
    "$ python -m experiments.studies.evidence text --model wiki-small --out results/evidence",
    "$ python -m experiments.studies.evidence text --model wiki-small --texts "
    "results/evidence/held-out-10.txt --particles 32 --passes 200 --out results/evidence",
    "$ python -m experiments.studies.evidence text --model wiki-small --texts "
    "results/evidence/held-out-40.txt --out results/evidence --only " + _ORDERED,
    "$ python -m experiments.studies.evidence text --model wiki-small --texts "
    "results/evidence/held-out-40.txt --particles 48 --populations 4 --passes 200 "
    "--only '0.69*ordered+0.26*norm@1' --out results/evidence",
    *(
        f"$ {_BASE} {rest}"
        for rest in (
            "--precision tf32 --only " + _ORDERED,
            "--texts results/evidence/held-out-10.txt --precision tf32 --only " + _ORDERED,
            "--texts results/evidence/held-out-40.txt --precision tf32 --only " + _ORDERED,
            "--precision bfloat16 --particles 512 --passes 800 --only '0.69*ordered+0.26*norm@1'",
            "--precision bfloat16 --particles 512 --passes 1200 --only norm@1",
            "--texts results/evidence/held-out-10.txt --precision bfloat16 --particles 512 "
            "--passes 600 --only norm@1 raw@1 '0.69*ordered+0.26*norm@1'",
            "--texts results/evidence/held-out-40.txt --precision bfloat16 --particles 256 "
            "--passes 600 --only norm@1 '0.69*ordered+0.26*norm@1'",
        )
    ),
    "$ python -m experiments.studies.evidence translation --data DATA/test --most 60 --out "
    "results/evidence",
    "$ python -m experiments.studies.evidence antibody --data DATA/antibody --model antiberty "
    "--only ordered 'ordered(left-to-right)' --out results/evidence",
    "$ python -m experiments.studies.evidence antibody --data DATA/antibody --out results/evidence",
    "$ python -m experiments.studies.evidence page --out results/evidence",
)


if __name__ == "__main__":
    main()
