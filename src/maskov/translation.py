"""Translate texts, line by line: the methods, and how each is carried out.

A method combines a kernel, a schedule, a rule for lengths and a selection.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from maskov import api
from maskov.arguments import Arguments, arguments_of, workers_of
from maskov.config import LinearSchedule, Schedule
from maskov.energies import AutoregressiveTranslation, Norm, Raw, parse_energy
from maskov.energies.counting import PredictedLength
from maskov.energies.networks import Loading
from maskov.energies.registry import weighted_terms
from maskov.energies.stages import parse_delayed
from maskov.errors import InputError, ModelError, refuse, required
from maskov.evaluation import most_alike
from maskov.kernels import Kernel
from maskov.kernels.registry import Moves, named_kernel, parse_moves
from maskov.models.autoregressive import DEFAULT_BEAM, AutoregressiveTranslator
from maskov.models.checkpoint import translation_folder
from maskov.models.conditional import RULES, ConditionalModel
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional, Resize, Site
from maskov.options import findable
from maskov.plan import execute, plan
from maskov.runs import Run, Sample
from maskov.runs.coordinator import Listener
from maskov.runs.store import Store
from maskov.shipped import model_for
from maskov.starts import STARTS
from maskov.texts import read_text
from maskov.types import padded
from maskov.workers import Workers

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


_FALLING = LinearSchedule(1.0, 0.02, 0.01)


@dataclass(frozen=True)
class Settled:
    """The options of chains where none is left open; the defaults are those of the paper."""

    energy: str = "raw"
    moves: Moves = "site"
    delayed: str | int | Sequence[int] = "1,3,9"
    start: str = "greedy"
    epochs: int = 33
    temperature: float = 0.8
    target_temperature: float | LinearSchedule = _FALLING
    force_accept: int = 8
    chains: int = 1
    lengths: str = "best"


# Where nothing else is asked for.
_USUAL = {
    "greedy": Settled(start="masked", epochs=1),
    "mask-predict": Settled(energy="norm", start="masked", epochs=10, lengths="top"),
    "block-gibbs": Settled(moves=_BLOCKS),
    "block-mh": Settled(moves=_BLOCKS),
}
# With sampled lengths, of which this chooses the first. The weight was chosen on held-out pairs;
# the rest is a first guess (experiments/LOG.md).
SAMPLED = Settled(
    energy="norm+0.5*predicted_length",
    moves="span:2,insert-delete:1,resize:1",
    delayed="2",
    start="mask-predict",
    epochs=12,
    target_temperature=LinearSchedule(0.5, 0.04, 0.05),
    force_accept=0,
    lengths="searched",
)
# At the length of mask-predict's best candidate, or of a draft, which chains start from.
SEARCHED = replace(SAMPLED, energy="norm", moves="span", lengths="best")
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
        refuse(
            (
                self.name not in METHODS,
                f"unknown method '{self.name}'; use one of {', '.join(METHODS)}.",
            )
        )
        given = {name for name in OPTIONS if getattr(self, name) is not None}
        unused = sorted(given - METHODS[self.name])
        known = {"lengths": (*RULES, "sampled"), "start": _STARTS, "pick": PICKS}
        moves, _, _ = parse_moves(self.settled.moves)
        energy = parse_energy(self.settled.energy)
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
                self.name.startswith("block-") and not all(isinstance(one, Site) for one in moves),
                f"the method '{self.name}' moves sites: write --moves '{_BLOCKS}'.",
            ),
            (
                self.lengths == "sampled" and not any(isinstance(one, Resize) for one in moves),
                "--lengths sampled needs --method mh and moves that change the length: add "
                "insert-delete or resize to --moves.",
            ),
            (
                self.from_drafts and self.lengths not in (None, "sampled"),
                f"chains that start from a translation have its length: drop --lengths "
                f"{self.lengths}, or use --lengths sampled.",
            ),
            (
                self.pick == "mbr" and self.settled.chains < 3,
                "--pick mbr compares chains: give --chains 3 or more.",
            ),
            *(
                (
                    getattr(self, name) is not None and getattr(self, name) < 1,
                    f"{_flag(name)} must be at least 1, not {getattr(self, name)}.",
                )
                for name in ("iterations", "length_beam", "beam", "chains", "epochs")
            ),
            (
                self.length_power is not None and not math.isfinite(self.length_power),
                f"--length-power must be a number, not {self.length_power}.",
            ),
            (
                self.pick == "lowest"
                and not (
                    energy.needs_passes
                    and energy.groups is None
                    and all(isinstance(part, _COMPARING) for _, part in energy.others)
                ),
                "--pick lowest supports only sums of raw, norm, predicted_length and "
                "autoregressive translation models as --energy.",
            ),
        )
        if self.name != "ar":
            self.kernel()
            self.schedule()

    @property
    def settled(self) -> Settled:
        """What was asked of chains and, of all else, what is usual."""
        usual = _USUAL.get(self.name, Settled())
        if self.lengths == "sampled":
            usual = SAMPLED
        elif self.name == "mh" and (self.lengths == "searched" or self.from_drafts):
            usual = SEARCHED
        elif self.from_drafts:  # which forced epochs would lose
            usual = replace(usual, force_accept=0)
        asked = {option.name: getattr(self, option.name) for option in fields(Settled)}
        asked["epochs"] = self.epochs or self.iterations
        asked["chains"] = self.chains or self.length_beam
        if self.from_drafts:  # which have no blanks
            asked["start"] = "masked"
        if self.lengths == "sampled":
            del asked["lengths"]
        return replace(usual, **{name: it for name, it in asked.items() if it is not None})

    @property
    def from_drafts(self) -> bool:
        """Whether chains start from translations."""
        return self.start in (AUTOREGRESSIVE, DRAFTS)

    @property
    def needs_autoregressive(self) -> bool:
        """Whether the autoregressive model writes translations."""
        return self.name == "ar" or self.start == AUTOREGRESSIVE

    def kernel(self, loading: Loading | None = None) -> Kernel:
        """Return the kernel of the method; `loading` says where its energy loads models."""
        usual = self.settled
        if self.name in ("greedy", "mask-predict"):
            return named_kernel("mask-predict", iterations=usual.epochs)
        moves, weights, _ = parse_moves(usual.moves, MaskedConditional(usual.temperature))
        name = self.name.removeprefix("block-")
        energy, early = parse_energy(usual.energy, loading=loading), self.delayed
        # Blocks, and energies of groups, have the usual early tests.
        if early is None and self.name == "mh" and energy.needs_passes and energy.groups is None:
            early = usual.delayed
        options: dict[str, Any] = {} if early is None else {"delayed": parse_delayed(early)}
        return named_kernel(name, energy, moves, weights, **options)

    def schedule(self) -> Schedule:
        """Return the schedule of the method."""
        usual = self.settled
        _, _, block = parse_moves(usual.moves)
        if "target_temperature" not in METHODS[self.name]:
            return Schedule(epochs=usual.epochs, block=block)
        heat = usual.target_temperature
        return Schedule(
            epochs=usual.epochs,
            target_temperature=heat
            if isinstance(heat, LinearSchedule)
            else LinearSchedule(heat, 0.0, heat),
            block=block,
            force_accept=min(usual.force_accept, usual.epochs),
        )


def lowest(samples: Sequence[Sample], energy: str) -> Sample:
    """Return the sample with the lowest energy per token, raw, norm or a sum; the first of ties."""
    parsed = parse_energy(energy)

    def per_token(sample: Sample) -> float:
        logit = torch.tensor(-sample.energy_raw, dtype=torch.float64)
        return float(parsed.of_scores(logit, logit + sample.energy_norm)) / len(sample.ids)

    return min(samples, key=per_token)


def lowest_target(samples: Sequence[Sample]) -> Sample:
    """Return the sample with the lowest energy of the target; the first in case of ties.

    Epochs that accept everything have no target, and are left out.
    """
    known = [one for one in samples if not math.isnan(one.energies["target"])]
    return min(known or samples, key=lambda sample: sample.energies["target"])


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
    weighs = named and (asked.method, asked.lengths, asked.energy) == ("mh", "sampled", None)
    if weighs:
        chosen["energy"] = "norm+0.5*autoregressive"
        chosen["start"] = asked.start or AUTOREGRESSIVE
    if asked.drafts is not None:
        refuse(
            (asked.start is not None, "chains start from --drafts or from --start, not both."),
            (
                "start" not in METHODS.get(asked.method, {"start"}),
                f"the method '{asked.method}' does not use --drafts: drop it.",
            ),
        )
        chosen["start"] = DRAFTS
    refuse((asked.start == DRAFTS, "give the drafts, a file of translations: --drafts FILE."))
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
    lacking = "give the languages, such as --pair de-en, or --model."
    return model_for(required(pair, lacking), kind)


# How they are carried out.


@dataclass(frozen=True)
class Translation:
    """A translation of a source, with its energies under the masked model.

    `chain` counts the chains of one source. An empty line has an empty translation with energies 0.
    """

    source: str
    text: str
    energy_raw: float
    energy_norm: float
    chain: int

    def to_json(self) -> str:
        """Return the translation as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


