"""From the arguments of `maskov.sample` to a plan: every check of a run is made here, once.

A plan is all that a run needs. `maskov.sampling.execute` carries it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from maskov import api
from maskov.arguments import Arguments, arguments_of
from maskov.config import (
    BURN_IN,
    DEFAULT_EPOCHS,
    GROUPS,
    MOST_UNTIL_CONVERGED,
    Execution,
    LinearSchedule,
    Manifest,
    ModelConfig,
    ModelSource,
    RunConfig,
    Schedule,
    UntilConverged,
    check_name,
)
from maskov.constraints import (
    AllowedTokens,
    AvoidWords,
    Constraint,
    ContainsWords,
    MaxChanges,
    MaxEdits,
)
from maskov.energies import Energy, as_energy, grouped, parse_energy
from maskov.energies.networks import Loading
from maskov.energies.ordered import Ordered
from maskov.energies.stages import parse_delayed
from maskov.errors import InputError, refuse
from maskov.kernels import (
    DelayedAcceptance,
    Draws,
    Exchange,
    Kernel,
    Metropolis,
    Population,
)
from maskov.kernels.base import with_leaves
from maskov.kernels.registry import (
    DEFAULT_SIZES,
    KERNELS,
    Moves,
    as_kernel,
    energy_name,
    energy_text,
    listed_moves,
    move_names,
    named_kernel,
    parse_moves,
)
from maskov.models import MaskedModel
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional, Site, Span
from maskov.options import findable, words_of
from maskov.parts import is_import_path, load_part, parse_call
from maskov.random import CounterRng
from maskov.runs.inputs import inputs_of, layout_of, named_texts
from maskov.runs.manifest import kernel_data, manifest_of, resizes
from maskov.runs.preparation import (
    check_blocks,
    check_comparable,
    check_converges,
    check_epochs,
    check_order,
    check_prior,
    check_references,
    check_translates,
    schedule_for_passes,
    threads,
    with_prior,
)
from maskov.runs.rebuild import models_of, usual_burn_in, with_burn_in
from maskov.runs.store import Store
from maskov.shipped import default_judge
from maskov.starts import STARTS, Layout
from maskov.texts import ONE, find_blanks, template_masks
from maskov.tuning.path import planned_path
from maskov.workers import Workers
from maskov.workers.pools import group_size

DEFAULT_LENGTH = 20
# The moves of templates with blanks of unknown length.
RESIZING = "span:2,insert-delete:1,resize:1"
# Options that an object has when it is given.
_OF_CONSTRAINTS = ("contains", "avoid", "allow", "max_changes")
_OF_MOVES = ("proposal", *_OF_CONSTRAINTS)
_OF_KERNELS = ("energy", "moves", "delayed", *_OF_MOVES)
_OF_SCHEDULES = ("epochs", "burn_in", "burn_in_energy", "target_temperature", "force_accept")


def default_kernel(
    energy: Energy | str = "raw", constraints: Sequence[Constraint] = ()
) -> Metropolis:
    """Return the kernel that needed the fewest passes in results/mixing, for an energy."""
    move = Span(MaskedConditional(constraints=tuple(constraints)), DEFAULT_SIZES)
    return Metropolis(as_energy(energy), move)


def default_schedule(energy: Energy | str = "raw") -> Schedule:
    """Return the schedule of `default_kernel`: a burn-in with the energy's positions in groups."""
    first = grouped(as_energy(energy), GROUPS)
    return Schedule(
        epochs=DEFAULT_EPOCHS, burn_in=BURN_IN, burn_in_energy=None if first is None else str(first)
    )


@dataclass(frozen=True)
class Plan:
    """A run to carry out: what it is, what moves its chains, where they start, and who works.

    A new run is written to `out`, if that is a path. One that `resumes` is there already.
    """

    manifest: Manifest
    model: MaskedModel
    kernel: Kernel
    layout: Layout
    workers: Workers = field(default_factory=Workers)
    out: Path | None = None
    checkpoint_every: float = 60.0
    notes: tuple[str, ...] = ()
    resumes: bool = False


