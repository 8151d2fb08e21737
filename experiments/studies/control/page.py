"""The page of the comparison: every system scored, the frontier, the cost, examples.

    python -m experiments.studies.control page DATA WORK OUT --results FOLDER --chosen NAME

The setting is chosen before, on held-out lines; the published evaluator is read here alone.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.studies.control.bag import Bag
from experiments.studies.control.data import LABELS
from experiments.studies.control.scoring import (
    Evaluator,
    Halves,
    Judge,
    Labeller,
    Scores,
    Task,
    difference,
    score,
)
from experiments.studies.control.systems import (
    HUMAN,
    SOURCE,
    OurSystem,
    our_names,
    read_published,
    read_task,
)
from maskov.evaluation import Estimate

MIX_AND_MATCH = "mix-and-match"
# About what its published settings take.
MIX_AND_MATCH_PASSES = 48_000
_EXAMPLES = 6
# What the settings of a series have in common; within it only the weights vary.
_SERIES = (
    "fluency", "temperature", "hot", "epochs", "chains", "moves", "span_weights",
    "proposal_temperature", "experts", "prefixed",
)  # fmt: skip
_SETTING = ("strength", "keep", *_SERIES)


@dataclass(frozen=True)
class Comparison:
    """All that the page is written from."""

    task: Task
    evaluator: Labeller
    second: Labeller  # the classifier of words that settings were chosen with
    judge: Judge
    published: dict[str, Halves]
    ours: dict[str, OurSystem]
    chosen: str

    def score(self, outputs: Halves) -> Scores:
        """Score rewritings of all lines, or of the first ones, by the published evaluator."""
        task = self.task.first((len(outputs[0]), len(outputs[1])))
        return score(task, outputs, self.evaluator, self.judge)

    @property
    def best(self) -> OurSystem:
        """The chosen setting."""
        return self.ours[self.chosen]


def write_page(
    data: Path, work: Path, out: Path, results: Path, chosen: str, tool: Path | None = None
) -> None:
    """Write README.md, the figure, scores.json and our lines to OUT."""
    from experiments.studies.control import frontier

    task, names = read_task(data), our_names(results)
    if chosen not in names:
        raise SystemExit(f"'{results}' has no setting '{chosen}'; it has {', '.join(names)}")
    comparison = Comparison(
        task,
        Evaluator(tool or data.parent.parent / "tools" / "yelp_eval.py", data),
        Bag.load(work / "models" / "bag"),
        Judge(work / "models" / "judge"),
        {SOURCE: task.sources, HUMAN: _references(task), **read_published(data)},
        {name: OurSystem.read(results, name, task) for name in names},
        chosen,
    )
    if comparison.best.lines != tuple(map(len, task.sources)):
        raise SystemExit(f"'{chosen}' has not rewritten all lines of the test")
    out.mkdir(parents=True, exist_ok=True)
    picked = comparison.best.of_lowest_energy()
    for number in (0, 1):
        text = "".join(line + "\n" for line in picked[number])
        (out / f"yelp.{number}.txt").write_text(text, encoding="utf-8")
    published = {name: comparison.score(texts) for name, texts in comparison.published.items()}
    settings = {
        name: comparison.score(system.of_lowest_energy())
        for name, system in comparison.ours.items()
    }
    series = _series(list(comparison.ours.values()))
    points = {
        name: frontier.Point(found, series[name], name == chosen)
        for name, found in settings.items()
    }
    frontier.draw(published, points, out / "frontier")
    picks = _picks(comparison)
    lines = [
        *_introduction(comparison, settings[chosen], published),
        *_systems(comparison, published, settings[chosen]),
        *_settings(comparison, settings),
        *_exactness(comparison, picks),
        *_examples(comparison, picked),
        *_again(comparison),
    ]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    record = {
        "chosen": chosen,
        "published": {name: asdict(found) for name, found in published.items()},
        "ours": {
            name: {"setting": comparison.ours[name].record, **asdict(found)}
            for name, found in settings.items()
        },
        "picks": [{"texts": name, "passes": cost, "mean_energy": energy, **asdict(found)}
                  for name, cost, energy, found in picks],
    }  # fmt: skip
    (out / "scores.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


_PICKED = (
    " In rows with `+bag` the chains were sampled by two classifiers, and a third one, a bag of "
    "words of the first half, was added to the energy that picks among their texts, with the same "
    "weight or twice it. It came after sampling, so there are no held-out lines for it: the same "
    "weight was chosen beforehand, and its effect on the test lines was seen by our second "
    "classifier, not by the evaluator."
)


def _introduction(
    comparison: Comparison, scores: Scores, published: dict[str, Scores]
) -> list[str]:
    count = sum(map(len, comparison.task.sources))
    record = comparison.best.record
    passes = record["passes_a_sentence"]
    return [
        "# Control: sentiment rewriting against the published systems",
        "",
        f"{count:,} Yelp sentences are turned into the other sentiment. Our rewritings are in "
        "[yelp.0.txt](yelp.0.txt) (negative to positive) and [yelp.1.txt](yelp.1.txt) (positive to "
        "negative); every number is in [scores.json](scores.json).",
        "",
        _standing(scores, published),
        f"It took {passes:,.0f} masked passes a sentence (Mix & Match: about "
        f"{MIX_AND_MATCH_PASSES:,}) and {record['seconds_a_sentence']:.2f} seconds, all "
        f"{comparison.best.chains} chains included ({record.get('device', 'one device')}).",
        "",
        "The published evaluator took no part in energies, training or tuning. The classifiers of "
        "the energy learned from one half of the training lines. Settings were compared on "
        "held-out lines by a second classifier, of words and pairs of words, that learned from the "
        f"other half.{_PICKED if 'picked_by' in record else ''} [docs/how-to/rewrite.md]"
        "(../../docs/how-to/rewrite.md) explains the energy.",
        "",
    ]  # fmt: skip


def _standing(ours: Scores, published: dict[str, Scores]) -> str:
    """Say which published systems are ahead in accuracy, self-BLEU and BLEU together."""

    def three(scores: Scores) -> list[float]:
        assert scores.reference_bleu is not None
        found = (scores.accuracy, scores.self_bleu, scores.reference_bleu)
        return [round(one.value, 1) for one in found]

    own = three(ours)
    systems = {name: three(one) for name, one in published.items() if name not in (SOURCE, HUMAN)}
    ahead = [
        name
        for name, values in systems.items()
        if all(theirs >= mine for theirs, mine in zip(values, own, strict=True))
    ]
    behind = [
        name
        for name, values in systems.items()
        if all(theirs <= mine for theirs, mine in zip(values, own, strict=True))
    ]
    return (
        f"Accuracy is {own[0]}, self-BLEU {own[1]} and BLEU against the human {own[2]}: "
        f"{len(behind)} of {len(systems)} published systems are at or below this in all three, "
        f"{len(ahead)} at or above."
    )


def _systems(comparison: Comparison, published: dict[str, Scores], ours: Scores) -> list[str]:
    chosen = f"maskov, {comparison.chosen}"
    rows = {**published, chosen: ours}
    ordered = sorted(rows, key=lambda name: -rows[name].accuracy.value)
    second = {
        name: score(comparison.task, texts, comparison.second).accuracy.value
        for name, texts in comparison.published.items()
    }
    picked = comparison.best.of_lowest_energy()
    second[chosen] = score(comparison.task, picked, comparison.second).accuracy.value
    lines = [
        "## All systems",
        "",
        "| | accuracy | to positive | to negative | self-BLEU | BLEU against the human | words "
        "changed | as long as the source | perplexity of the judge | accuracy by our second "
        "classifier |",
        "|---" * 10 + "|",
    ]
    for name in ordered:
        found = rows[name]
        cells = [
            _number(found.accuracy),
            f"{found.to_positive:.1f}",
            f"{found.to_negative:.1f}",
            _number(found.self_bleu),
            _number(found.reference_bleu),
            f"{found.hamming:.2f}",
            f"{100 * found.same_length:.0f} %",
            _number(found.perplexity),
            f"{second[name]:.1f}",
        ]
        if name == chosen:
            cells, name = [f"**{cell}**" if cell else "" for cell in cells], f"**{name}**"
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "± is one standard error over sentences (BLEU: bootstrap). `words changed` is the mean "
        "over rewritings as long as their source. The judge is a small left-to-right model of the "
        "training lines that takes no part in any energy; its perplexity is per token, and lower "
        "is more fluent. Text that is plainer than people write has a lower one than people's. The "
        "human rewritings are spelled and spaced unlike the training lines (`food.` for `food .`), "
        "which the judge counts against them.",
        "",
    ]  # fmt: skip
    if MIX_AND_MATCH in comparison.published:
        gaps = difference(
            comparison.task, comparison.published[MIX_AND_MATCH], picked, comparison.evaluator
        )
        names = {"accuracy": "accuracy", "self_bleu": "self-BLEU",
                 "reference_bleu": "BLEU against the human"}  # fmt: skip
        told = ", ".join(f"{names[key]} {_signed(gap)}" for key, gap in gaps.items())
        lines += [f"Against Mix & Match, sentence by sentence: {told}.", ""]
    return [
        *lines,
        "![accuracy against self-BLEU](frontier.svg)",
        "",
    ]


def _series(systems: Sequence[OurSystem]) -> dict[str, str]:
    """Name the series of each setting: by what differs between series, none if there is one."""
    common = {
        system.name: {key: _shown(system.record.get(key)) for key in _SERIES} for system in systems
    }
    varying = [key for key in _SERIES if len({found[key] for found in common.values()}) > 1]
    return {
        name: ", ".join(f"{key.replace('_', ' ')} {found[key]}" for key in varying)
        for name, found in common.items()
    }


def _settings(comparison: Comparison, scores: dict[str, Scores]) -> list[str]:
    systems = list(comparison.ours.values())
    records = [system.record for system in systems]
    varying = [key for key in _SETTING if len({_shown(one.get(key)) for one in records}) > 1]
    fixed = [key for key in _SETTING if key not in varying and key in records[0]]
    told = ", ".join(f"{key.replace('_', ' ')} {_shown(records[0][key])}" for key in fixed)
    short = [
        f"{one.name} {sum(one.lines)}" for one in systems if one.lines != comparison.best.lines
    ]
    partial = f" The first lines of the test only: {', '.join(short)}." if short else ""
    lines = [
        "## The frontier",
        "",
        "Every setting that rewrote the test lines, the lowest energy of all chains; the chosen "
        f"one is bold.{f' In all: {told}.' if told else ''}{partial} `held out` are lines of the "
        "training text that no model has seen, labelled by our second classifier: by these two "
        "columns settings are chosen.",
        "",
        "| setting | " + "".join(f"{key.replace('_', ' ')} | " for key in varying)
        + "held out: accuracy | held out: self-BLEU | passes a sentence | seconds a sentence | "
        "accuracy | self-BLEU | BLEU against the human | perplexity of the judge | unchanged |",
        "|---" * (10 + len(varying)) + "|",
    ]  # fmt: skip
    for system in sorted(systems, key=lambda one: -scores[one.name].self_bleu.value):
        found, record = scores[system.name], system.record
        held = record.get("held", {}).get("lowest", {})
        cells = [
            *(_shown(record.get(key)) for key in varying),
            *(f"{held[key]:.1f}" if key in held else "" for key in ("accuracy", "self_bleu")),
            f"{record['passes_a_sentence']:,.0f}",
            f"{record['seconds_a_sentence']:.2f}",
            _number(found.accuracy),
            _number(found.self_bleu),
            _number(found.reference_bleu),
            _number(found.perplexity),
            f"{100 * found.unchanged:.1f} %",
        ]
        name = system.name
        if name == comparison.chosen:
            cells, name = [f"**{cell}**" if cell else "" for cell in cells], f"**{name}**"
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return [*lines, ""]


_Pick = tuple[str, float, float | None, Scores]


def _picks(comparison: Comparison) -> list[_Pick]:
    """Return ways to pick a text from the chains: name, passes, mean energy, scores."""
    system = comparison.best
    passes, chains = float(system.record["passes_a_sentence"]), system.chains
    rows: list[_Pick] = []
    named = (("last", "a plain sample"), ("lowest", "the lowest energy it had"))
    for pick, name in named:
        every = [comparison.score(system.of_chain(pick, chain)) for chain in range(chains)]
        energy = system.mean_energy(pick, all_chains=True)
        rows.append((f"one chain, {name}", passes / chains, energy, _mean(every)))
    if chains > 1:
        alike = comparison.score(system.most_alike("last"))
        rows.insert(1, (f"{chains} chains, the sample most like all samples", passes, None, alike))
        for place, pick, name in (
            (2, "last", "the sample of lowest energy"),
            (4, "lowest", "the lowest energy of any"),
        ):
            found = comparison.score(system.of_lowest_energy(pick))
            energy = system.mean_energy(pick, all_chains=False)
            rows.insert(place, (f"{chains} chains, {name}", passes, energy, found))
    return rows


def _exactness(comparison: Comparison, picks: Sequence[_Pick]) -> list[str]:
    lines = [
        "## What is picked from the chains",
        "",
        f"The chosen setting, {comparison.chosen}. A chain samples from exp(−E/T): its last text "
        "is a plain sample; the lowest energy that it ever had is a search. Rows of one chain are "
        f"means over the {comparison.best.chains} chains, each scored as a separate system.",
        "",
        "| | passes | mean energy | accuracy | self-BLEU | BLEU against the human | perplexity of "
        "the judge |",
        "|---" * 7 + "|",
    ]
    for name, cost, energy, found in picks:
        lines.append(
            f"| {name} | {cost:,.0f} | {'' if energy is None else f'{energy:.2f}'} | "
            f"{_number(found.accuracy)} | {_number(found.self_bleu)} | "
            f"{_number(found.reference_bleu)} | {_number(found.perplexity)} |"
        )
    return [*lines, ""]


def _mean(every: Sequence[Scores]) -> Scores:
    """Return the mean of several systems' scores; errors are those of one of them."""

    def of(values: Sequence[Estimate | None]) -> Estimate | None:
        known = [value for value in values if value is not None]
        if not known:
            return None
        errors = [value.standard_error for value in known]
        return Estimate(
            sum(value.value for value in known) / len(known),
            None if None in errors else sum(error or 0.0 for error in errors) / len(errors),
        )

    fields: dict[str, Any] = {}
    for name in Scores.__dataclass_fields__:
        values = [getattr(one, name) for one in every]
        plain = isinstance(values[0], float | int)
        fields[name] = sum(values) / len(values) if plain else of(values)
    return Scores(**fields)


