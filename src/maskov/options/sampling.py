"""The options of `sample` and `infill`, and the kernel and the schedule that they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from maskov.config import DEFAULT_EPOCHS, MOST_UNTIL_CONVERGED, stopping_rule
from maskov.errors import InputError
from maskov.options.constraints import ConstraintOptions, words_of
from maskov.options.model import ModelOptions, findable
from maskov.options.option import FIRST, option
from maskov.options.workers import WorkerOptions
from maskov.parts import is_import_path, load_part, parse_call
from maskov.schedules import LinearSchedule, Schedule
from maskov.shipped import default_judge

if TYPE_CHECKING:
    from maskov.energies import Energy
    from maskov.energies.networks import Loading
    from maskov.kernels import DelayedAcceptance, Kernel
    from maskov.kernels.registry import Moves
    from maskov.models import MaskedModel

_MODEL = "Advanced: model"
_KERNEL = "Advanced: kernel"
_SCHEDULE = "Advanced: schedule"
_RUN = "Advanced: run"
# The moves of templates with blanks of unknown length.
RESIZING = "span:2,insert-delete:1,resize:1"
# Options of the site move, which a custom kernel does not have.
_SITE_OPTIONS = ("order", "block", "temperature", "top_p", "top_k", "epsilon", "block_anneal")


@dataclass(frozen=True)
class SamplingOptions(WorkerOptions, ConstraintOptions, ModelOptions):
    """Everything the command line can say about a run; in Python an energy may be an object."""

    causal_model: Annotated[
        str | None,
        option("--causal-model", "causal LM for the energy 'autoregressive'", _MODEL),
    ] = None
    energy: Annotated[
        Any,
        option(
            "--energy",
            "raw, norm, raw(groups=4), autoregressive, module:Class(...), or a sum: raw+0.5*norm "
            "(default: raw)",
            FIRST,
            "-e",
        ),
    ] = None
    kernel: Annotated[
        str, option("--kernel", "mh, gibbs, mask-predict, or module:Class", _KERNEL, "-k")
    ] = "mh"
    moves: Annotated[
        Any,
        option(
            "--moves",
            "site, span, insert-delete, resize or module:Class; several with weights: "
            "site:1,span:2 (default: span)",
            _KERNEL,
        ),
    ] = None
    span: Annotated[
        str | tuple[int, int] | None,
        option("--span", "positions of a span: 2, or a range such as 1:3 (default: 1:3)", _KERNEL),
    ] = None
    length_prior: Annotated[
        str | Mapping[int, float] | None,
        option(
            "--length-prior",
            "weights of sampled lengths: flat, none, or 8:1,12:4,16:1 (default: flat)",
            _KERNEL,
        ),
    ] = None
    order: Annotated[
        str, option("--order", "order of single sites: random or left-to-right", _KERNEL)
    ] = "random"
    block: Annotated[
        int, option("--block", "positions that the move 'site' masks together", _KERNEL)
    ] = 1
    temperature: Annotated[
        float, option("--temperature", "temperature of the proposal", _KERNEL)
    ] = 1.0
    top_p: Annotated[
        float,
        option(
            "--top-p",
            "propose only from the smallest set of tokens with this much probability (1: all)",
            _KERNEL,
        ),
    ] = 1.0
    top_k: Annotated[
        int | None, option("--top-k", "propose only from this many most probable tokens", _KERNEL)
    ] = None
    epsilon: Annotated[
        float, option("--epsilon", "share of the full conditional in the proposal", _KERNEL)
    ] = 0.0

    delayed: Annotated[
        str | tuple[int, ...] | None,
        option(
            "--delayed",
            "positions next to the change that an early test scores: 2, or 1,2,4 for three tests, "
            "or off (default: 2; off for grouped energies)",
            _KERNEL,
        ),
    ] = None

    replicas: Annotated[
        int,
        option(
            "--replicas", "copies of each chain at several temperatures, which swap states", _KERNEL
        ),
    ] = 1
    ladder: Annotated[
        str | tuple[float, ...] | None,
        option(
            "--ladder",
            "inverse temperatures of replicas: 1,0.87,0.75 (default: automatic)",
            _KERNEL,
        ),
    ] = None

    epochs: Annotated[
        int | None,
        option(
            "--epochs",
            f"sweeps over all positions (default: {DEFAULT_EPOCHS}); with --until the most there "
            f"may be (default: {MOST_UNTIL_CONVERGED})",
            FIRST,
            "-n",
        ),
    ] = None
    until: Annotated[
        str | None,
        option(
            "--until",
            "converged: stop when R-hat and the effective draws are good enough",
            FIRST,
        ),
    ] = None
    effective: Annotated[
        int | None,
        option("--effective", "effective draws for --until converged (default: 100)", _SCHEDULE),
    ] = None
    passes: Annotated[
        int | None,
        option("--passes", "masked passes of a chain, instead of --epochs", _SCHEDULE),
    ] = None
    burn_in: Annotated[
        int | None,
        option(
            "--burn-in",
            "first epochs, left out of samples and averages (default: 8, but at most half of the "
            "epochs; with --until: half of them)",
            _SCHEDULE,
        ),
    ] = None
    burn_in_energy: Annotated[
        str | None,
        option(
            "--burn-in-energy",
            "energy of burn-in, such as raw(groups=4), or same for that of --energy (default: "
            "--energy with groups=4; same if --burn-in is given)",
            _SCHEDULE,
        ),
    ] = None
    target_temperature: Annotated[
        float, option("--target-temperature", "T in p ∝ exp(-E/T)", _SCHEDULE)
    ] = 1.0
    anneal: Annotated[float, option("--anneal", "decrease of T per epoch", _SCHEDULE)] = 0.0
    target_floor: Annotated[
        float | None,
        option("--target-floor", "lowest T of --anneal (default: 0.01)", _SCHEDULE),
    ] = None
    block_anneal: Annotated[
        float, option("--block-anneal", "decrease of the block size per epoch", _SCHEDULE)
    ] = 0.0
    force_accept: Annotated[
        int, option("--force-accept", "first epochs that accept everything", _SCHEDULE)
    ] = 0

    chains: Annotated[
        int, option("--chains", "number of chains, for each text or template", FIRST, "-c")
    ] = 8
    start: Annotated[
        str, option("--start", "masked (filled at random), greedy (one pass) or mask-predict", _RUN)
    ] = "masked"
    thin: Annotated[
        int,
        option("--thin", "epochs between samples of a chain; 0: only the last is kept", _RUN),
    ] = 0
    seed: Annotated[int, option("--seed", "seed of all random numbers", _RUN, "-s")] = 0
    out: Annotated[Path | None, option("--out", "run folder to write", FIRST, "-o")] = None
    name: Annotated[
        str | None,
        option("--name", "name of the run in reports and pages (default: its folder)", _RUN),
    ] = None
    token_budget: Annotated[
        int | None,
        option("--token-budget", "maximum tokens per model call (default: automatic)", _RUN),
    ] = None
    resident: Annotated[
        int | None,
        option("--resident", "maximum chains per device batch (default: automatic)", _RUN),
    ] = None
    threads: Annotated[
        int | None,
        option("--threads", "threads of each process on a CPU (default: 1)", _RUN),
    ] = None
    checkpoint_every: Annotated[
        float, option("--checkpoint-every", "seconds between checkpoints", _RUN)
    ] = 60.0

    @property
    def most_epochs(self) -> int:
        """The epochs of the run, or the most there may be."""
        if self.epochs is not None:
            return self.epochs
        if self.passes is not None:  # which decide, once the model is there
            return max(self.burn_in or 0, self.force_accept, DEFAULT_EPOCHS) + 1
        return DEFAULT_EPOCHS if self.until is None else MOST_UNTIL_CONVERGED

    def build_schedule(self) -> Schedule:
        """Return the schedule; a lone floor is refused, since it would do nothing."""
        stopping_rule(self.until, self.effective)  # refused before a model is loaded
        if self.passes is not None:
            if self.epochs is not None or self.until is not None:
                raise InputError(
                    "a run ends after --passes, or after --epochs or --until, not both: give one."
                )
            if self.passes < 1:
                raise InputError(f"--passes must be 1 or more, not {self.passes}.")
            if self.kernel == "mask-predict":
                raise InputError("mask-predict has a number of iterations: give --epochs.")
        if self.target_floor is not None and self.anneal == 0:
            raise InputError("--target-floor needs --anneal, the fall of the temperature.")
        if not self.target_temperature > 0:
            raise InputError(
                f"the target temperature must be above 0, not {self.target_temperature:g}."
            )
        if self.block < 1:
            raise InputError(f"a block has at least one position, not {self.block}.")
        return Schedule(
            epochs=self.most_epochs,
            burn_in=self.chosen_burn_in,
            target_temperature=self._scheduled_temperature(),
            # The kernel has the block; only one that falls is scheduled.
            block=None
            if self.block_anneal == 0
            else LinearSchedule(float(self.block), self.block_anneal, 1.0),
            force_accept=self.force_accept,
            burn_in_energy=self._burn_in_energy(),
        )

    def _scheduled_temperature(self) -> LinearSchedule | None:
        """Return the temperature by epoch; None where it is the kernel's own, 1."""
        if self.anneal == 0:
            fixed = self.target_temperature
            return None if fixed == 1 else LinearSchedule(fixed, 0.0, fixed)
        floor = 0.01 if self.target_floor is None else self.target_floor
        return LinearSchedule(self.target_temperature, self.anneal, floor)

    @property
    def chosen_burn_in(self) -> int:
        """The epochs of burn-in: by default some, where the run is an ordinary one."""
        from maskov.defaults import BURN_IN

        if self.burn_in is not None:
            return self.burn_in
        moving = self.anneal != 0 or self.force_accept != 0 or self.until is not None
        tempered = self.replicas != 1 or self.ladder not in (None, ())
        ordinary = self.kernel == "mh" and self.moves is None and self.chosen_moves == ("span",)
        if moving or tempered or not ordinary:
            return 0
        return min(BURN_IN, self.most_epochs // 2)

    def _burn_in_energy(self) -> str | None:
        """Return the name of the energy of burn-in, with the causal model that it means.

        Where nothing is said of burn-in, it is the energy asked for in groups of positions.
        """
        from maskov.defaults import GROUPS
        from maskov.energies import grouped, parse_energy
        from maskov.energies.networks import Loading
        from maskov.kernels.registry import energy_name, energy_text

        if self.burn_in_energy == "same":
            return None
        if self.burn_in_energy is None:
            if self.burn_in is not None or self.chosen_burn_in == 0:
                return None
            found = grouped(self.build_energy(), GROUPS)
            return None if found is None else energy_text(found)
        causal = self.causal_model or default_judge()
        return energy_name(parse_energy(self.burn_in_energy, causal, Loading(find=findable)))

    def build_energy(self, loading: Loading | None = None) -> Energy:
        """Return the energy of the target."""
        from maskov.energies import Energy, parse_energy
        from maskov.energies.networks import Loading

        if isinstance(self.energy, Energy):
            return self.energy
        causal = self.causal_model or default_judge()
        text = "raw" if self.energy is None else self.energy
        return parse_energy(text, causal, loading or Loading(find=findable))

    def build_kernel(self, device: Any) -> Kernel:
        """Return the kernel, or refuse options that contradict it."""
        from maskov.runs.checks import check_order

        kernel = self._chain_kernel(device)
        check_order(kernel)
        asked = self.build_constraints(self.resizes)
        if asked and kernel.conditional.constraints != asked:
            raise InputError(
                f"'{self.kernel}' with these moves does not keep constraints: use mh with site, "
                "span, insert-delete or resize, or drop --contains, --avoid, --allow and "
                "--max-changes."
            )
        return self.with_replicas(kernel)

    def with_replicas(self, kernel: Kernel) -> Kernel:
        """Return the kernel with the replicas that were asked for."""
        from maskov.kernels import Exchange

        if self.replicas == 1 and self.ladder in (None, ()):
            return kernel
        return Exchange(kernel, self._betas(), 0 if self.replicas == 1 else self.replicas)

    def _betas(self) -> tuple[float, ...]:
        """Return the ladder, empty if it is to be found."""
        if not isinstance(self.ladder, str):
            return self.ladder or ()
        try:
            return tuple(float(beta) for beta in self.ladder.split(","))
        except ValueError:
            raise InputError(
                f"--ladder '{self.ladder}' is not a ladder; write 1,0.87,0.75."
            ) from None

    def _chain_kernel(self, device: Any) -> Kernel:
        """Return the kernel that moves each chain."""
        from maskov.energies.networks import Loading
        from maskov.kernels.registry import (
            KERNELS,
            named_kernel,
            named_moves,
            parse_moves,
        )
        from maskov.moves import MaskedConditional, Site, Sweep

        own = is_import_path(self.kernel)
        if not own and self.kernel not in KERNELS:
            raise InputError(
                f"unknown kernel '{self.kernel}'; use one of {', '.join(KERNELS)}, or a "
                "custom one such as my_module:MyKernel."
            )
        if self.token_budget is not None and self.token_budget < 1:
            raise InputError(f"--token-budget must be at least 1, not {self.token_budget}.")
        proposal = MaskedConditional(
            self.temperature,
            self.top_k,
            self.top_p,
            self.epsilon,
            self.build_constraints(self.resizes),
        )
        self.build_delayed()  # refused even if unused
        self.build_energy(Loading())  # refused even if unused
        if self.moves is not None and self.kernel != "mh":
            raise InputError("--moves are those of --kernel mh: drop one of them.")
        if self.span is not None and (self.kernel != "mh" or "span" not in self._move_names):
            raise InputError("--span is the size of the move 'span' of mh: add --moves span.")
        if own:
            return self._own_kernel()
        if self.kernel != "mh":
            targeted = (self.target_temperature, self.anneal, self.force_accept)
            if targeted != (1.0, 0.0, 0):
                raise InputError(
                    f"'{self.kernel}' has no target and accepts everything: drop "
                    "--target-temperature, --anneal and --force-accept, or use --kernel mh."
                )
            if self.delayed not in (None, "off", ()):
                raise InputError(f"'{self.kernel}' accepts everything: drop --delayed.")
            if self.energy is not None:
                raise InputError(
                    f"'{self.kernel}' samples from no energy: drop --energy, or use --kernel mh "
                    "(E_raw and E_norm are traced in any case)."
                )
        if self.kernel == "mask-predict":
            cut = (self.top_k, self.top_p, self.epsilon, self.block, self.block_anneal, self.order)
            if cut != (None, 1.0, 0.0, 1, 0.0, "random") or self.temperature not in (0, 1):
                raise InputError(
                    "mask-predict takes the most probable token where it is least sure: drop "
                    "--temperature, --top-p, --top-k, --epsilon, --block and --order."
                )
            if self.start != "masked":
                raise InputError("mask-predict starts from all masked: drop --start.")
            return named_kernel("mask-predict", iterations=self.most_epochs)
        positions = Sweep(self.order, self.block)
        if self.kernel == "gibbs":
            return named_kernel("gibbs", moves=(Site(proposal, positions),))

        if self._for_sites and "site" not in self._move_names:
            raise InputError(
                "--order, --block and --block-anneal are for the move 'site': drop them, or add "
                "site to --moves."
            )
        loading = Loading(device, self.trust_remote_code, find=findable)
        energy = self.build_energy(loading)
        moves, weights = parse_moves(
            self.chosen_moves, named_moves(proposal, self._sizes(), positions)
        )
        if not any(move.conditional is proposal for move in moves):
            self._refuse_given("move", ("temperature", "top_p", "top_k", "epsilon"))
        return named_kernel("mh", energy, moves, weights, delayed=self.build_delayed())

    @property
    def _for_sites(self) -> bool:
        """Whether some option is for single sites and their blocks alone."""
        return self.block != 1 or self.block_anneal != 0 or self.order != "random"

    @property
    def chosen_moves(self) -> Moves:
        """The moves that were asked for: single sites where another option is only for them."""
        if self.moves is None:
            return ("site",) if self._for_sites else ("span",)
        chosen: Moves = self.moves
        return chosen

    @property
    def _move_names(self) -> set[str]:
        from maskov.kernels.registry import move_names

        return move_names(self.chosen_moves)

    @property
    def resizes(self) -> bool:
        """Whether some move changes the length."""
        return bool(self._move_names & {"insert-delete", "resize"})

    def with_resizing(self) -> SamplingOptions:
        """Return these options with moves that change the length, unless moves were chosen."""
        return replace(self, moves=RESIZING) if self.moves is None else self

    def with_room(self, model: MaskedModel) -> SamplingOptions:
        """Return these options with spans that move every word of --contains at once."""
        from maskov.constraints import ContainsWords
        from maskov.defaults import DEFAULT_SPAN

        if not self.contains or self.span is not None or "span" not in self._move_names:
            return self
        room = ContainsWords(words_of(self.contains)).longest(model) + 1
        return self if room <= DEFAULT_SPAN[-1] else replace(self, span=(1, room))

    def _sizes(self) -> tuple[int, ...]:
        """Return the sizes of spans: a number or a range."""
        from maskov.kernels.registry import parse_sizes

        return parse_sizes(self.span or "1:3")

    def _own_kernel(self) -> Kernel:
        """Return a custom kernel, which has its own options."""
        from maskov.kernels.registry import as_kernel

        self._refuse_given("kernel", (*_SITE_OPTIONS, "energy", "delayed"))
        name, arguments, options = parse_call(self.kernel)
        return as_kernel(load_part(name, arguments, options, trust=True))

    def _refuse_given(self, part: str, names: tuple[str, ...]) -> None:
        """Refuse options that a custom part does not have."""
        defaults = {field.name: field.default for field in fields(self)}
        for name in names:
            if getattr(self, name) != defaults[name]:
                option_name = "--" + name.replace("_", "-")
                raise InputError(f"a custom {part} has its own options: drop {option_name}.")

    def build_delayed(self) -> DelayedAcceptance:
        """Return the early tests of delayed acceptance, by default those that suit the energy."""
        from maskov.energies.stages import parse_delayed
        from maskov.kernels import DelayedAcceptance

        return DelayedAcceptance() if self.delayed is None else parse_delayed(self.delayed)
