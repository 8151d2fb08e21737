"""The front page of the results, and the pages of model variants, speeds and mixing.

    python -m experiments.findings [results]

writes `README.md` of the folder of results, and those of `variants`, `bench` and `mixing` in it.
Every number is read from the JSON documents in that folder.
"""

# ruff: noqa: E501 - Markdown with numbers in it

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from experiments import pages
from experiments.lib.chains import TextChains
from experiments.lib.result import find_row
from experiments.paper.claims import CLAIMS
from experiments.paper.claims_page import count, counts
from experiments.paper.driver import read_documents
from experiments.paper.verdicts import FAILED, HELD, NOT_RUN, PART, Claim, Documents, Verdict
from experiments.studies.mixing import FIRST_DEFAULT

# The variants, in the order of the page, with how each was trained.
VARIANTS = {
    "base": "a masked LM of the size of BERT-base, trained for 15 minutes; text only",
    "right-words": "right words only among those shown (`--noisy 0`)",
    "smoothed": "the shipped model, trained further with smoothing 0.1 for 2.5 minutes",
    "smoothed-twin": "as Mask-Predict was trained: from the weights of the autoregressive model, "
    "with smoothing 0.1 and right words only, 5.5 minutes on distilled pairs",
    "smoothing-removed": "the weights of `smoothed-twin` with `--remove-smoothing 0.1`",
    "smoothed-small": "`right-words` trained further with smoothing 0.1, 400 small steps; small "
    "setting",
    "unsmoothed": "the control of `smoothed-small`: the same without smoothing",
}
_PAPERS_TRAINING = "variants/smoothed-twin"
_DEFAULT_ROW = "spans of 1 to 3, grouped burn-in (the default)"
_BEST_CHAINS = "MH, sampled length, with the twin, from its translation, MBR over chains"
_SETS = ("europarl.dev.deen", "rosts.dev.roen", "newstest2016.roen", "newstest2014.deen")


@dataclass(frozen=True)
class Results:
    """The folder of results."""

    root: Path

    @cache  # noqa: B019 - one object, for one page
    def json(self, path: str) -> Any:
        """Read a document."""
        return json.loads((self.root / path).read_text(encoding="utf-8"))

    @cache  # noqa: B019
    def documents(self, folder: str) -> Documents:
        """Read the results of the paper's experiments in a folder."""
        return read_documents(self.root / folder)

    def number(
        self, result: str, quantity: str, series: str, x: float | str, folder: str = "paper"
    ) -> float:
        """Return one of our numbers."""
        row = find_row(self.documents(folder)[result], quantity, series, x)
        assert row is not None, (folder, result, quantity, series, x)
        return float(row["ours"])

    def reached(self, energy: str, length: int, name: str = _DEFAULT_ROW) -> str:
        """Return the passes after which a row of `mixing` has the energy of single sites."""
        rows = self.json("mixing/wiki-small/mixing.json")["rows"]
        (row,) = (one for one in rows
                  if (one["energy"], one["length"], one["row"]) == (energy, length, name))  # fmt: skip
        return f"{row['reached']:,.0f}"

    def systems(self, folder: str) -> dict[str, Any]:
        """Return the systems of a comparison of translations."""
        rows: dict[str, Any] = self.json(f"{folder}/lengths.json")["rows"]
        return rows

    def variant_verdict(self, folder: str, claim: Claim) -> Verdict:
        """Return the verdict of a variant; unconditional text is that of the shipped model."""
        own = self.documents(folder)
        if claim.verdict(own)[0] == NOT_RUN:
            return NOT_RUN, []
        return claim.verdict(with_text_of(self.documents("paper"), own))