@dataclass(frozen=True)
class Task:
    """Texts to translate: by which models and method, and the settings of the run."""

    asked: Arguments
    model: ConditionalModel
    method: TranslationMethod
    autoregressive: AutoregressiveTranslator | None
    settings: dict[str, Any]

    def translations(
        self, listener: Listener | None, stop: Callable[[], bool] | None
    ) -> list[Translation]:
        """Translate each text, in order: one of each, picked from its chains, or one of each chain.

        Empty lines stay empty.
        """
        method, texts, drafts, found = self.method, self.asked.texts, None, list[Translation]()
        lines = [line for line, text in enumerate(texts) if text.strip()]
        if lines:
            numbers = [line + 1 for line in lines]
            given = self.model.given([texts[line] for line in lines], numbers)
            if method.name == "ar":
                assert self.autoregressive is not None
                found = _autoregressive(given, self.autoregressive, method, numbers)
            else:
                if self.asked.drafts is not None:
                    drafts = [self.asked.drafts[line] for line in lines]
                    for number, draft in zip(numbers, drafts, strict=True):
                        read_text(given, draft, f"draft {number}")  # refused by its line
                elif self.autoregressive is not None and method.needs_autoregressive:
                    drafts = drafts_of(given, self.autoregressive, numbers)
                run = run_method(
                    given, method, drafts, listener=listener, stop=stop, **self.settings
                )
                found = translations_of(run, method, self.asked.every_chain)
        each, rest = len(found) // max(len(lines), 1), iter(found)
        return [
            translation
            for text in texts
            for translation in (
                islice(rest, each) if text.strip() else [Translation(text, "", 0.0, 0.0, 0)]
            )
        ]