def plan(**given: Any) -> Plan:
    """Return the plan of a run from the arguments of `maskov.sample`, or refuse them.

    What needs no model to be refused is refused before one is loaded.
    """
    asked = arguments_of(api.sample, given)
    own = isinstance(asked.kernel, Kernel)
    if own:
        asked.refuse_both("a kernel", *_OF_KERNELS)
    if asked.schedule is not None:
        asked.refuse_both("a schedule", *_OF_SCHEDULES)
    refuse_unused(asked)
    _check_values(asked)
    workers = workers_of(asked)
    rule = stopping_rule(asked.until)
    given_model = asked.given_model()
    source = given_model.source
    trust = source is not None and source.trust_remote_code
    loading = Loading(given_model.device, trust, find=findable)

    if own and asked.burn_in is None and asked.schedule is None:
        asked.burn_in = 0
    automatic_burn_in = asked.schedule is None and asked.burn_in is None
    blanks = (one for line in asked.templates or () for one in find_blanks(str(line)))
    if asked.moves is None and asked.kernel == "mh" and any(one != ONE for one in blanks):
        asked.moves = RESIZING
    _check_start(asked)
    kernel, block = (asked.kernel, None) if own else _kernel(asked, loading)
    kernel = _with_replicas(kernel, asked.replicas)
    if _draws(asked, kernel):
        assert isinstance(kernel.energy, Ordered)
        kernel = Draws(kernel.energy)
        asked.epochs, asked.burn_in = asked.epochs or 1, asked.burn_in or 0
    if asked.particles is not None:
        kernel = _population(asked, kernel)
    elif isinstance(kernel, Population):
        _check_population(asked, kernel)
    schedule, known = _schedule(asked, kernel, block, loading)
    if asked.out is not None:
        Store.check_free(asked.out)

    model = given_model.load(asked.precision)
    check_translates(kernel, model)
    kernel = _with_room(kernel, asked, model)
    kernel, prior = with_prior(kernel, asked.length_prior, model)
    check_order(kernel)
    if asked.passes is None and asked.particles is None:
        check_epochs(schedule, asked.chains, asked.thin)
    scorer = Scorer(model, asked.token_budget, asked.stop)
    # Only a search for lengths runs passes.
    searches = asked.lengths == "searched"
    with threads(workers.threads or 1, model) if searches else nullcontext():
        inputs = inputs_of(
            model, lengths=asked.lengths, chains=asked.chains, seed=asked.seed,
            sampled=resizes(kernel), scorer=scorer, **_start(asked, model),
        )  # fmt: skip
    check_references(kernel, inputs)
    constraints = kernel.conditional.constraints
    layout = layout_of(model, inputs, asked.chains, asked.seed, constraints)
    layout.check(model, constraints)
    check_prior(kernel, layout)
    running = with_burn_in(kernel, schedule, model, trust, trust_parts=True, known=known)
    if isinstance(kernel, Population) and not own:
        with threads(workers.threads or 1, model):
            kernel = planned_path(kernel, layout, scorer, CounterRng(asked.seed), asked.passes)
        running, points = kernel, len(kernel.path)
        schedule = Schedule(epochs=points, burn_in=points - 1)
    elif asked.passes is not None:
        schedule, running = schedule_for_passes(
            asked.passes, running, schedule, prior, layout, scorer, CounterRng(asked.seed),
            automatic_burn_in,
        )  # fmt: skip
        if asked.burn_in_energy not in (None, "same") and schedule.burn_in_energy is None:
            raise InputError(
                f"{asked.passes} passes of a chain are one epoch, which leaves no burn-in: ask "
                "for more --passes or drop --burn-in-energy."
            )
        check_epochs(schedule, asked.chains, asked.thin)
    if inputs.sources is None:  # translations may be short; a block is then all of one
        check_blocks(kernel, schedule, layout)
    if rule is not None:
        check_converges(kernel, schedule, asked.thin, asked.trace)
        check_comparable(kernel, inputs, layout)
    config = RunConfig(
        model=ModelConfig(
            name=model.name,
            fingerprint=model.fingerprint(),
            source=source
            or ModelSource(
                model.name,
                prefix=model.prefix,
                remove_smoothing=model.remove_smoothing,
                extra_letters=model.extra_letters,
            ),
            precision=model.precision,  # type: ignore[arg-type]
            device=str(model.device),
        ),
        kernel=kernel_data(kernel, alone=asked.out is None and workers.here),
        schedule=schedule,
        inputs=inputs,
        execution=Execution(
            token_budget=scorer.batcher.budget,
            resident=asked.resident or group_size(scorer, running, schedule, layout),
            trace=asked.trace,
            threads=workers.threads or 1,
        ),
        chains=asked.chains,
        start=asked.start,
        thin=asked.thin,
        seed=asked.seed,
        length_prior=prior,
        until=rule,
    )
    return Plan(
        manifest_of(config, model, kernel, models_of(running), layout, asked.name),
        model,
        running,
        layout,
        workers,
        asked.out,
        asked.checkpoint_every,
        _notes(asked, schedule),
    )