def _examples(comparison: Comparison, picked: Halves) -> list[str]:
    """Show lines drawn at random from those that worked, and from those that failed."""
    rows = []
    for number in (0, 1):
        texts, label = picked[number], LABELS[1 - number]
        labels = comparison.evaluator.predict(texts)
        both = zip(comparison.task.sources[number], texts, labels, strict=True)
        rows += [(label, source, text, found == label) for source, text, found in both]
    likelihood = comparison.judge.negative_log_likelihood([row[2] for row in rows])
    surprise = likelihood[:, 0] / likelihood[:, 1].clip(min=1)
    right = [index for index, row in enumerate(rows) if row[3]]
    wrong = [index for index, row in enumerate(rows) if not row[3]]
    worst = sorted(right, key=lambda index: -surprise[index])[:_EXAMPLES]
    same = [index for index, row in enumerate(rows) if row[1] == row[2]]
    chosen = random.Random(0)

    def drawn(indices: list[int]) -> list[int]:
        return sorted(chosen.sample(indices, min(_EXAMPLES, len(indices))))

    parts = (
        ("Drawn at random from those that the evaluator accepts", drawn(right)),
        ("Drawn at random from those that it does not accept", drawn(wrong)),
        ("Accepted, and the least fluent of all by the judge", worst),
    )
    lines = ["## Examples", "", f"{len(same)} of {len(rows):,} lines were left as they are.", ""]
    for title, indices in parts:
        lines += [f"{title}:", "", "| to | source | rewriting |", "|---|---|---|"]
        lines += [
            f"| {rows[i][0]} | {_cell(rows[i][1])} | {_cell(rows[i][2])} |" for i in indices
        ] or ["| | none | |"]
        lines.append("")
    return lines


