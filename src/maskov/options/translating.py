"""The options of `translate`, and the models and the method that they mean."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from maskov.config import ModelSource
from maskov.errors import InputError, ModelError
from maskov.options.model import findable
from maskov.options.option import FIRST, SMOOTHING, option
from maskov.options.workers import WorkerOptions
from maskov.shipped import model_for

if TYPE_CHECKING:
    from maskov.models.conditional.model import ConditionalModel
    from maskov.translation.autoregressive import AutoregressiveTranslator
    from maskov.translation.methods import TranslationMethod

_MODEL = "Advanced: model"
METHOD = "Advanced: method"
_RUN = "Advanced: run"
_METHODS = "greedy, mask-predict, gibbs, block-gibbs, mh, block-mh or ar"


@dataclass(frozen=True)
class TranslatingOptions(WorkerOptions):
    """The options of `translate`."""

    pair: Annotated[str | None, option("--pair", "languages, such as de-en or ro-en", FIRST)] = None
    model: Annotated[str | None, option("--model", "masked model: name or folder", FIRST, "-m")] = (
        None
    )
    twin: Annotated[
        str | None,
        option(
            "--twin",
            "autoregressive model, for --method ar, --energy autoregressive or --start "
            "autoregressive",
            _MODEL,
        ),
    ] = None
    device: Annotated[str, option("--device", "auto, cpu, cuda, cuda:1 ...", _MODEL)] = "auto"
    precision: Annotated[
        str, option("--precision", "float32, float64, or coarser: tf32, bfloat16", _MODEL)
    ] = "float32"
    remove_smoothing: Annotated[
        float,
        option("--remove-smoothing", SMOOTHING, _MODEL),
    ] = 0.0

    method: Annotated[str, option("--method", _METHODS, FIRST)] = "mask-predict"
    energy: Annotated[
        str | None,
        option(
            "--energy",
            "target of mh: raw (default), norm, or a sum: norm+0.5*autoregressive",
            FIRST,
            "-e",
        ),
    ] = None
    iterations: Annotated[
        int | None, option("--iterations", "iterations of mask-predict (default: 10)", METHOD)
    ] = None
    length_beam: Annotated[
        int | None, option("--length-beam", "lengths tried by mask-predict (default: 5)", FIRST)
    ] = None
    epochs: Annotated[
        int | None, option("--epochs", "sweeps over the target (default: 33)", METHOD, "-n")
    ] = None
    moves: Annotated[
        Any,
        option(
            "--moves",
            "site, span, insert-delete or resize; several with weights: span:2,resize:1 "
            "(default: site)",
            METHOD,
        ),
    ] = None
    span: Annotated[
        str | tuple[int, int] | None,
        option("--span", "positions of a span: 2, or a range such as 1:3 (default: 1:3)", METHOD),
    ] = None
    delayed: Annotated[
        str | tuple[int, ...] | None,
        option(
            "--delayed",
            "positions next to the change that an early test scores: 2, or 1,2,4 for three tests, "
            "or off (default: 1,3,9)",
            METHOD,
        ),
    ] = None
    start: Annotated[
        str | None,
        option(
            "--start",
            "masked, greedy (one pass), mask-predict, or autoregressive: the translation of --twin "
            "(default: greedy)",
            METHOD,
        ),
    ] = None
    temperature: Annotated[
        float | None, option("--temperature", "temperature of the proposal (default: 0.8)", METHOD)
    ] = None
    target_temperature: Annotated[
        float | None, option("--target-temperature", "initial T in p ∝ exp(-E/T)", METHOD)
    ] = None
    anneal: Annotated[
        float | None, option("--anneal", "decrease of T per epoch (default: 0.02)", METHOD)
    ] = None
    target_floor: Annotated[
        float | None, option("--target-floor", "lowest T (default: 0.01)", METHOD)
    ] = None
    force_accept: Annotated[
        int | None,
        option("--force-accept", "first epochs that accept everything (default: 8)", METHOD),
    ] = None
    block: Annotated[
        int | None, option("--block", "positions masked together (default: 4)", METHOD)
    ] = None
    block_anneal: Annotated[
        float | None,
        option("--block-anneal", "decrease of the block size (default: 0.2)", METHOD),
    ] = None
    chains: Annotated[
        int | None, option("--chains", "chains per source (default: 1)", FIRST, "-c")
    ] = None
    lengths: Annotated[
        str | None,
        option(
            "--lengths",
            "lengths of the chains: best, top, drawn, searched (best of five), or sampled, which "
            "continues from the translation of --twin, or of the pair's, and weighs by it",
            METHOD,
        ),
    ] = None
    pick: Annotated[
        str | None,
        option("--pick", "last sample, lowest energy, or mbr over the chains", METHOD),
    ] = None
    beam: Annotated[
        int | None, option("--beam", "beam of ar; 1 is greedy (default: 5)", METHOD)
    ] = None
    length_power: Annotated[
        float | None,
        option("--length-power", "x in ar's log p / length^x (default: 1)", METHOD),
    ] = None

    every_chain: Annotated[
        bool, option("--every-chain", "print all chains instead of one", _RUN)
    ] = False
    seed: Annotated[int, option("--seed", "random seed", _RUN, "-s")] = 0
    out: Annotated[Path | None, option("--out", "run folder to write", FIRST, "-o")] = None
    token_budget: Annotated[
        int | None, option("--token-budget", "tokens per model call (default: automatic)", _RUN)
    ] = None
    resident: Annotated[
        int | None,
        option("--resident", "maximum chains per device batch (default: automatic)", _RUN),
    ] = None
    threads: Annotated[
        int | None,
        option("--threads", "threads of each process on a CPU (default: 1)", _RUN),
    ] = None

    def build_method(self, drafts: bool = False) -> TranslationMethod:
        """Return the method, which may start from drafts; options it does not use are refused."""
        from maskov.translation.methods import (
            AUTOREGRESSIVE,
            DEFAULT_LENGTHS,
            DRAFTS,
            METHODS,
            TranslationMethod,
        )

        known = {field.name for field in fields(TranslationMethod)} - {"name"}
        chosen = {name: getattr(self, name) for name in known}
        if self._weighs_by_twin and self.start is None:
            chosen["start"] = AUTOREGRESSIVE
        if drafts:
            if self.start is not None:
                raise InputError("chains start from --drafts or from --start, not both.")
            if "start" not in METHODS.get(self.method, {"start"}):
                raise InputError(f"the method '{self.method}' does not use --drafts: drop it.")
            chosen["start"] = DRAFTS
        elif self.start == DRAFTS:
            raise InputError("give the drafts, a file of translations: --drafts FILE.")
        energy = self._energy
        if energy is not None and "energy" in METHODS.get(self.method, ()):
            chosen["energy"] = self._named_energy(energy)
        if self.method == "mask-predict" and self.length_beam is None:
            chosen["length_beam"] = DEFAULT_LENGTHS
        return TranslationMethod(self.method, **chosen)

    def _named_energy(self, text: str) -> str:
        """Return the energy with the full names of its models, so that a run can be resumed."""
        from maskov.energies import parse_energy
        from maskov.energies.networks import Loading

        causal = self._twin_name() if self._names_twin else None
        return str(parse_energy(text, causal, Loading(find=findable)))

    @property
    def _weighs_by_twin(self) -> bool:
        """Whether lengths are sampled, no energy is asked for and a twin is named.

        By the masked model's own energies sampled lengths translate worse than mask-predict
        (experiments/LOG.md).
        """
        named = self.twin is not None or self.pair is not None
        return self.method == "mh" and self.lengths == "sampled" and self.energy is None and named

    @property
    def _energy(self) -> str | None:
        """The energy that was asked for, or that of sampled lengths."""
        return "norm+0.5*autoregressive" if self._weighs_by_twin else self.energy

    @property
    def _names_twin(self) -> bool:
        """Whether the energy has the autoregressive model without its name."""
        from maskov.energies.registry import weighted_terms

        terms = [] if self._energy is None else weighted_terms(self._energy)
        return any(name == "autoregressive" for _, name in terms)

    def _twin_name(self) -> str:
        """Return the name of the autoregressive model, given directly or by its languages."""
        try:
            return _named(self.twin, self.pair, "twin")
        except ModelError as error:
            if not self._weighs_by_twin:
                raise
            raise ModelError(
                f"--lengths sampled weighs translations by the autoregressive model of "
                f"'{self.pair}', which is not here: name one with --twin, or avoid it with "
                "--energy norm+0.5*predicted_length."
            ) from error

    def check_used(self) -> None:
        """Refuse options of the run that the method does not use."""
        if self.method == "ar":
            if not self.build_workers(self.threads).here:
                raise InputError("the method 'ar' runs no chains: drop --workers and --engine.")
            unused = ["out", "token_budget", "resident", "threads"]
        else:
            used = self._names_twin or self.start == "autoregressive"
            unused = [] if used else ["twin"]
        for name in unused:
            if getattr(self, name) is not None:
                flag = name.replace("_", "-")
                raise InputError(f"the method '{self.method}' makes no use of --{flag}: drop it.")
        if self.token_budget is not None and self.token_budget < 1:
            raise InputError(f"--token-budget must be at least 1, not {self.token_budget}.")

    @property
    def model_name(self) -> str:
        """The name of the masked model, given directly or by its languages."""
        return _named(self.model, self.pair, "translation")

    def source(self) -> ModelSource:
        """Return how to load the masked model again."""
        return ModelSource(findable(self.model_name), remove_smoothing=self.remove_smoothing)

    def load_model(self) -> ConditionalModel:
        """Load the masked model."""
        from maskov.models import load
        from maskov.models.conditional.model import ConditionalModel

        model = load(
            self.model_name,
            self.device,
            self.precision,
            remove_smoothing=self.remove_smoothing,
        )
        if not isinstance(model, ConditionalModel):
            raise InputError(f"'{self.model_name}' is not a translation model: it has no source.")
        return model

    def load_twin(self) -> AutoregressiveTranslator:
        """Load the autoregressive model."""
        from maskov.models import choose_device
        from maskov.models.checkpoint import translation_folder
        from maskov.translation.autoregressive import AutoregressiveTranslator

        name = self._twin_name()
        folder = translation_folder(name, download=True) or Path(name)
        return AutoregressiveTranslator.load(folder, choose_device(self.device), name)


def _named(name: str | None, pair: str | None, kind: str) -> str:
    """Return the name of the model, given directly or by its languages."""
    if name is not None:
        return name
    if pair is None:
        raise InputError("give the languages, such as --pair de-en, or --model.")
    return model_for(pair, kind)
