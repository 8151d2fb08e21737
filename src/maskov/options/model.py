"""Options for which model is loaded, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from maskov.config import ModelSource
from maskov.options.option import FIRST, SMOOTHING, option
from maskov.shipped import default_model, is_name

if TYPE_CHECKING:
    from maskov.models import MaskedModel


_MODEL = "Advanced: model"


@dataclass(frozen=True)
class ModelOptions:
    """The options of the masked model."""

    model: Annotated[str, option("--model", "built-in name, folder or hub name", FIRST, "-m")] = (
        default_model()
    )
    tokenizer: Annotated[
        str | None,
        option("--tokenizer", "folder, hub name or vocab.txt, if not the model's", _MODEL),
    ] = None
    device: Annotated[str, option("--device", "auto, cpu, cuda, cuda:1 ...", _MODEL)] = "auto"
    precision: Annotated[
        str, option("--precision", "float32, float64, or coarser: tf32, bfloat16", _MODEL)
    ] = "float32"
    trust_remote_code: Annotated[
        bool, option("--trust-remote-code", "run code that comes with the model", _MODEL)
    ] = False
    prefix: Annotated[
        str, option("--prefix", "text that the model reads before every sequence", _MODEL)
    ] = ""
    remove_smoothing: Annotated[
        float,
        option("--remove-smoothing", SMOOTHING, _MODEL),
    ] = 0.0
    extra_letters: Annotated[
        str,
        option(
            "--extra-letters",
            "letters that a protein model may propose besides the 20 amino acids: XU",
            _MODEL,
        ),
    ] = ""

    def source(self) -> ModelSource:
        """Return how to load the model again."""
        return ModelSource(
            findable(self.model),
            None if self.tokenizer is None else findable(self.tokenizer),
            self.trust_remote_code,
            self.prefix,
            self.remove_smoothing,
            self.extra_letters,
        )

    def load_model(self) -> MaskedModel:
        """Load the masked model, called as the user calls it."""
        from maskov.models import load

        return load(
            self.model,
            self.device,
            self.precision,
            tokenizer=self.tokenizer,
            trust_remote_code=self.trust_remote_code,
            prefix=self.prefix,
            remove_smoothing=self.remove_smoothing,
            extra_letters=self.extra_letters,
        )


def findable(name: str) -> str:
    """Return the full path of what is on disk, so that a run can be resumed from anywhere."""
    if not is_name(name) and Path(name).exists():
        return str(Path(name).resolve())
    return name
