"""The samples of a report: as people read them, similar ones of a chain in groups, a few first.

With the run's model, every token of a sample has its energy terms. The samples of a run from FASTA
are also told by what they did to each parent: letters, mutations, distances, energies.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, takewhile
from typing import Any

import numpy as np
import torch

from maskov.config import Manifest
from maskov.energies import Norm, Raw
from maskov.fasta import letter
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.runs import Sample
from maskov.types import padded
from maskov.ui.detokenise import detokenised, readable_spans

# Samples at the top of a report, and how many are looked at where chains are few.
FIRST_SAMPLES = 5
_LOOKED_AT = 50
# Samples are similar if at most one token in so many differs.
_ONE_IN = 4
# Groups of a chain that a sample is compared with, the latest first.
_COMPARED = 10
# Samples that are scored together; their masked passes already fill the batches.
_SCORED = 64
# Parents with their own charts, samples whose distances are compared, and mutations listed.
MOST_PARENTS = 8
MOST_COMPARED = 500
MOST_LISTED = 12

# The terms of each token by energy, `raw` and `norm`; they sum to the energies of the sample.
Terms = dict[str, list[float]]


def spaced(number: int, most: int) -> list[int]:
    """Return up to `most` evenly spaced indices below a number, first and last included."""
    if number <= most:
        return list(range(number))
    return [round(place * (number - 1) / max(most - 1, 1)) for place in range(most)]


def target_energy(manifest: Manifest, samples: Sequence[Sample]) -> str:
    """Return which energy of the samples is that of the target: `raw`, `norm` or `target`."""
    if samples and all("target" in sample.energies for sample in samples):
        return "target"
    return "norm" if manifest.energy == "norm" else "raw"


def shown_samples(
    manifest: Manifest,
    samples: Sequence[Sample],
    terms: Sequence[Terms] | None = None,
    order: str = "raw",
    per_token: bool = False,
) -> list[dict[str, Any]]:
    """Return samples as they are shown, plain data.

    `token_spans` splits the text into one span per token, or is None. Similar samples of a chain
    have the same `group`. `rank` is the energy `order`, or that of a token.
    """
    sources, shown = manifest.inputs.sources, []
    scored: Sequence[Terms | None] = terms or [None] * len(samples)
    for one, own, group in zip(samples, scored, similar_groups(samples), strict=True):
        energies = {
            "raw": one.energy_raw, "norm": one.energy_norm, "target": one.energies.get("target")
        }  # fmt: skip
        shown.append({
            "chain": one.chain,
            "epoch": one.epoch + 1,
            "text": detokenised(one.text, one.tokens),
            "tokens": one.tokens,
            "token_spans": readable_spans(one.text, one.tokens),
            **{f"energy_{name}": energy for name, energy in energies.items()},
            "rank": (energies[order] or 0.0) / (len(one.tokens) or 1 if per_token else 1),
            "source": None if sources is None else sources[one.template],
            "terms": own,
            "name": one.name,
            "mutations": one.mutations,
            "group": group,
        })  # fmt: skip
    return shown


def first_samples(
    manifest: Manifest, samples: Sequence[Sample], order: str = "raw"
) -> list[dict[str, Any]]:
    """Return a few different samples: the last of chains, evenly chosen, then earlier ones.

    They are not the most probable: these would show a run in too good a light.
    """
    last = list({sample.chain: sample for sample in samples}.values())
    earlier = [samples[place] for place in spaced(len(samples), _LOOKED_AT)]
    chosen: list[Sample] = []
    for sample in (*(last[place] for place in spaced(len(last), FIRST_SAMPLES)), *earlier[::-1]):
        known = any(
            sample.text == other.text
            or (sample.chain == other.chain and are_similar(sample.ids, other.ids))
            for other in chosen
        )
        if not known:
            chosen.append(sample)
    return shown_samples(manifest, chosen[:FIRST_SAMPLES], order=order)


def similar_groups(samples: Sequence[Sample]) -> list[int]:
    """Return the group of each sample, a number; similar samples of a chain have the same.

    A chain that moves slowly repeats itself.
    """
    leaders: dict[int, list[tuple[int, Sequence[int]]]] = defaultdict(list)
    numbers, fresh = list[int](), count()
    for sample in samples:
        known = leaders[sample.chain]
        latest = reversed(known[-_COMPARED:])
        number = next((group for group, ids in latest if are_similar(ids, sample.ids)), None)
        if number is None:
            number = next(fresh)
            known.append((number, sample.ids))
        numbers.append(number)
    return numbers


def are_similar(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether at most a quarter of the tokens differ.

    Of sequences of other lengths, the tokens between the first and the last difference count.
    """
    longest = max(len(one), len(other))
    if len(one) == len(other):
        differing = sum(a != b for a, b in zip(one, other, strict=True))
    else:
        shared = _shared(one, other)
        differing = longest - shared - _shared(one[shared:][::-1], other[shared:][::-1])
    return differing <= longest // _ONE_IN


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two sequences begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def score_samples(model: MaskedModel, samples: Sequence[Sample]) -> list[Terms]:
    """Return the terms of each sample; its text could be tokenised differently, so ids are used."""
    scorer = Scorer(model)
    terms: list[Terms] = []
    for begin in range(0, len(samples), _SCORED):
        group = samples[begin : begin + _SCORED]
        given = padded([sample.ids for sample in group], model.mask_id, model.device)
        source = torch.tensor([sample.template for sample in group], device=model.device)
        given = replace(given, source=source)
        given = replace(given, pass_cache=scorer.cache(given))
        scorer.check()
        raw, norm = (energy.terms(model, given).tolist() for energy in (Raw(), Norm()))
        terms += [
            {"raw": raw[row][: len(sample.ids)], "norm": norm[row][: len(sample.ids)]}
            for row, sample in enumerate(group)
        ]
    return terms