def workers_of(asked: Arguments) -> Workers:
    """Return who does the work."""
    if not isinstance(asked.workers, Workers):
        return Workers(asked.workers, threads=getattr(asked, "threads", None))
    if getattr(asked, "threads", None) is None:
        return asked.workers
    return replace(asked.workers, threads=asked.threads)


def stopping_rule(until: str | None) -> UntilConverged | None:
    """Read when a run ends early: `converged`, or `converged:400` for 400 effective draws."""
    if until is None:
        return None
    word, colon, draws = until.partition(":")
    if word != "converged" or (colon and not draws.isdecimal()) or (colon and not int(draws)):
        raise InputError(
            f"a run can continue until 'converged', or 'converged:400' for 400 effective draws, "
            f"not until '{until}' (--until)."
        )
    return UntilConverged(int(draws)) if colon else UntilConverged()


def refuse_unused(asked: Arguments, *names: str) -> None:
    """Refuse options of proposals if all moves are objects, which have their own."""
    moves = [] if asked.moves is None else listed_moves(asked.moves)
    if moves and not any(isinstance(move, str) for move, _ in moves):
        asked.refuse_both("moves that are objects", *(names or _OF_MOVES))


def _check_values(asked: Arguments) -> None:
    """Refuse values that no run can have."""
    CounterRng(asked.seed)  # which refuses what is no seed
    check_name(asked.name)
    check_checkpoints(asked.checkpoint_every)
    refuse(
        (asked.chains < 1, f"a run has at least one chain, not {asked.chains}."),
        (
            asked.start not in STARTS,
            f"unknown start '{asked.start}'; use one of {', '.join(STARTS)}, or --start-text for a "
            "file.",
        ),
        (
            asked.thin < 0,
            f"--thin counts epochs: 0 (only the last) or more, not {asked.thin}.",
        ),
        *(
            (value is not None and value < 1, f"--{name} must be at least 1, not {value}.")
            for name, value in (
                ("token-budget", asked.token_budget),
                ("resident", asked.resident),
                ("passes", asked.passes),
            )
        ),
        (
            asked.trace not in ("every", "kept"),
            f"energies are traced in 'every' epoch or where 'kept', not '{asked.trace}'.",
        ),
        (
            asked.passes is not None and (asked.epochs is not None or asked.until is not None),
            "a run ends after --passes, or after --epochs or --until, not both: give one.",
        ),
    )


def check_checkpoints(seconds: float) -> None:
    """Refuse a time between checkpoints that is none."""
    refuse((not seconds >= 0, "the time between checkpoints must be 0 seconds or more."))


