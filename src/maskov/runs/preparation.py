"""Before a run begins: its sequences, what cannot be run, and what discarded chains find out.

Options that would be ignored are refused, too. Discarded chains find the epochs and the lengths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import Literal

import torch

from maskov.config import MOST_TRACED, Inputs, Manifest, Schedule
from maskov.energies import Energy, Norm
from maskov.energies.counting import (
    LengthPrior,
    PredictedLength,
    no_length_predictor,
    parse_table,
)
from maskov.energies.other_models import AutoregressiveTranslation, no_sources
from maskov.errors import InputError, RunError, refuse
from maskov.fasta import Record, spelled, with_blanks
from maskov.kernels import Kernel
from maskov.kernels.base import BurnIn, kernel_at
from maskov.models import MaskedModel
from maskov.models.conditional import (
    DRAFTED,
    SEARCHED,
    ConditionalModel,
    bounds_of,
    choose_lengths,
)
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional
from maskov.random import CounterRng, Rng
from maskov.runs.coordinator import Listener
from maskov.runs.manifest import (
    check_same,
    kernel_of,
    leaves_invariant,
    models_of,
    resizes,
    sweeps_of,
)
from maskov.runs.store import Store
from maskov.starts import Layout, draw_lengths, fill
from maskov.texts import Mask, frozen_positions, read_text
from maskov.tuning import cautions, epochs_for, tune, tuned, weighed

# Passes of a step, roughly.
_PASSES = 3


def schedule_for_passes(
    passes: int,
    kernel: Kernel,
    schedule: Schedule,
    prior: str,
    layout: Layout,
    scorer: Scorer,
    rng: Rng,
    automatic_burn_in: bool = False,
) -> tuple[Schedule, Kernel]:
    """Return the schedule with as many epochs as so many masked passes of a chain pay for.

    `kernel` has the energy of burn-in, if there is one, and is returned with the burn-in of that
    schedule. An `automatic_burn_in` has half of the epochs, or what the schedule says if that is
    less.
    """
    measured = kernel

    def epochs() -> int:
        return epochs_for(passes, measured, schedule, layout, scorer, rng)

    with threads(1, scorer.model):
        # What the run will choose; an epoch costs about so many passes.
        about = max(passes // (_PASSES * layout.mean), schedule.burn_in + 1, schedule.force_accept)
        found = tune(kernel, replace(schedule, epochs=about), prior, layout, scorer, rng)
        measured = tuned(kernel, found)
        paid = epochs()
        while automatic_burn_in and schedule.burn_in > paid // 2:
            first = schedule.burn_in_energy if paid > 1 else None
            schedule = replace(schedule, burn_in=paid // 2, burn_in_energy=first)
            measured = _with_burn_in(measured, schedule)
            paid = epochs()
    scorer.check()
    refuse(
        (
            paid <= schedule.burn_in,
            f"{passes} passes of a chain are about {paid} epochs, all of them burn-in: ask for "
            "more --passes or less --burn-in.",
        )
    )
    schedule = replace(schedule, epochs=paid, force_accept=min(schedule.force_accept, paid))
    return schedule, _with_burn_in(kernel, schedule)


def _with_burn_in(kernel: Kernel, schedule: Schedule) -> Kernel:
    if not isinstance(kernel, BurnIn):
        return kernel
    without = schedule.burn_in_energy is None
    return kernel.kernels[0] if without else replace(kernel, epochs=schedule.burn_in)


def tuned_kernel(
    store: Store, layout: Layout, kernel: Kernel, scorer: Scorer, listener: Listener
) -> Kernel:
    """Return the kernel as the run will use it; what it leaves open is chosen now, once."""
    config, schedule = store.manifest.config, store.manifest.schedule
    rng = CounterRng(config.seed)
    with threads(config.execution.threads, scorer.model):
        if store.manifest.tuning is None:
            found = tune(kernel, schedule, config.length_prior, layout, scorer, rng)
            notes = cautions(found)
            store.note(tuning=found, notes=(*store.manifest.notes, *notes))
            for note in notes:
                listener.noted(note)
    return tuned(kernel, store.manifest.tuning)


@contextmanager
def threads(count: int, model: MaskedModel) -> Iterator[None]:
    """Compute with so many threads on a CPU, and then with as many as before."""
    before = torch.get_num_threads()
    if model.device.type == "cpu":
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# What is refused.


def check_epochs(schedule: Schedule, chains: int, thin: int) -> None:
    """Refuse more epochs than can be traced, and too few to keep a sample."""
    epochs, burn_in = schedule.epochs, schedule.burn_in
    refuse(
        (
            chains * epochs > MOST_TRACED,
            f"{chains} chains of {epochs} epochs are more than one run can trace; ask for fewer, "
            "or for several runs.",
        ),
        (
            thin and burn_in + thin > epochs,
            f"no sample would be kept: {epochs} epochs with {burn_in} of burn-in never reach "
            f"--thin {thin}.",
        ),
    )


def check_kernel(kernel: Kernel, model: MaskedModel) -> None:
    """Refuse energies that the model cannot have, and an order of positions that come and go."""
    if kernel.energy is not None and not isinstance(model, ConditionalModel):
        for _, part in kernel.energy.parts:
            refuse(
                (isinstance(part, PredictedLength), no_length_predictor(model)),
                (isinstance(part, AutoregressiveTranslation), no_sources(part, model)),
            )
    # Where lengths change, every step draws its own order.
    refuse(
        (
            resizes(kernel) and any(sweep.order != "random" for sweep in sweeps_of(kernel)),
            "positions come and go where lengths change, so they have no order: drop it, or "
            "the moves that change the length.",
        )
    )


def with_prior(
    kernel: Kernel, prior: str | Mapping[int, float] | None, model: MaskedModel
) -> tuple[Kernel, Literal["none", "flat"]]:
    """Return the kernel with a given table of lengths in its energy, and what is left to find."""
    sized, translates = resizes(kernel), isinstance(model, ConditionalModel)
    refuse(
        (
            not sized and prior is not None,
            "no move changes the length: drop --length-prior, or add insert-delete to --moves.",
        ),
        (
            sized and translates and prior not in (None, "none"),
            "translations have lengths by their sources, which no --length-prior knows: add "
            "predicted_length to the energy instead.",
        ),
    )
    if sized and not translates and prior in (None, "flat"):
        return kernel, "flat"
    if prior not in (None, "none"):
        kernel = weighed(kernel, parse_table(prior))
    return kernel, "none"


def check_layout(kernel: Kernel, inputs: Inputs, layout: Layout) -> None:
    """Refuse an energy that has no value for the sequences of a run."""
    parts = [] if kernel.energy is None else [part for _, part in kernel.energy.parts]
    compares = next((str(part) for part in parts if part.compares), None)
    ends = [
        (part.first, part.first + len(part.log_weights) - 1)
        for part in parts
        if isinstance(part, LengthPrior)
    ]
    refuse(
        (
            compares is not None and inputs.texts is None,
            f"the energy '{compares}' compares with the text that a chain started from: give texts "
            "to start from (--start-text).",
        ),
        *(
            (
                layout.shortest < first or layout.width > last,
                f"the length prior has weights for {first} to {last} tokens; chains may have "
                f"{layout.shortest} to {layout.width}.",
            )
            for first, last in ends
        ),
    )


def check_schedule(
    kernel: Kernel,
    schedule: Schedule,
    inputs: Inputs,
    layout: Layout,
    thin: int,
    trace: str,
    until: bool,
) -> None:
    """Refuse blocks that do not fit, and a run `until` convergence that could never be found."""
    first = kernel_at(kernel, replace(schedule, force_accept=0), 0)
    block = max((sweep.block for sweep in sweeps_of(first)), default=1)
    shortest = min(sum(one.free) for one in layout.starts)
    # Chains of texts that may change everywhere have one target, whatever text they started from.
    compares = kernel.energy is not None and kernel.energy.compares
    alike = inputs.texts is not None and inputs.frozen is None and not compares
    targets = Counter(
        (0 if alike else one.template, 0 if inputs.sampled else len(one.tokens))
        for one in layout.starts
    )
    refuse(
        (
            # Translations may be short; a block is then all of one.
            inputs.sources is None and block > shortest,
            f"a block of {block} positions does not fit into the shortest sequence, which has "
            f"{shortest} free; use a smaller one: site(block=2).",
        ),
        (
            until and not leaves_invariant(kernel, schedule)[0],
            "--until converged needs a fixed target: a kernel that has one, and --burn-in that "
            "covers a falling --target-temperature and --force-accept.",
        ),
        (
            until and thin and not schedule.burn_in,
            "--thin with --until converged needs --burn-in: samples are written as they are drawn, "
            "so it must be known which epochs count.",
        ),
        (
            until and trace != "every",
            "--until converged needs the energies of every epoch: trace='every'.",
        ),
        (
            until and max(targets.values()) == 1,
            "--until converged compares chains of the same length and template: ask for more "
            "--chains, or for one --length.",
        ),
    )


# The sequences of a run.


def inputs_of(
    model: MaskedModel,
    length: tuple[int, int] | None,
    texts: Sequence[str | Record] | None,
    templates: Sequence[str | Record] | None,
    lengths: str,
    chains: int,
    seed: int,
    sampled: bool = False,
    frozen: str | Sequence[Mask] | None = None,
    scorer: Scorer | None = None,
) -> Inputs:
    """Describe the sequences of a run; `sampled` says that its moves change lengths.

    The `scorer` runs the passes of a search for lengths.
    """
    given = texts is not None
    refuse(
        (given and templates is not None, "chains start at texts or fill templates, not both."),
        (
            frozen is not None and not given,
            "frozen tokens are those of texts to start from (--start-text).",
        ),
        (given and not texts, "there is no text to start from."),
        (templates is not None and not templates, "there is no template to fill."),
    )
    if isinstance(model, ConditionalModel):
        refuse(
            (
                model.sources is None,
                f"'{model.name}' translates: use `maskov translate`, or `model.given(texts)`.",
            ),
            (
                templates is not None or frozen is not None,
                "translations have no templates and no frozen tokens: drop them.",
            ),
        )
        assert model.sources is not None
        # Kept as they are: on another device a near tie could be decided otherwise.
        if texts is not None:
            lengths, chosen = DRAFTED, _draft_lengths(model, texts, chains)
        elif lengths == "searched":
            chosen = search_lengths(model, chains, scorer or Scorer(model))
        else:
            chosen = choose_lengths(model, lengths, chains, seed)
        return Inputs(
            sources=tuple(model.sources.texts),
            texts=None if texts is None else tuple(map(str, texts)),
            lengths=lengths,
            chosen=tuple(map(tuple, chosen)),
            bounds=tuple(bounds_of(model, chosen)) if sampled else None,
            sampled=sampled,
        )
    refuse(
        (
            lengths != "best",
            f"'{model.name}' predicts no lengths: drop `lengths`, give `length`.",
        )
    )
    if texts is not None:
        lines, names = named_texts(model, texts)
        held = frozen_positions(model, lines, frozen, names is not None)
        own = length if sampled else None
        refuse(
            (
                held is not None and own is not None,
                "between frozen tokens each stretch has its own length: drop --length.",
            )
        )
        return Inputs(texts=lines, length=own, sampled=sampled, names=names, frozen=held)
    if templates is not None:
        lines, names = named_texts(model, templates, blanks=True)
        return Inputs(templates=lines, sampled=sampled, names=names)
    assert length is not None
    draw_lengths(model, *length, 1, seed)  # refuses what is not a range
    refuse(
        (
            sampled and length[0] == length[1],
            "moves that change the length need a range of lengths, such as 8:24 (--length 8:24).",
        )
    )
    return Inputs(length=length, sampled=sampled)


def _draft_lengths(
    model: ConditionalModel, texts: Sequence[str | Record], chains: int
) -> list[list[int]]:
    """Return the lengths of the chains of each source, those of its draft."""
    assert model.sources is not None
    refuse(
        (
            len(texts) != len(model.sources.texts),
            f"there are {len(texts)} drafts of {len(model.sources.texts)} sources: give one of "
            "each.",
        )
    )
    drafts = enumerate(map(str, texts), 1)
    return [[len(read_text(model, text, f"draft {line}"))] * chains for line, text in drafts]


def named_texts(
    model: MaskedModel, lines: Sequence[str | Record], blanks: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Return texts as the model reads them, and their names if they are records of FASTA."""
    if not any(isinstance(line, Record) for line in lines):
        if not blanks:
            return tuple(map(str, lines)), None
        named = enumerate(map(str, lines), 1)
        return tuple(with_blanks(model, line, f"template {n}") for n, line in named), None
    texts, names = list[str](), list[str]()
    for line in lines:
        if not isinstance(line, Record):
            raise InputError("texts are all lines, or all records of FASTA.")
        texts.append(spelled(model, line, blanks))
        names.append(line.name)
        read_text(model, texts[-1], f"'{line.name}'", blanks)  # refused by its name
    return tuple(texts), tuple(names)