def families(manifest: Manifest, samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Return what became of each parent, where lengths are fixed; no more than a page shows."""
    groups: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.mutations is not None:
            groups[sample.template].append(sample)
    names = manifest.inputs.names or ()
    return [
        _family(names[line] if line < len(names) else str(line), members)
        for line, members in sorted(groups.items())[:MOST_PARENTS]
        if len({len(one.tokens) for one in members}) == 1
    ]


def _family(name: str, samples: list[Sample]) -> dict[str, Any]:
    """Return the samples of one parent.

    `columns` has the letters of the samples at each position, and `changed` the share that differs
    from the parent. `distances` are the shares of pairs of samples that differ at 0, 1, 2 …
    positions, `to_parent` the same of samples and their parent. `frequent` are the mutations that
    most samples have, `energies` those of samples by their number of mutations.
    """
    table = np.array([[letter(token)[:1] or "?" for token in one.tokens] for one in samples])
    parent = _parent(samples[0], table[0].tolist())
    counts = [len(sample.mutations or ()) for sample in samples]
    seen = Counter(mutation for sample in samples for mutation in sample.mutations or ())
    chosen = table[spaced(len(table), MOST_COMPARED)]
    between = [
        int(apart) for at in range(1, len(chosen)) for apart in (chosen[:at] != chosen[at]).sum(1)
    ]
    kinds = max(len(np.unique(table)), 2)
    return {
        "name": name,
        "parent": "".join(parent),
        "samples": len(samples),
        "columns": [_column(Counter(column.tolist()), kinds) for column in table.T],
        "changed": (table != np.array(parent)).mean(0).tolist(),
        "frequent": [(one, found / len(samples)) for one, found in _ordered(seen)[:MOST_LISTED]],
        "mean_mutations": float(np.mean(counts)),
        "mean_distance": float(np.mean(between)) if between else None,
        "distances": _shares(between),
        "to_parent": _shares(counts),
        "energies": _by_count(counts, [sample.energy_norm for sample in samples]),
    }


def _column(counts: Counter[str], kinds: int) -> dict[str, Any]:
    """Return the letters at one position, the most frequent first, and their shares.

    `bits` is what the position is known by: log2 of the letters seen anywhere less the entropy.
    """
    shares = {name: found / counts.total() for name, found in _ordered(counts)}
    entropy = -sum(share * math.log2(share) for share in shares.values())
    bits = math.log2(kinds) - entropy
    return {"letters": list(shares), "shares": list(shares.values()), "bits": bits}


def _parent(sample: Sample, row: list[str]) -> list[str]:
    """Return the parent of a sample: its letters with its mutations undone."""
    parent = list(row)
    for mutation in sample.mutations or ():
        place = mutation[1:-1]
        if place.isdecimal() and 1 <= int(place[:9]) <= len(parent):
            parent[int(place[:9]) - 1] = mutation[0]
    return parent


def _ordered(seen: Counter[str]) -> list[tuple[str, int]]:
    return sorted(seen.items(), key=lambda item: (-item[1], item[0]))


def _shares(counts: Sequence[int]) -> list[float]:
    return [float(share) for share in np.bincount(counts) / len(counts)] if counts else []


def _by_count(counts: Sequence[int], energies: Sequence[float]) -> list[dict[str, Any]]:
    """Return how many samples have so many mutations, their mean energy, and the middle 80 %."""
    numbers, values = np.array(counts), np.array(energies, dtype=float)
    finite = np.isfinite(values)
    found = []
    for number in np.unique(numbers[finite]).tolist():
        own = values[finite & (numbers == number)]
        ends = dict(zip(("low", "high"), np.quantile(own, (0.1, 0.9)).tolist(), strict=True))
        found.append({"count": number, "samples": len(own), "mean": float(own.mean())} | ends)
    return found
