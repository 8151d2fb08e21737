"""The data of a report, the same for HTML, Markdown and JSON: numbers, curves, how it was made.

All of it is plain data, as templates and the scripts of pages read it. Samples are shown as people
read them, similar ones of a chain in groups, a few first. With the run's model, every token has its
energy terms. Samples of a run from FASTA are also told by what they did to each parent: letters,
mutations, distances, energies.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from maskov.config import Manifest
from maskov.diagnostics import Diagnosis
from maskov.diagnostics.convergence import kept_epochs
from maskov.diagnostics.diagnosis import mean_of_chains
from maskov.diagnostics.verdict import part_of
from maskov.energies import Norm, Raw
from maskov.errors import refuse
from maskov.fasta import letter
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.runs import Run, Sample
from maskov.runs.manifest import check_same, load_model
from maskov.types import Traces, padded
from maskov.ui.detokenise import detokenised, readable_spans
from maskov.version import __version__

Values = npt.NDArray[Any]

# Limits that keep a page fast; averages are over everything.
MOST_CHAINS = 40
MOST_EPOCHS = 500
MOST_SAMPLES = 1000
# Samples whose tokens are shaded, which costs one pass per token.
MOST_SHADED = 200

ENERGIES = ("raw", "norm")
_FEWEST_BINS, _MOST_BINS = 8, 50
# A report, or that of one run, or a part of it.
Data = dict[str, Any]
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


def build(
    runs: Sequence[Run],
    *,
    title: str | None = None,
    samples: int | None = None,
    terms: bool = False,
    device: str | None = None,
    trust_remote_code: bool = False,
    allow_download: bool = False,
) -> Data:
    """Build the report of some runs, with up to `samples` samples of each.

    It has a `title`, the `runs`, `histograms` of their energies with common edges, and `cautions`:
    why they should not be compared.

    With `terms`, models are loaded again, on `device` or where they ran, to compute the energy of
    every token; their remote code runs only with `trust_remote_code`, and they are downloaded only
    with `allow_download`.
    """
    refuse(
        (not runs, "a report needs at least one run."),
        (samples is not None and samples < 0, f"--samples must be 0 or more, not {samples}."),
    )
    most = samples if samples is not None else MOST_SHADED if terms else MOST_SAMPLES
    labels = _labels(runs)
    # Runs may share a model.
    loaded = lru_cache(1)(partial(
        load_model, device=device, trust_remote_code=trust_remote_code,
        allow_download=allow_download,
    ))  # fmt: skip
    every = [_done(run) for run in runs]
    per_token = len(np.unique(np.concatenate([one["lengths"].ravel() for one in every]))) > 1
    if per_token:
        for traces in every:
            lengths = np.maximum(traces["lengths"], 1)
            traces |= {f"energy_{name}": traces[f"energy_{name}"] / lengths for name in ENERGIES}
    reports = [
        _run_report(run, traces, label, most, loaded if terms else None, per_token)
        for run, traces, label in zip(runs, every, labels, strict=True)
    ]
    return {
        "title": title or " · ".join(labels),
        "version": __version__,
        "runs": reports,
        "histograms": {
            name: histogram(
                [
                    traces[f"energy_{name}"][one["burn_in"] :]
                    for one, traces in zip(reports, every, strict=True)
                ]
            )
            for name in ENERGIES
        },
        "cautions": _cautions(runs),
    }


def _run_report(
    run: Run,
    traces: Traces,
    label: str,
    most: int,
    loaded: Callable[..., MaskedModel] | None,
    per_token: bool,
) -> Data:
    """Return the report of one run.

    `verdict` has its headline and tone, `notes` the limits of the run, of its diagnosis, and of
    what a report shows. `order` is the energy that ranks samples: the target's, `raw`, `norm` or
    `target`. With `per_token`, all energies but those of samples are divided by lengths, and so is
    the rank. Curves are over `epochs`, counted from 1; `shown_chains` have their own lines. With
    `particles`, those of each population, chains are particles and epochs are points of the path.
    `first_samples` are a few for its top. `families` are the parents of a run that started from
    FASTA, with fixed lengths.
    """
    manifest, summary, diagnosis, every = run.manifest, run.summary(), run.diagnose(), run.samples
    done, chains, burn_in = summary.epochs_done, summary.chains, summary.burn_in
    epochs, shown_chains = spaced(done, MOST_EPOCHS), spaced(chains, MOST_CHAINS)
    moving = manifest.schedule.target_temperature if manifest.kernel == "mh" else None
    temperatures = [moving.at(epoch) for epoch in epochs] if moving is not None else []
    chosen = [every[place] for place in spaced(len(every), most)]
    scored = None
    if loaded is not None and chosen:
        described = manifest.config.model
        model = loaded(described, manifest.inputs.sources)
        check_same(described.name, described.fingerprint, model.fingerprint())
        scored = score_samples(model, chosen)
    found, parents = families(manifest, every), len(manifest.inputs.names or ())
    order = target_energy(manifest, every)
    one, time = ("particles", "points of the path") if manifest.particles else ("chains", "epochs")
    remarks = {
        "energies are shown per token, and samples are ranked by them": per_token,
        f"lines are drawn for {len(shown_chains)} of {chains:,} {one}, evenly chosen; medians, "
        "bands and tables are over all": len(shown_chains) < chains,
        f"curves show {len(epochs)} of {done:,} {time}, evenly spaced": len(epochs) < done,
        f"{len(chosen):,} of {len(every):,} samples are listed, evenly chosen": (
            len(chosen) < len(every)
        ),
        f"logos and mutations are those of the first {len(found)} of {parents:,} parents": (
            0 < len(found) < parents
        ),
    }

    numbers: dict[str, tuple[float | None, float | None]] = {
        f"E_{name}{' per token' * per_token}": mean_of_chains(
            traces[f"energy_{name}"][burn_in:], manifest.particles
        )
        for name in ENERGIES
    }
    for name, rate in (("accepted", summary.acceptance_rate), ("novel", summary.novel_rate)):
        with np.errstate(divide="ignore", invalid="ignore"):
            each = traces[name][burn_in:].sum(0) / traces["steps"][burn_in:].sum(0)
        numbers[name] = rate, mean_of_chains(each[None], manifest.particles)[1]
    numbers["passes per step"] = summary.passes_per_step, None

    def trace(values: Values) -> Data:
        return {
            "spread": energy_spread(values),
            "chains": [listed(values[:, chain]) for chain in shown_chains],
        }

    return {
        "label": label,
        "verdict": diagnosis.verdict.to_dict(),
        "signature": run.signature,
        "notes": [
            *summary.notes,
            *diagnosis.notes,
            *(note for note, holds in remarks.items() if holds),
        ],
        "metadata": metadata(manifest),
        "finished": done >= summary.epochs,
        "chains": chains,
        "particles": manifest.particles,
        "epochs_done": done,
        "burn_in": burn_in,
        "order": order,
        "per_token": per_token,
        "numbers": [
            {"name": name, "value": value, "standard_error": error}
            for name, (value, error) in numbers.items()
        ],
        "tables": diagnosis.tables(),
        "correlations": correlations(diagnosis),
        "positions": position_curve(diagnosis),
        "epochs": [epoch + 1 for epoch in epochs],
        "shown_chains": shown_chains,
        "energies": {name: trace(traces[f"energy_{name}"][epochs]) for name in ENERGIES},
        "experts": {
            name: trace(traces["expert_energy"][epochs, :, column])
            for column, name in enumerate(manifest.experts)
        },
        "temperature": temperatures if len(set(temperatures)) > 1 else None,
        "accepted": rate_spread(traces["accepted"][epochs], traces["steps"][epochs]),
        "novel": rate_spread(traces["novel"][epochs], traces["steps"][epochs]),
        "families": found,
        "first_samples": first_samples(manifest, every, order) if most else [],
        "samples": shown_samples(manifest, chosen, scored, order, per_token),
        "samples_in_all": len(every),
        "shaded": scored is not None,
        "diagnosis": diagnosis,
    }


def _done(run: Run) -> Traces:
    """Return the completed epochs."""
    traces = run.traces
    done = kept_epochs(run.manifest, traces).stop
    return {name: values[:done] for name, values in traces.items()}


def _labels(runs: Sequence[Run]) -> list[str]:
    """Call runs by their names or folders, with the folder above if that tells them apart."""
    paths = [
        run.store.path.resolve()
        if run.store.durable
        else Path(f"{run.manifest.kernel}-{run.manifest.energy or ''}".strip("-").replace("/", "-"))
        for run in runs
    ]
    named = [run.manifest.name or path.name for run, path in zip(runs, paths, strict=True)]
    for labels in (named, ["/".join(path.parts[-2:]) for path in paths]):
        if len(set(labels)) == len(labels):
            return labels
    return [f"{name} ({number})" for number, name in enumerate(named, 1)]


def _cautions(runs: Sequence[Run]) -> list[str]:
    """Return why the runs should not be compared."""
    manifests = [run.manifest for run in runs]
    differ: dict[str, set[Any]] = {
        "the models differ: E_raw is defined up to a shift of the logits and cannot be compared "
        "between them": {one.config.model.fingerprint for one in manifests},
        "the runs differ in lengths or starting texts: energies grow with the length, compare them "
        "per token": {one.inputs for one in manifests},
        "some of the runs leave no target invariant": {one.leaves_invariant for one in manifests},
    }
    return [caution for caution, kinds in differ.items() if len(kinds) > 1]


def energy_spread(values: Values) -> Data:
    """Return the median over chains and the central 80 %; None where not traced."""
    curves = np.full((3, len(values)), np.nan)
    whole = np.isfinite(values).all(1)
    if whole.any():
        curves[:, whole] = np.quantile(values[whole], (0.5, 0.1, 0.9), axis=1)
    return dict(zip(("middle", "low", "high"), map(listed, curves), strict=True))


def rate_spread(part: Values, whole: Values) -> Data:
    """Return the rate over all chains, and the central 80 % of the chains' rates."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return energy_spread(part / whole) | {"middle": listed(part.sum(1) / whole.sum(1))}