def with_text_of(main: Documents, documents: Documents) -> Documents:
    """Return the results of another translation model with the main results of text.

    Unconditional text does not depend on the translation model. Results that have text of their
    own are of another model of text, and stay as they are.
    """
    cells = [cell for document in documents.values() for cell in document["cells"].values()]
    if any(cell.get("kind") == TextChains.kind for cell in cells):
        return documents
    completed = {}
    for name, document in documents.items():
        found = main.get(name, document)
        text = {
            label: cell
            for label, cell in found["cells"].items()
            if cell.get("kind") == TextChains.kind and label not in document["cells"]
        }
        rows = [row for row in document["comparison"] if row["cell"] not in text]
        rows += [row for row in found["comparison"] if row["cell"] in text]
        completed[name] = document | {"comparison": rows, "cells": document["cells"] | text}
    return completed


def _gap(row: dict[str, Any]) -> str:
    gap = row["against_baseline"]
    return f"{gap['bleu']:+.2f} ± {gap['standard_error']:.2f}"


def _likelihood(r: Results) -> str:
    found = r.json("evidence/wiki-any-20.json")

    def nats(name: str) -> str:
        return f"{found['targets'][name]['nats_per_token']:.2f}"

    return f"""\
## By likelihood an ordered fill is better than E_norm, and E_norm better than E_raw

How probable is held-out English under each energy? On {found["sentences"]} sentences of 20 tokens, in nats per token (lower is
better): the mixture of eight orders {nats("ordered(orders=8)@1")}, one order {nats("ordered@1")}, both exactly. E_norm has at least {nats("norm@1")}, at
T = 1.45 at least {nats("norm@1.45")}; E_raw at least {nats("raw@1")}, at T = 2.8 at least {nats("raw@2.8")}. A product of
an ordered fill and E_norm has {nats("0.69*ordered+0.26*norm@1")}, and its populations agree. The uniform distribution over word pieces has
{found["uniform"]:.2f}. log Z of E_norm and E_raw is estimated from below, so up to chance they can only be worse than shown.
[Evidence](evidence/README.md)

![nats per token on the way from an ordered fill to each energy](evidence/wiki-any-20.svg)
"""


def _default(r: Results) -> str:
    best = r.json("default/targets.json")["chosen"]
    text = r.json("default/text.json")

    def shown(row: str, name: str, digits: int = 0) -> str:
        return "{:.{digits}f} ± {:.{digits}f}".format(*text[row]["measures"][name], digits=digits)

    return f"""\
## Plain sentences converge, at a target close to the model's own draws

By default chains propose whole sentences of the model's ordered fill at T = {best["temperature"]} and test them against that fill
weighted by {best["tilt"]}·E_norm in groups and by {best["penalty"]} for each repeated word; draws promise that {best["accepted"]:.0%} are accepted. The
judge's perplexity of {len(text["default"]["texts"])} sentences, each of its own chain, is {shown("default", "perplexity")} (independent draws of the fill {shown("draws", "perplexity")}, held-out
text {shown("held-out text", "perplexity")}). {text["default"]["measures"]["repeated"][0]:.1%} of their words stand earlier in the same sentence (draws {text["draws"]["measures"]["repeated"][0]:.1%}, held-out text {text["held-out text"]["measures"]["repeated"][0]:.1%}).
A classifier tells them from held-out text in {shown("default", "classifier", 2)} of cases; 0.5 is chance. [The default target](default/README.md) ·
[its text](default/text.md)
"""


def _mixing(r: Results) -> str:
    return f"""\
## Spans and a grouped burn-in make chains several times faster

Chains of 20 tokens reach in {r.reached("raw", 20)} masked passes the E_raw that single sites reach in
{r.reached("raw", 20, FIRST_DEFAULT)}; with 45 tokens in {r.reached("raw", 45)} instead of {r.reached("raw", 45, FIRST_DEFAULT)}. For E_norm these are
{r.reached("norm", 20)} instead of {r.reached("norm", 20, FIRST_DEFAULT)}, and {r.reached("norm", 45)} instead of {r.reached("norm", 45, FIRST_DEFAULT)}. Every row samples its target exactly. None of
these free chains has converged: they still differ from each other. [Mixing](mixing/README.md)

![mean energy against masked passes per chain](mixing/wiki-small/mixing.svg)
"""


