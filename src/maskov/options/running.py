"""From options to a run: the one path that commands and Python take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from maskov.config import check_name, stopping_rule
from maskov.errors import InputError
from maskov.fasta import Record
from maskov.kernels import Kernel
from maskov.models import MaskedModel
from maskov.options.sampling import SamplingOptions
from maskov.runs.inputs import named_texts
from maskov.runs.preparation import schedule_for_passes
from maskov.runs.rebuild import with_burn_in
from maskov.runs.result import Run
from maskov.runs.store import Store
from maskov.sampling import run_chains
from maskov.schedules import Schedule
from maskov.texts import ONE, Mask, find_blanks, template_masks

DEFAULT_LENGTH = 20
Lines = Sequence[str | Record]


def parse_length(text: str | tuple[int, int]) -> tuple[int, int]:
    """Read `20` or `15:45`."""
    if not isinstance(text, str):
        return text
    first, colon, last = text.partition(":")
    try:
        return int(first), int(last if colon else first)
    except ValueError:
        raise InputError(
            f"the length '{text}' is not a number or range; write 20 or 15:45."
        ) from None


def check_start(
    options: SamplingOptions,
    length: object = None,
    texts: object = None,
    templates: object = None,
    freeze: object = None,
) -> None:
    """Refuse what cannot be asked of chains that start from texts, or do not."""
    if texts is not None and length is not None and not options.resizes:
        raise InputError("the texts of --start-text have their own lengths: drop --length.")
    if texts is not None and options.start != "masked":
        raise InputError("chains start from --start-text or from --start, not both.")
    if texts is not None and options.kernel == "mask-predict":
        raise InputError("mask-predict starts from all masked: drop --start-text.")
    if freeze is not None and texts is None:
        raise InputError("--freeze names tokens of texts to start from: give --start-text.")
    if templates is not None and length is not None:
        raise InputError("templates have their own lengths: drop --length.")
    if options.max_changes is None or texts is not None:
        return
    if templates is not None:
        raise InputError("a template changes only in its blanks: drop --max-changes.")
    raise InputError("--max-changes counts changes to a text: give one with --start-text.")


def for_templates(options: SamplingOptions, templates: Lines | None) -> SamplingOptions:
    """Return the options with moves that change the length, if blanks need them."""
    blanks = (blank for line in templates or () for blank in find_blanks(str(line)))
    return options.with_resizing() if any(blank != ONE for blank in blanks) else options


def check_before_loading(
    options: SamplingOptions, kernel: Kernel | None = None, schedule: Schedule | None = None
) -> None:
    """Refuse what needs no model to be refused; a kernel and a schedule may be given."""
    stopping_rule(options.until, options.effective)
    if schedule is None:
        options.build_schedule()
    elif options.passes is not None and options.until is not None:
        raise InputError("a run ends after --passes or --until converged, not both.")
    if kernel is None:
        options.build_kernel("cpu")
    options.build_workers(options.threads)
    if options.out is not None:
        Store.check_free(options.out)
    check_name(options.name or "")


def start_of(
    model: MaskedModel,
    length: tuple[int, int] | None = None,
    texts: Lines | None = None,
    templates: Lines | None = None,
    freeze: str | Sequence[Mask] | None = None,
) -> dict[str, Any]:
    """Return what chains start from; without any of it, the usual length that the model takes.

    With texts and templates, chains start at the texts and change only where templates have blanks.
    """
    if texts is not None and templates is not None:
        if freeze is not None:
            raise InputError("templates say what is frozen in texts: drop --freeze.")
        lines, _ = named_texts(model, texts)
        freeze = template_masks(model, lines, named_texts(model, templates, blanks=True)[0])
        templates = None
    usual = DEFAULT_LENGTH
    if texts is None and templates is None:
        usual = min(max(usual, model.min_length), model.max_length)
    return {
        "length": length or (usual if texts is not None else (usual, usual)),
        "texts": texts,
        "templates": templates,
        "freeze": freeze,
    }


def plan_run(
    options: SamplingOptions,
    model: MaskedModel,
    start: dict[str, Any],
    kernel: Kernel | None = None,
    schedule: Schedule | None = None,
) -> tuple[Kernel, Schedule]:
    """Return the kernel and the schedule of a run: those given, or what the options mean.

    `start` is what chains start from. With a custom kernel there is no burn-in unless it is
    asked for.
    """
    if kernel is not None and options.burn_in is None:
        options = replace(options, burn_in=0)
    automatic_burn_in = schedule is None and options.burn_in is None
    if kernel is None:
        kernel = options.with_room(model).build_kernel(model.device)
    else:
        kernel = options.with_replicas(kernel)
    schedule = schedule or options.build_schedule()
    if options.passes is None:
        return kernel, schedule
    trust = options.trust_remote_code
    running = with_burn_in(kernel, schedule, model, trust, trust_parts=True)
    paid = schedule_for_passes(
        model, running, schedule, options.passes, chains=options.chains, seed=options.seed,
        token_budget=options.token_budget, automatic_burn_in=automatic_burn_in,
        length_prior=options.length_prior, **start,
    )  # fmt: skip
    if options.burn_in_energy not in (None, "same") and paid.burn_in_energy is None:
        raise InputError(
            f"{options.passes} passes of a chain are one epoch, which leaves no burn-in: ask "
            "for more --passes or drop --burn-in-energy."
        )
    return kernel, paid


def start_run(
    options: SamplingOptions,
    model: MaskedModel,
    kernel: Kernel,
    schedule: Schedule,
    start: dict[str, Any],
    **others: Any,
) -> Run:
    """Run the chains; `others` are what no option says, such as who listens."""
    return run_chains(
        model,
        kernel,
        schedule,
        chains=options.chains,
        start=options.start,
        length_prior=options.length_prior,
        seed=options.seed,
        thin=options.thin,
        until=options.until,
        effective=options.effective,
        out=options.out,
        name=options.name or "",
        token_budget=options.token_budget,
        resident=options.resident,
        checkpoint_every=options.checkpoint_every,
        **start,
        **others,
    )
