"""The translation methods: each combines a kernel, a schedule, a length rule and a selection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch

from maskov.arguments import Arguments
from maskov.config import LinearSchedule, Schedule
from maskov.energies import parse_energy
from maskov.energies.counting import PredictedLength
from maskov.energies.networks import Loading
from maskov.energies.other_models import AutoregressiveTranslation
from maskov.energies.registry import weighted_terms
from maskov.energies.stages import parse_delayed
from maskov.errors import InputError, ModelError, refuse
from maskov.evaluation import most_alike
from maskov.kernels import Kernel
from maskov.kernels.registry import Moves, named_kernel, parse_moves
from maskov.models.conditional import RULES
from maskov.moves import MaskedConditional, Move, Resize, Site
from maskov.options import findable
from maskov.shipped import model_for
from maskov.starts import STARTS
from maskov.types import Sample

_CHAINS = {"epochs", "temperature", "chains", "lengths", "pick", "start"}
_MOVES = {"moves", "delayed"}
_TARGET = {"energy", "target_temperature", "force_accept"}
# The moves of methods with blocks.
_BLOCKS = "site(block=4, block_anneal=0.2)"
PICKS = ("last", "lowest", "mbr")
# Energies that compare translations of different lengths.
_COMPARING = (PredictedLength, AutoregressiveTranslation)
# Lengths that mask-predict tries where nobody chooses a method: with one it repeats words where the
# likeliest length is too long ("How much does this bread cost cost?").
DEFAULT_LENGTHS = 5

# The options of each method; any other is refused.
METHODS: dict[str, set[str]] = {
    "greedy": set(),
    "mask-predict": {"iterations", "length_beam"},
    "gibbs": _CHAINS,
    "block-gibbs": _CHAINS | {"moves"},
    "mh": _CHAINS | _TARGET | _MOVES,
    "block-mh": _CHAINS | _TARGET | {"moves"},
    "ar": {"beam", "length_power"},
}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


@dataclass(frozen=True)
class _Defaults:
    """What `mh` does where nothing else is asked for."""

    energy: str
    moves: str
    delayed: str
    start: str
    epochs: int
    target_temperature: LinearSchedule
    force_accept: int


_PAPER = _Defaults("raw", "site", "1,3,9", "greedy", 33, LinearSchedule(1.0, 0.02, 0.01), 8)
# The weight was chosen on held-out pairs; the rest is a first guess (experiments/LOG.md).
SAMPLED = _Defaults(
    energy="norm+0.5*predicted_length",
    moves="span:2,insert-delete:1,resize:1",
    delayed="2",
    start="mask-predict",
    epochs=12,
    target_temperature=LinearSchedule(0.5, 0.04, 0.05),
    force_accept=0,
)
# At the length of mask-predict's best candidate, or of a draft, which chains start from.
SEARCHED = replace(SAMPLED, energy="norm", moves="span")
# Translations to start from: those of the autoregressive model, or given ones.
AUTOREGRESSIVE, DRAFTS = "autoregressive", "drafts"
_STARTS = (*STARTS, AUTOREGRESSIVE, DRAFTS)


@dataclass(frozen=True)
class TranslationMethod:
    """How to translate; None means the default of the method.

    The defaults of `mh` are those of the paper's Table 5: start from one greedy pass, propose at
    temperature 0.8, lower the target temperature by 0.02 per epoch. Two differ: early tests save
    passes, and the first eight epochs accept every proposal, not two. The greedy pass of a small
    model is far from a good translation, and a chain that starts rejecting there does not move
    (experiments/LOG.md).

    With `lengths="searched"`, `mh` continues from mask-predict's translation at the best of five
    lengths, and the defaults are others (see `SEARCHED`): spans on E_norm at low temperatures, and
    no forced epoch. With `lengths="sampled"` the length is also a part of the chain (see
    `SAMPLED`): there are moves that change it, and the target has the length predictor.

    With `start="autoregressive"` chains continue from the autoregressive model's translation, with
    `start="drafts"` from given ones. They have its length, unless lengths are sampled, and `mh` has
    the defaults of `lengths="searched"`.
    """

    name: str = "mask-predict"
    energy: str | None = None
    iterations: int | None = None
    length_beam: int | None = None
    epochs: int | None = None
    temperature: float | None = None
    target_temperature: float | LinearSchedule | None = None
    force_accept: int | None = None
    chains: int | None = None
    lengths: str | None = None
    pick: str | None = None
    beam: int | None = None
    length_power: float | None = None
    moves: Moves | None = None
    delayed: str | int | Sequence[int] | None = None
    start: str | None = None

    def __post_init__(self) -> None:
        if self.name not in METHODS:
            raise InputError(f"unknown method '{self.name}'; use one of {', '.join(METHODS)}.")
        given = {field.name for field in fields(self) if getattr(self, field.name) is not None}
        unused = sorted(given - METHODS[self.name] - {"name"})
        known = {"lengths": (*RULES, "sampled"), "start": _STARTS, "pick": PICKS}
        counts = ("iterations", "length_beam", "beam", "chains", "epochs")
        refuse(
            (
                bool(unused),
                f"the method '{self.name}' does not use {', '.join(map(_flag, unused))}: drop it.",
            ),
            *(
                (
                    getattr(self, name) not in (None, *words),
                    f"unknown --{name} '{getattr(self, name)}'; use one of {', '.join(words)}.",
                )
                for name, words in known.items()
            ),
            (
                self._blocks and not all(isinstance(move, Site) for move in self._moves),
                f"the method '{self.name}' moves sites: write --moves '{_BLOCKS}'.",
            ),
            (
                self.lengths == "sampled"
                and not any(isinstance(move, Resize) for move in self._moves),
                "--lengths sampled needs --method mh and moves that change the length: add "
                "insert-delete or resize to --moves.",
            ),
            (
                self.from_drafts and self.lengths not in (None, "sampled"),
                f"chains that start from a translation have its length: drop --lengths "
                f"{self.lengths}, or use --lengths sampled.",
            ),
            (
                self.pick == "mbr" and self.many < 3,
                "--pick mbr compares chains: give --chains 3 or more.",
            ),
            *(
                (
                    getattr(self, name) is not None and getattr(self, name) < 1,
                    f"{_flag(name)} must be at least 1, not {getattr(self, name)}.",
                )
                for name in counts
            ),
            (
                self.length_power is not None and not math.isfinite(self.length_power),
                f"--length-power must be a number, not {self.length_power}.",
            ),
            (
                self.pick == "lowest" and not self._has_lowest,
                "--pick lowest supports only sums of raw, norm, predicted_length and "
                "autoregressive translation models as --energy.",
            ),
        )
        if self.name != "ar":
            self.kernel()
            self.schedule()

    @property
    def _has_lowest(self) -> bool:
        """Whether samples have the energies that `lowest` compares."""
        energy = parse_energy(self.target)
        others = all(isinstance(part, _COMPARING) for _, part in energy.others)
        return others and energy.needs_passes and energy.groups is None

    @property
    def samples(self) -> bool:
        """Whether the method is random; otherwise it is deterministic."""
        return "chains" in METHODS[self.name]

    @property
    def many(self) -> int:
        """Number of chains per source."""
        if self.name == "mask-predict":
            return self.length_beam or 1
        return self.chains or 1

    @property
    def length_rule(self) -> str:
        """The rule that chooses target lengths, or the first ones where they are sampled."""
        if self.lengths == "sampled":
            return "searched"
        return "top" if self.name == "mask-predict" else self.lengths or "best"

    @property
    def _usual(self) -> _Defaults:
        """What is done where nothing else is asked for."""
        if self.name != "mh":
            # Forced epochs would lose what chains start from.
            return replace(_PAPER, force_accept=0) if self.from_drafts else _PAPER
        if self.lengths == "sampled":
            return SAMPLED
        return SEARCHED if self.lengths == "searched" or self.from_drafts else _PAPER

    @property
    def chosen_moves(self) -> Moves:
        """The moves; methods other than `mh` have single sites or blocks."""
        usual = _BLOCKS if self._blocks else self._usual.moves
        return usual if self.moves is None else self.moves

    @property
    def _blocks(self) -> bool:
        return self.name.startswith("block-")

    @property
    def _moves(self) -> tuple[Move, ...]:
        return parse_moves(self.chosen_moves)[0]

    @property
    def from_drafts(self) -> bool:
        """Whether chains start from translations."""
        return self.start in (AUTOREGRESSIVE, DRAFTS)

    @property
    def needs_autoregressive(self) -> bool:
        """Whether the autoregressive model writes translations."""
        return self.name == "ar" or self.start == AUTOREGRESSIVE

    @property
    def first_state(self) -> str:
        """How the blanks that chains start from are filled; drafts have none."""
        if self.name in ("greedy", "mask-predict") or self.from_drafts:
            return "masked"
        return self.start or self._usual.start

    @property
    def sweeps(self) -> int:
        """Number of epochs."""
        if self.name == "greedy":
            return 1
        if self.name == "mask-predict":
            return self.iterations or 10
        return self.epochs or self._usual.epochs

    @property
    def target(self) -> str:
        """The energy that is sampled, or that compares chains if none is sampled."""
        return self.energy or ("norm" if self.name == "mask-predict" else self._usual.energy)

    @property
    def compares_lengths(self) -> bool:
        """Whether the target weighs lengths, so that it compares translations of any length."""
        return any(isinstance(part, _COMPARING) for _, part in parse_energy(self.target).parts)

    def kernel(self, loading: Loading | None = None) -> Kernel:
        """Return the kernel of the method; `loading` says where its energy loads models."""
        if self.name in ("greedy", "mask-predict"):
            return named_kernel("mask-predict", iterations=self.sweeps)
        conditional = MaskedConditional(0.8 if self.temperature is None else self.temperature)
        moves, weights, _ = parse_moves(self.chosen_moves, conditional)
        name = self.name.removeprefix("block-")
        energy, early = parse_energy(self.target, loading=loading), self.delayed
        # Blocks, and energies of groups, have the usual early tests.
        if early is None and self.name == "mh" and energy.needs_passes and energy.groups is None:
            early = self._usual.delayed
        if early is None:
            return named_kernel(name, energy, moves, weights)
        return named_kernel(name, energy, moves, weights, delayed=parse_delayed(early))

    def schedule(self) -> Schedule:
        """Return the schedule of the method."""
        _, _, block = parse_moves(self.chosen_moves)
        if "target_temperature" not in METHODS[self.name]:
            return Schedule(epochs=self.sweeps, block=block)
        usual, heat = self._usual, self.target_temperature
        forced = usual.force_accept if self.force_accept is None else self.force_accept
        return Schedule(
            epochs=self.sweeps,
            target_temperature=LinearSchedule(heat, 0.0, heat)
            if isinstance(heat, int | float)
            else heat or usual.target_temperature,
            block=block,
            force_accept=min(forced, self.sweeps),
        )


def energy_per_token(sample: Sample, energy: str) -> float:
    """Return an energy per token, to compare lengths: raw, norm or a sum of these."""
    logit = torch.tensor(-sample.energy_raw, dtype=torch.float64)
    value = parse_energy(energy).of_scores(logit, logit + sample.energy_norm)
    return float(value) / len(sample.ids)


def lowest(samples: Sequence[Sample], energy: str) -> Sample:
    """Return the sample with the lowest energy per token; the first in case of ties."""
    return min(samples, key=lambda sample: energy_per_token(sample, energy))


def lowest_target(samples: Sequence[Sample]) -> Sample:
    """Return the sample with the lowest energy of the target; the first in case of ties.

    Epochs that accept everything have no target, and are left out.
    """
    known = [one for one in samples if not math.isnan(one.energies["target"])]
    return min(known or samples, key=lambda sample: sample.energies["target"])


def least_risk(samples: Sequence[Sample]) -> Sample:
    """Return the sample of minimum Bayes risk."""
    return samples[most_alike([sample.text for sample in samples])]


# The options that a method has.
OPTIONS = tuple(one.name for one in fields(TranslationMethod) if one.name != "name")


def method_of(asked: Arguments) -> TranslationMethod:
    """Return the method that the arguments of `maskov.translate` mean.

    With sampled lengths and an autoregressive model, chains start from its translation and weigh by
    it, unless another energy is given: by the masked model's own energies sampled lengths translate
    worse than mask-predict (experiments/LOG.md).
    """
    chosen = {name: getattr(asked, name) for name in OPTIONS}
    named = asked.autoregressive is not None or asked.pair is not None
    weighs = asked.method == "mh" and asked.lengths == "sampled" and asked.energy is None and named
    if weighs:
        chosen["energy"] = "norm+0.5*autoregressive"
        chosen["start"] = asked.start or AUTOREGRESSIVE
    drafted = asked.drafts is not None
    refuse(
        (
            drafted and asked.start is not None,
            "chains start from --drafts or from --start, not both.",
        ),
        (
            drafted and "start" not in METHODS.get(asked.method, {"start"}),
            f"the method '{asked.method}' does not use --drafts: drop it.",
        ),
        (
            asked.start == DRAFTS,
            "give the drafts, a file of translations: --drafts FILE.",
        ),
    )
    if drafted:
        chosen["start"] = DRAFTS
    if chosen["energy"] is not None and "energy" in METHODS.get(asked.method, ()):
        chosen["energy"] = _named_energy(chosen["energy"], asked, weighs)
    if asked.method == "mask-predict" and asked.length_beam is None:
        chosen["length_beam"] = DEFAULT_LENGTHS
    return TranslationMethod(asked.method, **chosen)


def _named_energy(text: str, asked: Arguments, weighs: bool) -> str:
    """Return the energy with the full names of its models, so that a run can be resumed."""
    causal = None
    if any(name == "autoregressive" for _, name in weighted_terms(text)):
        try:
            causal = named_model(asked.autoregressive, asked.pair, "autoregressive")
        except ModelError as error:
            if not weighs:
                raise
            raise ModelError(
                f"--lengths sampled weighs translations by the autoregressive model of "
                f"'{asked.pair}', which is not here: name one with --autoregressive, or use "
                "--energy norm+0.5*predicted_length."
            ) from error
    return str(parse_energy(text, causal, Loading(find=findable)))


def named_model(name: str | Path | None, pair: str | None, kind: str) -> str:
    """Return the name of a model, given directly or by its languages."""
    if name is not None:
        return str(name)
    if pair is None:
        raise InputError("give the languages, such as --pair de-en, or --model.")
    return model_for(pair, kind)