def _orders(r: Results) -> str:
    text = {name: r.number("table6", "perplexity", name, "base") for name in ("raw", "norm", "deg")}
    energy, bleu = (
        {
            (folder, name): r.number("figure1", quantity, name, "after burn-in", folder)
            for folder in ("paper", _PAPERS_TRAINING)
            for name in ("raw", "norm", "deg")
        }
        for quantity in ("energy_norm", "bleu")
    )
    old, new = "paper", _PAPERS_TRAINING
    return f"""\
## The paper's orders hold for text, and for translation if the model is trained as the paper's

Text by MH on E_raw has a perplexity of {text["raw"]:.0f} under a judge, on E_norm {text["norm"]:.0f}, by degenerate Gibbs
{text["deg"]:.0f}: the paper's order. In translation it depends on the training. With label smoothing and right words only,
as in the paper, MH has E_norm {energy[new, "raw"]:.1f} (on E_raw) and {energy[new, "norm"]:.1f} (on E_norm), Gibbs {energy[new, "deg"]:.1f}; BLEU is {bleu[new, "raw"]:.1f}, {bleu[new, "norm"]:.1f} and
{bleu[new, "deg"]:.1f}. Our model is trained without smoothing, and there Gibbs is good as well: BLEU {bleu[old, "deg"]:.1f}, MH {bleu[old, "raw"]:.1f} and
{bleu[old, "norm"]:.1f}. [Every comparison](paper/README.md) · [variants](variants/README.md)

![energy and BLEU over epochs, a model trained as the paper's]({new}/figure1.svg)
"""


def _translation(r: Results) -> str:
    news, europarl = r.systems("translation-newstest2016"), r.systems("translation-twin")
    baseline, searched = "mask-predict, 5 lengths", "MH, searched length"
    best, twin = europarl[_BEST_CHAINS], europarl["autoregressive, beam 5"]
    return f"""\
## MH translates better than mask-predict if it starts there and moves spans

On newstest2016 (Romanian), chains that start at the best of five lengths of mask-predict have BLEU {news[searched]["bleu"]:.1f},
mask-predict {news[baseline]["bleu"]:.1f} ({_gap(news[searched])}), and the paper's settings {news["MH, fixed length (paper)"]["bleu"]:.1f}. On europarl.dev they are level
({_gap(europarl[searched])}) at E_norm {europarl[searched]["energy_norm"]:.1f} instead of {europarl[baseline]["energy_norm"]:.1f}. With the autoregressive model as an expert,
and as the start, they reach it: {best["bleu"]:.1f} and {twin["bleu"]:.1f}. [europarl.dev](translation-twin/README.md) ·
[newstest2016](translation-newstest2016/README.md) · [all methods](translation/README.md)

![BLEU and E_norm of each system](translation-newstest2016/lengths.svg)
"""


def _antibodies(r: Results) -> str:
    lattice, peer = r.json("antibody/lattice.json"), r.json("antibody/peer.json")
    sampled = lattice["sampled"]
    points = {
        row["system"]: row for row in r.json("antibody/humanise.json")["points"]
        if row["part"] == "all"
    }  # fmt: skip
    humab = points["humab"]
    return f"""\
## Antibodies: samples follow the enumerated law

All {len(lattice["energies"]):,} sequences of a lattice were scored with AntiBERTy. {sampled["draws"]:,} samples have a total variation of
{sampled["total_variation"]:.4f} to the law; as many independent draws have {sampled["of_independent_draws"]:.4f}. EvoProtGrad 0.2 has {peer["as it is"]["total_variation"]:.3f}, and {peer["and the way back"]["total_variation"]:.4f} with
two corrections. Humanising mutations ranked by two models are at or above the precision of published systems at
each of their numbers of mutations: {humab["product"]["precision"]:.2f} where Hu-mAb has {humab["precision"]:.2f}. No difference to Sapiens is settled.
[Antibodies](antibody/README.md)

![precision against the number of mutations](antibody/humanise.svg)
"""