def histogram(groups: Sequence[Values]) -> Data | None:
    """Return the shares of energies of several runs between common edges; None without any."""
    finite = [values[np.isfinite(values)] for values in groups]
    pooled = np.concatenate([values.ravel() for values in finite])
    if not pooled.size:
        return None
    low, high = float(pooled.min()), float(pooled.max())
    if math.isclose(low, high, abs_tol=1e-9):
        low, high = low - 0.5, high + 0.5
    bins = np.clip(round(2 * pooled.size ** (1 / 3)), _FEWEST_BINS, _MOST_BINS)  # Rice's rule
    edges = np.linspace(low, high, bins + 1)
    return {
        "edges": edges.tolist(),
        "shares": [
            (np.histogram(values, edges)[0] / max(values.size, 1)).tolist() for values in finite
        ],
    }


def correlations(diagnosis: Diagnosis) -> list[Data]:
    """Return the autocorrelations of energies and tokens that are known, by lag in epochs."""
    curves: dict[str, tuple[list[float] | None, int]] = {
        name: (one.autocorrelation, one.spacing or 1) for name, one in diagnosis.energies.items()
    }
    if diagnosis.tokens is not None:
        curves["tokens"] = diagnosis.tokens.autocorrelation, 1
    return [
        {"name": name, "lags": [lag * one for lag in range(len(values))], "values": values}
        for name, (values, one) in curves.items()
        if values
    ]


