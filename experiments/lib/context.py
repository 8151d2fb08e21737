"""What cells need to run: models (loaded once), test sets, the device and the stop callback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from recipes.translation.fairseq import convert_once

import maskov
from experiments.lib.settings import Setting
from maskov import models as maskov_models
from maskov.errors import InputError
from maskov.models.autoregressive import AutoregressiveTranslator
from maskov.models.checkpoint import weights_hash
from maskov.models.conditional import ConditionalModel
from maskov.shipped import folder_of, model_for


def model_weights_hash(model: Any) -> str:
    """Hash the full-precision weights, shape and vocabulary of a loaded model."""
    exact = getattr(model, "exact", None) or model
    return weights_hash(getattr(exact, "checkpoint", None) or exact.network, exact.tokenizer)


BUNDLED_DATA = Path(__file__).parents[1] / "data"
# The paper's checkpoints by role: folder in --checkpoints, and files that must be in it.
CHECKPOINTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "base": ("bert-base-uncased", ("config.json",)),
    "large": ("bert-large-uncased", ("config.json",)),
    "judge": ("gpt2-xl", ("config.json",)),
    "de-en": ("mask-predict-de-en", ("checkpoint_best.pt", "dict.en.txt")),
    "ro-en": ("mask-predict-ro-en", ("checkpoint_best.pt", "dict.en.txt")),
}


@dataclass
class Context:
    """Models, data and options of one call. Models are loaded on first use.

    `models` maps a role (base, large, judge, de-en, ro-en, twin-de-en, twin-ro-en) to a model name.
    `remove_smoothing` is the label smoothing that is removed from masked translation models.
    """

    setting: Setting
    out: Path
    data: Path | None = None
    device: str = "auto"
    models: dict[str, str] = field(default_factory=dict)
    checkpoints: Path | None = None
    ratings: tuple[Path, Path] | None = None
    keep_runs: bool = False
    stop: Callable[[], bool] | None = None
    remove_smoothing: float = 0.0

    def __post_init__(self) -> None:
        self._masked_models: dict[str, maskov.MaskedModel] = {}
        self._judge: maskov.Autoregressive | None = None
        self._checkpoints: dict[str, Path] = {}
        self._twins: dict[str, AutoregressiveTranslator] = {}
        self._fingerprints: dict[str, str] = {}

    @cached_property
    def torch_device(self) -> torch.device:
        """The device."""
        return maskov_models.choose_device(self.device)

    @property
    def device_name(self) -> str:
        """The device in words."""
        return maskov_models.device_name(self.torch_device)

    @property
    def precision(self) -> str:
        """The precision of masked passes."""
        return self.setting.precision if self.torch_device.type == "cuda" else "float32"

    def model_name(self, role: str) -> str:
        """Return the model to load for a role; raise if there is none."""
        if role in self.models:
            return self.models[role]
        if self.checkpoints is not None and role in CHECKPOINTS:
            return str(self._checkpoint(role))
        if role == "base":
            return maskov_models.DEFAULT_MODEL
        if role == "judge" and maskov_models.DEFAULT_JUDGE is not None:
            return maskov_models.DEFAULT_JUDGE
        if role.startswith("twin-"):
            return model_for(role.removeprefix("twin-"), "autoregressive")
        if "-" in role:
            return model_for(role, "translation")
        raise InputError(f"no model for '{role}': give --checkpoints.")

    def masked_model(self, role: str = "base") -> maskov.MaskedModel:
        """Return a masked model; for a language pair, a conditional one."""
        if role not in self._masked_models:
            name = self.model_name(role)
            model = maskov.load(
                name,
                self.torch_device,
                self.precision,
                remove_smoothing=self.smoothing_removed(role),
            )
            if "-" in role and not isinstance(model, ConditionalModel):
                raise InputError(f"'{name}' is not a translation model: give one for {role}.")
            self._masked_models[role] = model
        return self._masked_models[role]

    def smoothing_removed(self, role: str) -> float:
        """Return the label smoothing that is removed from the model of a role."""
        translates = "-" in role and not role.startswith("twin-")
        return self.remove_smoothing if translates else 0.0

    def judge(self) -> maskov.Autoregressive:
        """Return the causal model that computes perplexities."""
        if self._judge is None:
            self._judge = maskov.Autoregressive(self.model_name("judge"), self.torch_device)
        return self._judge

    def twin(self, pair: str) -> AutoregressiveTranslator:
        """Return the autoregressive translation model of a language pair."""
        if pair not in self._twins:
            name = self.model_name(f"twin-{pair}")
            self._twins[pair] = AutoregressiveTranslator.load(
                folder_of(name) or Path(name), self.torch_device, name
            )
        return self._twins[pair]

    def fingerprint(self, role: str) -> str:
        """Return the hash of a role's weights."""
        if role not in self._fingerprints:
            if role == "judge":
                self._fingerprints[role] = model_weights_hash(self.judge())
            else:
                twin = role.startswith("twin-")
                self._fingerprints[role] = model_weights_hash(
                    self.twin(role.removeprefix("twin-")) if twin else self.masked_model(role)
                )
        return self._fingerprints[role]

    def _checkpoint(self, role: str) -> Path:
        """Return the paper's checkpoint of a role; fairseq's are converted first, once."""
        if role not in self._checkpoints:
            assert self.checkpoints is not None
            folder = _checkpoint(self.checkpoints, role)
            if "-" in role:
                folder = convert_once(folder, self.out / "converted")
            self._checkpoints[role] = folder
        return self._checkpoints[role]

    def pairs(self, name: str) -> tuple[list[str], list[str]]:
        """Read the sources and references of a test set."""
        languages = name.rsplit(".", 1)[-1]
        root = BUNDLED_DATA if name.startswith("quick.") else self.data
        if root is None:
            raise InputError(f"test set '{name}' not found: give its folder with --data.")
        sides = []
        for language in (languages[:2], languages[2:]):
            file = root / f"{name}.{language}"
            try:
                text = file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise InputError(
                    f"cannot read the test set '{file.name}' in '{root}'; --data is a folder of "
                    "NAME.LANGUAGE files."
                ) from error
            sides.append(text.removesuffix("\n").split("\n"))
        if len(sides[0]) != len(sides[1]):
            raise InputError(f"the two sides of '{name}' have different numbers of lines.")
        # Skip pairs with an empty side.
        kept = [(a, b) for a, b in zip(*sides, strict=True) if a.strip() and b.strip()]
        return [a for a, _ in kept], [b for _, b in kept]


def pair_of(name: str) -> str:
    """Return the language pair of a test set, such as de-en."""
    languages = name.rsplit(".", 1)[-1]
    return f"{languages[:2]}-{languages[2:]}"


def _checkpoint(root: Path, role: str) -> Path:
    folder, files = CHECKPOINTS[role]
    for file in ("", *files):
        if not (root / folder / file).exists():
            raise InputError(
                f"'{root / folder / file}' is missing: --checkpoints needs a folder '{folder}' "
                f"with {', '.join(files)} and the weights."
            )
    return root / folder