def _speed(r: Results) -> str:
    document = r.json("bench/side-by-side-h200.json")
    rows = {row["name"]: row for row in document["rows"]}
    first, batched, ours = rows["algorithm 1"], rows["batched copies"], rows["maskov"]
    return f"""\
## An H200 is used well

{document["options"]["chains"]} chains of {document["options"]["length"][0]} tokens in float32: {ours["novel_per_second"]:,.0f} accepted changes a second. Algorithm 1 as written makes
{first["novel_per_second"]:.2f}, with batched copies {batched["novel_per_second"]:.1f}. Passes reach {100 * ours["share_of_ceiling"]:.0f} % of what matrix products reach alone, and a change takes
{first["novel_per_pass"] ** -1:,.0f} passes in Algorithm 1, {ours["novel_per_pass"] ** -1:,.0f} here. [Speed](bench/README.md)

![accepted changes a second](bench/side-by-side-h200.svg)
"""


FINDINGS: tuple[Callable[[Results], str], ...] = (
    _likelihood, _default, _mixing, _orders, _translation, _antibodies, _speed,
)  # fmt: skip


def _close_at_half(r: Results) -> str:
    ours = [
        [r.number("explanations", "energy_norm", series, 0.5, folder) for series in
         ("norm, forced", "deg")]
        for folder in ("paper", _PAPERS_TRAINING)
    ]  # fmt: skip
    return (
        "At low temperatures chains stay near their start. After eight forced epochs MH is closer "
        f"to Gibbs at 0.5: {ours[0][0]:.1f} and {ours[0][1]:.1f}, with smoothing {ours[1][0]:.1f} "
        f"and {ours[1][1]:.1f}"
    )


def _forced(r: Results) -> str:
    rows = {
        name: ", ".join(f"{r.number('table5', 'bleu_last', name, data):.1f}" for data in _SETS)
        for name in ("MH norm, 8 forced epochs", "mask-predict, 10 iterations")
    }
    return (
        "Chains stay near the warm start. With eight forced epochs MH on E_norm has "
        f"{rows['MH norm, 8 forced epochs']} BLEU on the four sets, mask-predict "
        f"{rows['mask-predict, 10 iterations']}"
    )


def _blocks(r: Results) -> str:
    def rate(result: str, series: str = "norm") -> float:
        return r.number(result, "novel", series, "text")

    return (
        f"Not for text on E_norm: {rate('acceptance'):.3f} with single positions, "
        f"{rate('table4'):.3f} with blocks, which differ more often and are accepted less often"
    )


def _level_with_twin(r: Results) -> str:
    rows = r.systems("translation-twin")
    return (
        "The masked model was trained for minutes. With the autoregressive model as expert and "
        f"start MH reaches it: {rows[_BEST_CHAINS]['bleu']:.1f} and "
        f"{rows['autoregressive, beam 5']['bleu']:.1f}"
    )


def _cool(r: Results) -> str:
    values = [
        f"{r.number('cool-text', 'perplexity', series, x):.1f}"
        for x in (0.8, 0.5)
        for series in ("raw, cool", "deg")
    ]
    return (
        "The target of MH keeps temperature 1. With the proposal's temperature in the target, "
        f"perplexity is {values[0]} (Gibbs {values[1]}) at 0.8 and {values[2]} ({values[3]}) at 0.5"
    )


def _fixed_blocks(r: Results) -> str:
    rates = [r.number("fixed-blocks", "acceptance", "norm", size) for size in (1.0, 8.0)]
    return (
        "A block is accepted as a whole, so larger ones are rejected more: acceptance "
        f"{rates[0]:.2f} with one position, {rates[1]:.2f} with eight (E_norm)"
    )