def layout_of(model: MaskedModel, inputs: Inputs, chains: int, seed: int) -> Layout:
    """Lay out the sequences."""
    if inputs.templates is not None:
        layout = Layout.of_templates(model, inputs.templates, chains, seed)
        refuse(
            (
                inputs.sampled and not layout.resizable,
                "no template has a blank of unknown length: write [MASK*] or [MASK{2,5}], or drop "
                "insert-delete and resize.",
            ),
            (
                layout.resizable and not inputs.sampled,
                "blanks of unknown length need moves that change the length: --moves "
                "site,span,insert-delete.",
            ),
        )
        return layout
    if inputs.texts is not None:
        layout = Layout.of_texts(model, inputs.texts, chains, inputs.frozen)
    elif inputs.chosen is not None:
        layout = Layout.blank(model, inputs.chosen)
    else:
        assert inputs.length is not None
        layout = Layout.blank(model, [draw_lengths(model, *inputs.length, chains, seed)])
    lengths = [len(one.tokens) for one in layout.starts]
    chosen = lengths if inputs.chosen is None else [n for row in inputs.chosen for n in row]
    refuse((chosen != lengths, "'inputs.chosen' are not the lengths of the drafts."))
    if inputs.bounds is not None:
        return Layout([one.resized([inputs.bounds[one.template]]) for one in layout.starts])
    return _with_bounds(model, layout, inputs) if inputs.sampled else layout