def plan_translation(**given: Any) -> Task:
    """Return what to translate, and how, from the arguments of `maskov.translate`; or refuse."""
    asked = arguments_of(
        api.translate, given, ConditionalModel, AutoregressiveTranslator, TranslationMethod
    )
    refuse((asked.texts is None, "there is nothing to translate: give `texts`, a list."))
    if isinstance(asked.model, ConditionalModel):
        asked.refuse_both("a model that is loaded", "pair")
    method = asked.method
    if isinstance(method, TranslationMethod):
        asked.refuse_both("a TranslationMethod", *OPTIONS)
    else:
        method = method_of(asked)
    workers, drafts = workers_of(asked), asked.drafts
    _check_used(asked, method, workers)
    used = "method 'ar'" if method.name == "ar" else "start 'autoregressive'"
    refuse(
        (
            (drafts is not None) != (method.start == DRAFTS),
            "translations to start from are given as drafts, with the start 'drafts': both or "
            "none.",
        ),
        (
            drafts is not None and len(drafts) != len(asked.texts),
            f"there are {len(drafts or ())} drafts of {len(asked.texts)} lines: give one of each, "
            "an empty one of an empty line.",
        ),
        (
            method.needs_autoregressive and asked.autoregressive is None and asked.pair is None,
            f"the {used} needs an autoregressive model: give `autoregressive`.",
        ),
    )
    if asked.out is not None:
        Store.check_free(asked.out)
    if not isinstance(asked.model, ConditionalModel):
        asked.model = named_model(asked.model, asked.pair, "translation")
    given_model = asked.given_model()
    model = given_model.load(asked.precision)
    if not isinstance(model, ConditionalModel):
        raise InputError(f"'{model.name}' is not a translation model: it has no source.")
    writer = asked.autoregressive
    if method.needs_autoregressive and not isinstance(writer, AutoregressiveTranslator):
        name = named_model(writer, asked.pair, "autoregressive")
        folder = translation_folder(name, download=True) or Path(name)
        writer = AutoregressiveTranslator.load(folder, given_model.device, name)
    return Task(asked, model, method, writer, {
        "seed": asked.seed, "out": asked.out, "token_budget": asked.token_budget,
        "resident": asked.resident, "workers": workers, "source": given_model.source,
    })  # fmt: skip