def _again(comparison: Comparison) -> list[str]:
    return [
        "## Again",
        "",
        "```console",
        "$ python -m experiments.studies.control prepare DATA WORK",
        "$ python -m experiments.studies.control train WORK              # on a GPU",
        "$ python -m experiments.studies.control rewrite WORK results/control/settings.json "
        "REWRITTEN  # on a GPU",
        *(
            f"$ python -m experiments.studies.control rerank WORK REWRITTEN {name} {weight}"
            for name, plus, weight in (one.partition("+bag") for one in comparison.ours)
            if plus
        ),
        f"$ python -m experiments.studies.control page DATA WORK OUT --results REWRITTEN --chosen "
        f"{comparison.chosen}",
        "```",
        "",
        "DATA are the published files, which have no licence: neither they nor what was trained on "
        "them is in the repository.",
    ]  # fmt: skip


def _references(task: Task) -> Halves:
    assert task.references is not None
    return task.references


def _number(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    if not estimate.standard_error:
        return f"{estimate.value:.1f}"
    return f"{estimate.value:.1f} ± {estimate.standard_error:.1f}"


def _signed(estimate: Estimate) -> str:
    return f"{estimate.value:+.1f} ± {estimate.standard_error or 0:.1f}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " and ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    """Return a text for a cell of a Markdown table."""
    for sign in "\\|*_<`$":
        text = text.replace(sign, "\\" + sign)
    return text