def position_curve(diagnosis: Diagnosis) -> Data | None:
    """Pool the rates of templates by position, counted from 1, weighted by visits."""
    figures = diagnosis.tokens.positions if diagnosis.tokens is not None else []
    if not any(one.positions for one in figures):
        return None
    places = np.concatenate([one.positions for one in figures])
    visits, accepted, novel = (
        np.concatenate([getattr(one, name) for one in figures])
        for name in ("visits", "acceptance", "novel")
    )
    shown, place = np.unique(places, return_inverse=True)
    total = np.bincount(place, visits)
    return {
        "positions": (shown + 1).tolist(),
        "accepted": (np.bincount(place, visits * accepted) / total).tolist(),
        "novel": (np.bincount(place, visits * novel) / total).tolist(),
        "visits": total.astype(int).tolist(),
        "templates": len(figures),
    }


def listed(values: Values) -> list[float | None]:
    """Return a list with None in place of NaN and infinities."""
    return [float(value) if np.isfinite(value) else None for value in values.tolist()]


def metadata(manifest: Manifest) -> dict[str, str]:
    """Return what a reader asks first: model, kernel, schedule, when, versions."""
    model, smoothing = manifest.config.model, manifest.config.model.source.remove_smoothing
    particles, around = manifest.particles, manifest.config.kernel
    kernel = part_of(around, "kernel") if particles else around
    temperature = manifest.schedule.target_temperature or f"{kernel.get('target_temperature', 1):g}"
    sizes = (
        {
            "populations": f"{manifest.chains // particles:,} of {particles:,} particles each, "
            f"drawn from {around['start']}",
            "path": f"{manifest.epochs:,} points, moves of a particle at each: {around['moves']}",
        }
        if particles
        else {"chains": f"{manifest.chains:,}"}
    )
    entries = {
        "model": f"{model.name} #{model.fingerprint[:12]}",
        "prefix": model.source.prefix,
        "label smoothing removed": "" if not smoothing else f"{smoothing:g}",
        "letters besides the amino acids": model.source.extra_letters,
        "precision": f"{model.precision} on {model.device}",
        "kernel": manifest.kernel,
        "energy": manifest.energy or "",
        "proposal": ", ".join(
            f"{name.replace('_', '-')} {value:g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in part_of(kernel, "move", "conditional").items()
            if value is not None and name not in ("part", "constraints")
        ),
        "positions": _positions(manifest, part_of(kernel, "move", "positions")),
        "target temperature": str(temperature) if manifest.kernel == "mh" else "",
        "schedule": "" if particles else _schedule(manifest),
        **sizes,
        "sequences": _inputs(manifest),
        "seed": str(manifest.config.seed),
        "when": manifest.created.replace("T", " ").replace("+00:00", " UTC"),
        "versions": ", ".join(f"{name} {value}" for name, value in manifest.versions.items()),
    }
    return {name: value for name, value in entries.items() if value}