def _check_start(asked: Arguments) -> None:
    """Refuse what cannot be asked of chains that start from texts, or do not."""
    started, filled = asked.texts is not None, asked.templates is not None
    sized, frozen = asked.length is not None, asked.freeze is not None
    refuse(
        (
            started and sized and not (isinstance(asked.kernel, Kernel) or _resizes(asked.moves)),
            "the texts of --start-text have their own lengths: drop --length.",
        ),
        (
            started and asked.start != "masked",
            "chains start from --start-text or from --start, not both.",
        ),
        (
            started and asked.kernel == "mask-predict",
            "mask-predict starts from all masked: drop --start-text.",
        ),
        (
            frozen and not started,
            "--freeze names tokens of texts to start from: give --start-text.",
        ),
        (filled and sized, "templates have their own lengths: drop --length."),
        (
            filled and started and frozen,
            "templates say what is frozen in texts: drop --freeze.",
        ),
        (
            asked.max_changes is not None and not started,
            "a template changes only in its blanks: drop --max-changes."
            if filled
            else "--max-changes counts changes to a text: give one with --start-text.",
        ),
    )


def _resizes(moves: Moves | None) -> bool:
    """Whether some move changes the length."""
    return moves is not None and bool(move_names(moves) & {"insert-delete", "resize"})


def _start(asked: Arguments, model: MaskedModel) -> dict[str, Any]:
    """Return the length, texts, templates and frozen tokens that chains start from.

    With texts and templates, chains start at the texts and change only where templates have blanks.
    """
    length, texts, templates, frozen = asked.length, asked.texts, asked.templates, asked.freeze
    if texts is not None and templates is not None:
        lines, _ = named_texts(model, texts)
        frozen = template_masks(model, lines, named_texts(model, templates, blanks=True)[0])
        templates = None
    if length is None and texts is None:
        length = min(max(DEFAULT_LENGTH, model.min_length), model.max_length)
    if isinstance(length, int):
        length = (length, length)
    return {"length": length, "texts": texts, "templates": templates, "frozen": frozen}


def constraints_of(asked: Arguments, resizing: bool) -> tuple[Constraint, ...]:
    """Return what all samples must meet; `resizing` says that lengths change."""
    both = ((ContainsWords, asked.contains), (AvoidWords, asked.avoid))
    found: list[Constraint] = [kind(words) for kind, one in both if (words := words_of(one))]
    if asked.allow is not None:
        found.append(AllowedTokens.parse(asked.allow))
    if asked.max_changes is not None:
        found.append((MaxEdits if resizing else MaxChanges)(asked.max_changes))
    return tuple(found)


def energy_of(given: Any, loading: Loading) -> Energy:
    """Return an energy that is given as text, as an object or as a function."""
    return (
        parse_energy(given, default_judge(), loading)
        if isinstance(given, str)
        else as_energy(given)
    )