def _by_a_judge(r: Results) -> str:
    targets = r.json("evidence/wiki-any-20.json")["targets"]
    raw, norm = (targets[f"{name}@1"]["nats_per_token"] for name in ("raw", "norm"))
    return (
        "It holds for a judge's perplexity of chains that have not converged. The likelihood of "
        f"held-out text speaks against it so far: at least {raw:.1f} nats per token under E_raw, "
        f"at least {norm:.1f} under E_norm ([evidence](evidence/README.md))"
    )


def _periods(r: Results) -> str:
    values = r.documents("paper")["degenerate-lows"]["cells"]["lows"]["values"]
    share = values["repeated_below_raw"]["value"]
    return f"Periods are not low in this model; {share:.1%} of the other repeated tokens are"


# Why a claim got its verdict: the start of the claim, the verdict, the reason.
_SMOOTHING = (
    "The model was trained without label smoothing, so Gibbs is good. It holds with smoothing and "
    "right words only ([variants](variants/README.md))"
)
WHY: dict[tuple[str, str], str | Callable[[Results], str]] = {
    ("Masked conditionals", HELD): "Proved for this example by enumeration",
    ("In translation, MH samples", PART): _SMOOTHING,
    ("Degenerate Gibbs keeps", FAILED): _SMOOTHING,
    ("The energy of MH samples", PART): _close_at_half,
    ("Unconditional text: MH", PART): _cool,
    ("With a truncated proposal", FAILED): "Where the current token is outside its nucleus, no "
    "proposal can be accepted; mixing in a share ε of the full conditional fixes this",
    ("Blocks make MH", PART): _blocks,
    ("With blocks, degenerate", PART): _SMOOTHING,
    ("For unconditional text", HELD): _by_a_judge,
    ("Unconditional quality", HELD): _by_a_judge,
    ("Block Gibbs at", HELD): "With mask-predict's own choice of positions, which leaves no target "
    "invariant",
    ("Annealed chains on", FAILED): "Most proposals equal the current token under either energy, "
    "so the two differ little",
    ("Annealed MH translates", FAILED): _forced,
    ("MH comes close", FAILED): _level_with_twin,
    ("People rate", NOT_RUN): "Needs people: [how](../docs/reference/reproduce.md#ratings)",
    ("Faster annealing", PART): "Energies and rates do, BLEU does not: slow annealing ends at "
    "higher energies here",
    ("The large blocks", FAILED): _fixed_blocks,
    ("With an autoregressive", PART): "Judge and masked model were trained on the same text and "
    "differ less than BERT and GPT-2",
    ("Ill-formed", PART): _periods,
    ("Ours: after eight", PART): "Below Gibbs at proposal temperature 1, not at 0.8 and 0.5",
}  # fmt: skip
_DEFAULTS = {
    HELD: "Every comparison is settled in its favour",
    PART: "Some comparisons hold; the others fail or are not settled",
}


def why(results: Results, claim: Claim, verdict: str) -> str:
    """Return the reason for a verdict on a claim."""
    for (start, expected), reason in WHY.items():
        if claim.text.startswith(start) and verdict == expected:
            return reason if isinstance(reason, str) else reason(results)
    return _DEFAULTS[verdict]


def front_page(results: Results) -> str:
    """Return the findings, one figure each, and the table of claims."""
    documents = results.documents("paper")
    verdicts = [(claim, claim.verdict(documents)[0]) for claim in CLAIMS]
    lines = [
        "# Results",
        "",
        "`python -m experiments.findings` writes this page; every number comes from the documents "
        "in this folder.",
        "",
        *(finding(results) for finding in FINDINGS),
        "Also: [rewriting against published systems](control/README.md) · "
        "[which energy](energies/README.md) · [effective samples](effective/README.md) · "
        "[the English models](english/README.md) · "
        "[lengths of translations](translation-lengths/README.md) · "
        "[gaps restored](restoration/README.md)",
        "",
        "## The paper's claims",
        "",
        f"{counts(verdicts)} These are verdicts for the shipped models; "
        "[other models](variants/README.md) have their own page. "
        "[Every comparison](paper/README.md) has its numbers.",
        "",
        "| claim | held? | why |",
        "|---|---|---|",
    ]
    for claim, verdict in verdicts:
        held = {HELD: "**yes**", PART: "in part", FAILED: "no"}.get(verdict, verdict)
        text = claim.text if verdict == NOT_RUN else f"[{claim.text}](paper/{claim.result}.md)"
        lines.append(f"| {text} | {held} | {why(results, claim, verdict)} |")
    return "\n".join(lines) + "\n"