def _positions(manifest: Manifest, positions: dict[str, Any]) -> str:
    if positions.get("iterations") is not None:
        return f"least confident first, {positions['iterations']} iterations"
    if manifest.order is None:
        return ""
    size = str(manifest.schedule.block or manifest.block)
    return f"{manifest.order}, {'one at a time' if size == '1' else f'blocks of {size}'}"


def _schedule(manifest: Manifest) -> str:
    schedule, until, stopped = manifest.schedule, manifest.config.until, manifest.stopped_at
    burn_in, energy = manifest.burn_in(manifest.epochs), schedule.burn_in_energy
    epochs = f"{schedule.epochs:,} epochs"
    if until is not None:
        stop = f"stopped at epoch {stopped:,} of " if stopped else ""
        epochs = f"until converged ({until.effective:,} effective draws), {stop}at most {epochs}"
    burnt = f", the first {burn_in:,} burn-in" + f" with the energy {energy}" * bool(energy)
    forced = f", the first {schedule.force_accept:,} accept everything"
    return epochs + burnt * bool(burn_in) + forced * bool(schedule.force_accept)


def _inputs(manifest: Manifest) -> str:
    inputs, start = manifest.inputs, f", start {manifest.config.start}"
    if inputs.length is not None:
        shortest, longest = inputs.length
        return f"{shortest}{f' to {longest}' * (shortest != longest)} tokens{start}"
    kinds = [one for one in ("sources", "templates", "texts") if getattr(inputs, one) is not None]
    if not kinds:
        return ""
    if inputs.texts is not None:
        start = ", start drafts" * (kinds[0] == "sources")
    held = sum(map(len, inputs.frozen or ()))
    frozen = f", {held:,} of their tokens frozen" * bool(held)
    sampled = ", lengths sampled" * (inputs.bounds is not None)
    return f"{len(getattr(inputs, kinds[0])):,} {kinds[0]}{frozen}{sampled}{start}"


# Samples.