def _kernel(asked: Arguments, loading: Loading) -> tuple[Kernel, LinearSchedule | None]:
    """Return the kernel that the options mean and how its blocks shrink; refuse what it ignores."""
    name, moves = asked.kernel, asked.moves
    if is_import_path(name):
        asked.refuse("a custom kernel has its own options: drop {}.", *_OF_KERNELS)
        path, arguments, options = parse_call(name)
        return as_kernel(load_part(path, arguments, options, trust=True)), None
    if name not in KERNELS:
        raise InputError(
            f"unknown kernel '{name}'; use one of {', '.join(KERNELS)}, or a custom one such as "
            "my_module:MyKernel."
        )
    early = DelayedAcceptance() if asked.delayed is None else parse_delayed(asked.delayed)
    constraints = constraints_of(asked, _resizes(moves))
    proposal = asked.proposal or MaskedConditional()
    proposal = replace(proposal, constraints=(*proposal.constraints, *constraints))
    if name != "mh":
        asked.refuse(
            f"'{name}' has no target and accepts everything: drop {{}}, or use --kernel mh (E_raw "
            "and E_norm are traced in any case).",
            "target_temperature", "force_accept", "delayed", "energy",
        )  # fmt: skip
    if name == "mask-predict":
        asked.refuse(
            "mask-predict starts from all masked and, for --epochs iterations, takes the most "
            "probable token where it is least sure: drop {}.",
            "moves", "proposal", "start", "passes",
        )  # fmt: skip
        kernel, block = named_kernel(name, iterations=_most_epochs(asked)), None
    elif name == "gibbs":
        chosen, _, block = parse_moves("site" if moves is None else moves, proposal)
        if len(chosen) != 1 or not isinstance(chosen[0], Site):
            raise InputError("--kernel gibbs moves sites: write --moves 'site(...)', or use mh.")
        kernel = named_kernel(name, moves=chosen)
    else:
        # A word that must be there moves only with its neighbours.
        usual = "span" if asked.particles is None or asked.contains else "site"
        chosen, weights, block = parse_moves(usual if moves is None else moves, proposal)
        if asked.proposal is not None and all(move.conditional is not proposal for move in chosen):
            raise InputError("a custom move has its own options: drop --proposal.")
        energy = energy_of("raw" if asked.energy is None else asked.energy, loading)
        kernel = named_kernel(name, energy, chosen, weights, delayed=early)
    if constraints and kernel.conditional.constraints != proposal.constraints:
        raise InputError(
            f"'{name}' with these moves does not keep constraints: use mh with site, span, "
            "insert-delete or resize, or drop --contains, --avoid, --allow and --max-changes."
        )
    return kernel, block


def _with_replicas(kernel: Kernel, replicas: int | Sequence[float]) -> Kernel:
    """Return the kernel with the replicas that were asked for."""
    if isinstance(replicas, int):
        return kernel if replicas == 1 else Exchange(kernel, (), replicas)
    return Exchange(kernel, tuple(map(float, replicas))) if replicas else kernel


def _draws(asked: Arguments, kernel: Kernel) -> bool:
    """Whether samples are independent draws: of an ordered energy, and nothing says otherwise."""
    given = asked.given(
        "moves", "particles", "replicas", "target_temperature", "force_accept", "delayed",
        "texts", "freeze", "passes", "until", *_OF_MOVES,
    )  # fmt: skip
    named = asked.kernel == "mh" and asked.schedule is None and not given
    return named and isinstance(kernel.energy, Ordered)


def _population(asked: Arguments, kernel: Kernel) -> Population:
    """Return the kernel of populations; what they have no use for is refused."""
    asked.refuse(
        "populations have no use for {}: drop it, or --particles.",
        "chains", "epochs", "schedule", "until", "burn_in", "burn_in_energy", "replicas", "thin",
        "force_accept", "start", "resident", "length_prior",
    )  # fmt: skip
    temperature, length = asked.target_temperature, asked.length
    refuse(
        (
            asked.populations < 1,
            f"--populations must be 1 or more, not {asked.populations}.",
        ),
        (
            isinstance(temperature, LinearSchedule),
            "the target of populations is fixed: give one --target-temperature.",
        ),
        (
            (isinstance(length, tuple) and length[0] != length[1]) or resizes(kernel),
            "the particles of a population have one length: give --length 20, for example, and "
            "blanks of known length.",
        ),
    )
    asked.chains, asked.burn_in = asked.particles * asked.populations, 0
    asked.target_temperature = 1.0  # the path has it
    if temperature != 1:
        kernel = kernel.at(0, temperature, None)
    found = Population(kernel, Ordered(), asked.particles)
    return found if asked.populations > 1 else found.even  # one has none to be compared with


def _check_population(asked: Arguments, kernel: Population) -> None:
    """Refuse a population object without its path, or a run that does not fit it."""
    epochs = _most_epochs(asked) if asked.schedule is None else asked.schedule.epochs
    refuse(
        (
            not kernel.path or epochs != len(kernel.path),
            f"a run of a population has an epoch for each point of its path: {len(kernel.path)}, "
            f"not {epochs} (or give `particles` instead of the object, which finds a path).",
        ),
        (
            asked.chains % kernel.particles or asked.resident is not None,
            f"chains are the particles of whole populations: a multiple of {kernel.particles}, "
            "without `resident`.",
        ),
    )