def _check_used(asked: Arguments, method: TranslationMethod, workers: Workers) -> None:
    """Refuse options of the run that the method does not use."""
    why = f"the method '{method.name}' makes no use of {{}}: drop it."
    if method.name == "ar":
        refuse((not workers.here, "the method 'ar' runs no chains: drop --workers."))
        asked.refuse(why, "out", "token_budget", "resident", "threads")
    elif not isinstance(asked.autoregressive, AutoregressiveTranslator):
        parts = parse_energy(method.settled.energy).parts
        used = any(isinstance(part, AutoregressiveTranslation) for _, part in parts)
        if not used and not method.needs_autoregressive:
            asked.refuse(why, "autoregressive")


def drafts_of(
    given: ConditionalModel, writer: AutoregressiveTranslator, lines: Sequence[int] | None = None
) -> list[str]:
    """Return the autoregressive model's translation of each source, to start chains from.

    Where the masked model cannot read it (it is empty, or too long), mask-predict's takes its
    place.
    """
    assert given.sources is not None
    texts = given.sources.texts
    ids = writer.translate(texts, DEFAULT_BEAM, lines=lines)
    drafts = [writer.tokenizer.decode(line).strip() for line in ids]
    for row, draft in enumerate(drafts):
        try:
            read_text(given, draft, "draft")
        except InputError:
            drafts[row] = api.translate(given, [texts[row]], progress=False)[0].text
    return drafts


def run_method(
    given: ConditionalModel,
    method: TranslationMethod,
    drafts: Sequence[str] | None = None,
    listener: Listener | None = None,
    **settings: Any,
) -> Run:
    """Run the chains of a method over the sources of a model.

    A method that starts from translations needs `drafts`, one of each source.
    """
    planned = plan(
        model=given,
        kernel=method.kernel(Loading(given.device)),
        schedule=method.schedule(),
        chains=method.settled.chains,
        lengths=method.settled.lengths,
        start=method.settled.start,
        texts=drafts,
        thin=1 if method.pick == "lowest" else 0,
        trace="kept",
        **settings,
    )
    return execute(planned, listener, settings.get("stop"))


def translations_of(
    run: Run, method: TranslationMethod, every_chain: bool = False
) -> list[Translation]:
    """Return the translations of a run of non-empty sources, as many of each."""
    sources, target = run.manifest.inputs.sources or (), method.settled.energy
    compared = any(isinstance(part, _COMPARING) for _, part in parse_energy(target).parts)
    chains: list[list[Sample]] = [[] for _ in sources]
    for kept in run.samples:
        chains[kept.template].append(kept)
    found = []
    for source, samples in zip(sources, chains, strict=True):
        first = min(kept.chain for kept in samples)
        last = max(kept.epoch for kept in samples)
        ends = [kept for kept in samples if kept.epoch == last]
        if every_chain:
            chosen = ends
        elif method.pick == "lowest":
            chosen = [lowest_target(samples) if compared else lowest(samples, target)]
        elif method.pick == "mbr":
            chosen = [ends[most_alike([kept.text for kept in ends])]]
        else:  # of mask-predict, candidates of several lengths: the most probable per token
            chosen = [lowest(ends, "norm") if method.name == "mask-predict" else ends[0]]
        found += [
            Translation(source, one.text, one.energy_raw, one.energy_norm, one.chain - first)
            for one in chosen
        ]
    return found


def _autoregressive(
    given: ConditionalModel,
    writer: AutoregressiveTranslator,
    method: TranslationMethod,
    lines: Sequence[int],
) -> list[Translation]:
    """Translate with the autoregressive model, and score with the masked one."""
    assert given.sources is not None
    texts = given.sources.texts
    power = 1.0 if method.length_power is None else method.length_power
    ids = writer.translate(texts, method.beam or DEFAULT_BEAM, power, lines)
    translated = [writer.tokenizer.decode(line).strip() for line in ids]
    raw, norm = energies_of(given, translated)
    return [Translation(*row, chain=0) for row in zip(texts, translated, raw, norm, strict=True)]


def energies_of(given: ConditionalModel, texts: Sequence[str]) -> tuple[list[float], list[float]]:
    """Return E_raw and E_norm of one translation of each source; 0 for empty ones."""
    ids = [given.encode(text)[: given.max_length] for text in texts]
    scorer, whole = Scorer(given), padded(ids, given.mask_id, given.device)
    whole = replace(whole, source=torch.arange(len(ids), device=given.device))
    whole = replace(whole, pass_cache=scorer.cache(whole))
    scorer.check()
    both = (energy(given, whole).tolist() for energy in (Raw(), Norm()))
    raw, norm = ([e if line else 0.0 for e, line in zip(each, ids, strict=True)] for each in both)
    return raw, norm