def spaced(number: int, most: int) -> list[int]:
    """Return up to `most` evenly spaced indices below a number, first and last included."""
    shown = min(number, most)
    return [round(place * (number - 1) / max(shown - 1, 1)) for place in range(shown)]


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
        if not any(
            sample.text == other.text
            or (sample.chain == other.chain and are_similar(sample.ids, other.ids))
            for other in chosen
        ):
            chosen.append(sample)
    return shown_samples(manifest, chosen[:FIRST_SAMPLES], order=order)


def similar_groups(samples: Sequence[Sample]) -> list[int]:
    """Return the group of each sample, a number; similar samples of a chain have the same.

    A chain that moves slowly repeats itself.
    """
    leaders: dict[int, list[tuple[int, list[int]]]] = defaultdict(list)
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


def are_similar(one: list[int], other: list[int]) -> bool:
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


def _shared(one: list[int], other: list[int]) -> int:
    """Return how many tokens two sequences begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def score_samples(model: MaskedModel, samples: Sequence[Sample]) -> list[Terms]:
    """Return the terms of each sample; its text could be tokenised differently, so ids are used."""
    scorer = Scorer(model)
    terms: list[Terms] = []
    for begin in range(0, len(samples), _SCORED):
        group = samples[begin : begin + _SCORED]
        source = torch.tensor([sample.template for sample in group], device=model.device)
        ids = [sample.ids for sample in group]
        given = replace(padded(ids, model.mask_id, model.device), source=source)
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
    # What a sample says may be anybody's.
    names, texts = manifest.inputs.names or (), manifest.inputs.texts or ()
    parents = {line: (name, "".join(text.split())) for line, (name, text) in enumerate(
        zip(names, texts, strict=False)
    )}  # fmt: skip
    return [
        _family(*parents[line], members)
        for line, members in sorted(groups.items())[:MOST_PARENTS]
        if line in parents and {len(one.tokens) for one in members} == {len(parents[line][1])}
    ]


def _family(name: str, parent: str, samples: list[Sample]) -> dict[str, Any]:
    """Return the samples of one parent.

    `columns` has the letters of the samples at each position, and `changed` the share that differs
    from the parent. `distances` are the shares of pairs of samples that differ at 0, 1, 2 …
    positions, `to_parent` the same of samples and their parent. `frequent` are the mutations that
    most samples have, `energies` those of samples by their number of mutations.
    """
    table = np.array([[letter(token)[:1] or "?" for token in one.tokens] for one in samples])
    counts = [len(sample.mutations or ()) for sample in samples]
    # Sorted, so that equally frequent ones are in the order of their names.
    seen = Counter(sorted(one for sample in samples for one in sample.mutations or ()))
    chosen = table[spaced(len(table), MOST_COMPARED)]
    between = [
        int(apart) for at in range(1, len(chosen)) for apart in (chosen[:at] != chosen[at]).sum(1)
    ]
    kinds = max(len(np.unique(table)), 2)
    return {
        "name": name,
        "parent": parent,
        "samples": len(samples),
        "columns": [_column(Counter(sorted(column.tolist())), kinds) for column in table.T],
        "changed": (table != np.array(list(parent))).mean(0).tolist(),
        "frequent": [(one, count / len(samples)) for one, count in seen.most_common(MOST_LISTED)],
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
    shares = {name: found / counts.total() for name, found in counts.most_common()}
    return {
        "letters": list(shares),
        "shares": list(shares.values()),
        "bits": math.log2(kinds) + sum(share * math.log2(share) for share in shares.values()),
    }


def _shares(counts: Sequence[int]) -> list[float]:
    return [float(share) for share in np.bincount(counts) / len(counts)] if counts else []


def _by_count(counts: Sequence[int], energies: Sequence[float]) -> list[dict[str, Any]]:
    """Return how many samples have so many mutations, their mean energy, and the middle 80 %."""
    numbers, values = np.array(counts), np.array(energies, dtype=float)
    finite = np.isfinite(values)
    found = []
    for number in np.unique(numbers[finite]).tolist():
        own = values[finite & (numbers == number)]
        low, high = np.quantile(own, (0.1, 0.9)).tolist()
        found.append({
            "count": number, "samples": len(own), "mean": float(own.mean()), "low": low,
            "high": high,
        })  # fmt: skip
    return found