def _with_room(kernel: Kernel, asked: Arguments, model: MaskedModel) -> Kernel:
    """Return the kernel with spans that move every word of --contains at once, unless sized."""
    if isinstance(kernel, Population):
        return replace(kernel, kernel=_with_room(kernel.kernel, asked, model))
    words, moves = words_of(asked.contains), listed_moves(asked.moves or "span")
    if not words or "span" not in [str(move).partition(":")[0].strip() for move, _ in moves]:
        return kernel
    sizes = tuple(range(1, ContainsWords(words).longest(model) + 2))

    def widened(part: Kernel) -> Kernel:
        if not isinstance(part, Metropolis) or not isinstance(part.move, Span):
            return part
        return replace(part, move=replace(part.move, sizes=sizes))

    return with_leaves(kernel, widened) if len(sizes) > len(DEFAULT_SIZES) else kernel


def _most_epochs(asked: Arguments) -> int:
    """Return the epochs of the run, or the most there may be."""
    if asked.epochs is not None:
        return int(asked.epochs)
    if asked.passes is not None:  # which decide, once the model is there
        return int(max(asked.burn_in or 0, asked.force_accept, DEFAULT_EPOCHS)) + 1
    return DEFAULT_EPOCHS if asked.until is None else MOST_UNTIL_CONVERGED


def _schedule(
    asked: Arguments, kernel: Kernel, block: LinearSchedule | None, loading: Loading
) -> tuple[Schedule, dict[str, Energy]]:
    """Return the schedule, and the energy of its burn-in by its name, if that is known."""
    if asked.schedule is not None:
        return asked.schedule, {}
    falling = asked.target_temperature
    if not isinstance(falling, LinearSchedule):
        if not falling > 0:
            raise InputError(f"the target temperature must be above 0, not {falling:g}.")
        # Where it is the kernel's own, 1, nothing is scheduled.
        falling = None if falling == 1 else LinearSchedule(falling, 0.0, falling)
    epochs, burn_in, first, name = _most_epochs(asked), asked.burn_in, None, None
    if burn_in is None:
        moving = falling is not None and falling.rate != 0
        tempered = asked.replicas not in (1, ())
        special = moving or tempered or asked.given("force_accept", "until", "moves")
        burn_in = 0 if asked.kernel != "mh" or special else min(BURN_IN, epochs // 2)
        if burn_in and asked.burn_in_energy is None:
            first = usual_burn_in(kernel)
            # A part that nobody can build again by name has no burn-in of its own.
            name = None if first is None else energy_text(first)
    if asked.burn_in_energy not in (None, "same"):
        first = energy_of(asked.burn_in_energy, loading)
        name = energy_name(first)
    schedule = Schedule(
        epochs=epochs,
        burn_in=burn_in,
        target_temperature=falling,
        block=block,
        force_accept=asked.force_accept,
        burn_in_energy=name,
    )
    return schedule, {} if name is None or first is None else {name: first}


def _notes(asked: Arguments, schedule: Schedule) -> tuple[str, ...]:
    """Return what a user may want to know before the run begins."""
    count, chains, epochs = len(asked.texts or ()), asked.chains, f"{schedule.epochs:,}"
    notes = (
        (
            asked.particles is not None,
            f"{asked.populations} populations of {asked.particles} particles go through {epochs} "
            "points, found by a pilot",
        ),
        (
            asked.passes is not None and asked.particles is None,
            f"{asked.passes or 0:,} passes of a chain are about {epochs} epochs",
        ),
        (
            count > 1,
            f"{count} texts start {chains} chain{'s' * (chains > 1)} each: {count * chains} chains",
        ),
        (
            asked.until is not None,
            f"the run ends when it has converged, after at most {epochs} epochs",
        ),
    )
    return tuple(note for holds, note in notes if holds)