def variants_page(results: Results) -> str:
    """Return the claims with each model variant."""

    def bleu(name: str, folder: str) -> str:
        return (
            f"{results.number('figure1', 'bleu', name, 'after burn-in', f'variants/{folder}'):.1f}"
        )

    after, before = "smoothing-removed", "smoothed-twin"
    lines = [
        "# Other models",
        "",
        "The claims with models that were trained in other ways. None of the translation models is "
        "better than the shipped one, and none is shipped. docs/reference/reproduce.md has the commands.",
        "",
        "| | training | claims |",
        "|---|---|---|",
    ]
    table = {
        name: {claim: results.variant_verdict(f"variants/{name}", claim) for claim in CLAIMS}
        for name in VARIANTS
    }
    for name, training in VARIANTS.items():
        tested = [verdict for verdict, _ in table[name].values() if verdict != NOT_RUN]
        lines.append(f"| [{name}]({name}/README.md) | {training} | {count(tested)} |")
    lines += [
        "",
        "The variants ask why degenerate Gibbs degrades in the paper and not with the shipped "
        "model. Label smoothing makes Gibbs poor at temperature 1 and lets chains move as often as "
        "the paper's; with right words only as well, the energy of Gibbs also rises. MH then has "
        "lower energy and higher BLEU than Gibbs with both energies, as in the paper. Without the "
        "smoothed tail all chains translate better, and Gibbs gains most: BLEU "
        f"{bleu('deg', after)} instead of {bleu('deg', before)}, MH on E_norm "
        f"{bleu('norm', after)} instead of {bleu('norm', before)}, on E_raw {bleu('raw', after)} "
        f"instead of {bleu('raw', before)}.",
        "",
        "![degenerate Gibbs degrades in a model trained as the paper's](smoothed-twin/figure1.svg)",
        "",
        "| claim | shipped | " + " | ".join(VARIANTS) + " |",
        "|---|---|" + "---|" * len(VARIANTS),
    ]
    held = set()
    for claim in CLAIMS:
        ours = claim.verdict(results.documents("paper"))
        cells = []
        for name in VARIANTS:
            verdict, outcomes = table[name][claim]
            some = len(outcomes) < len(ours[1])
            part = f" ({len(outcomes)} of {len(ours[1])} comparisons)" if some else ""
            cells.append("" if verdict == NOT_RUN else f"{verdict}{part}")
            if verdict == HELD and not some:
                held.add(claim)
        if any(cells):
            lines.append(f"| {claim.text} | {ours[0]} | {' | '.join(cells)} |")
        if ours[0] == HELD:
            held.add(claim)
    papers = [claim for claim in CLAIMS if claim.papers]
    lines += [
        "",
        f"Of the paper's {len(papers)} claims, {sum(claim in held for claim in papers)} hold with "
        "at least one model, in all comparisons. Comparisons of unconditional text with another "
        "translation model are those of the shipped model, because text does not depend on it.",
    ]
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[Results], str]] = {
    "README.md": front_page,
    "variants/README.md": variants_page,
    "bench/README.md": lambda results: pages.speed(results.root / "bench"),
    "bench/rounds.md": lambda results: pages.rounds(results.root / "bench"),
    "mixing/README.md": lambda results: pages.mixing(results.root / "mixing"),
}


def main(arguments: list[str] | None = None) -> None:
    """Write the pages."""
    given = sys.argv[1:] if arguments is None else arguments
    results = Results(Path(given[0] if given else "results"))
    for file, page in PAGES.items():
        (results.root / file).write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