def _with_bounds(model: MaskedModel, layout: Layout, inputs: Inputs) -> Layout:
    """Let every chain have any length of the range, or from half its text's length to twice it.

    Between frozen tokens each stretch has one token at least and twice its own at most, or what is
    left of the model's length.
    """
    starts = []
    for start in layout.starts:
        size, free = len(start.tokens), sum(start.free)
        if free < size:
            room = model.max_length - size
            own = [len(list(run)) for is_free, run in groupby(start.free) if is_free]
            starts.append(start.resized([(1, n + min(n, room * n // free)) for n in own]))
            continue
        usual = (max(model.min_length, (size + 1) // 2), min(model.max_length, 2 * size))
        fewest, most = inputs.length or usual
        refuse(
            (
                not fewest <= size <= most,
                f"text {start.template + 1} has {size} tokens, outside the length "
                f"{fewest}:{most} that chains may have.",
            )
        )
        starts.append(start.resized([(fewest, most)]))
    resized = Layout(starts)
    refuse(
        (
            resized.shortest < model.min_length,
            f"a text may shrink to {resized.shortest} tokens, '{model.name}' takes "
            f"{model.min_length} at least: freeze more, or drop insert-delete and resize.",
        )
    )
    return resized


# Sources whose candidates are held at once.
_AT_ONCE = 256


def search_lengths(model: ConditionalModel, chains: int, scorer: Scorer) -> list[list[int]]:
    """Return the lengths of the chains of each source: for all of them the best of a few.

    Mask-predict translates at each of the likeliest lengths; the one whose translation has the
    lowest E_norm per token is chosen, as mask-predict with several lengths does.
    """
    count = min(SEARCHED, model.max_length)
    tried = choose_lengths(model, "top", count, 0)
    layout = Layout.blank(model, tried)
    found: list[list[int]] = []
    for first in range(0, len(tried), _AT_ONCE):
        rows = range(first * count, min(first + _AT_ONCE, len(tried)) * count)
        width = max(len(layout.starts[row].tokens) for row in rows)
        blank = layout.chains(model, rows, width).to(model.device)
        filled = fill(blank, "mask-predict", MaskedConditional(), scorer, CounterRng(0)).sequences
        filled = replace(filled, pass_cache=scorer.cache(filled))
        energy = (Norm()(model, filled) / filled.lengths).view(-1, count)
        best = filled.lengths.view(-1, count).gather(1, energy.argmin(1, keepdim=True))
        found += [[int(length)] * chains for length in best.flatten().tolist()]
    scorer.check()
    return found


# A run that continues.


def rebuild(
    manifest: Manifest,
    model: MaskedModel,
    trust_parts: bool = False,
    allow_download: bool = False,
    given: Kernel | None = None,
    energy: Energy | None = None,
) -> tuple[Kernel, Layout]:
    """Build kernel and layout again; refuse a model or `given` parts that have changed."""
    config = manifest.config
    check_same(config.model.name, config.model.fingerprint, model.fingerprint())
    kernel = kernel_of(manifest, model, trust_parts, allow_download, given, energy)
    for name, found in models_of(kernel).items():
        check_same(name, manifest.energy_models.get(name), found)
    layout = layout_of(model, config.inputs, config.chains, config.seed)
    layout = layout.fitted(model, kernel.conditional.constraints)
    refuse(
        (
            (len(layout.starts), layout.width, layout.shortest)
            != (manifest.chains, manifest.width, manifest.shortest),
            "the manifest of this run is damaged: 'inputs' give other sequences.",
        ),
        kind=RunError,
    )
    return kernel, layout
