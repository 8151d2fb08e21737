"""What experiments work with: models loaded once, test sets, the device, and whoever says stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from recipes.translation.fairseq import convert_once

import maskov
from experiments.settings import Setting
from maskov.errors import InputError
from maskov.models import DEFAULT_JUDGE, DEFAULT_MODEL, choose_device, device_name
from maskov.models.conditional.model import ConditionalModel
from maskov.models.registry import folder_of, model_for
from maskov.translation.autoregressive import AutoregressiveTranslator

PACKED = Path(__file__).parent / "data"
# The paper's checkpoints: what each is for, its folder in --checkpoints, files that must be there.
CHECKPOINTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "base": ("bert-base-uncased", ("config.json",)),
    "large": ("bert-large-uncased", ("config.json",)),
    "judge": ("gpt2-xl", ("config.json",)),
    "de-en": ("mask-predict-de-en", ("checkpoint_best.pt", "dict.en.txt")),
    "ro-en": ("mask-predict-ro-en", ("checkpoint_best.pt", "dict.en.txt")),
}


@dataclass
class Workshop:
    """Models, data and settings of one call; models are loaded when first asked for.

    `models` names what to use for a role: base, large, judge, de-en, ro-en, twin-de-en, twin-ro-en.
    """

    setting: Setting
    out: Path
    data: Path | None = None
    device: str = "auto"
    models: dict[str, str] = field(default_factory=dict)
    checkpoints: Path | None = None
    ratings: Path | None = None
    keep_runs: bool = False
    stop: Callable[[], bool] | None = None

    @cached_property
    def where(self) -> torch.device:
        """The device."""
        return choose_device(self.device)

    @property
    def machine(self) -> str:
        """The device in words."""
        return device_name(self.where)

    @property
    def precision(self) -> str:
        """The precision of masked passes."""
        return self.setting.precision if self.where.type == "cuda" else "float32"

    # Models.

    def named(self, role: str) -> str:
        """Return what to load for a role, or say what is missing."""
        if role in self.models:
            return self.models[role]
        if self.checkpoints is not None and role in CHECKPOINTS:
            return str(self._checkpoint(role))
        if role == "base":
            return DEFAULT_MODEL
        if role == "judge" and DEFAULT_JUDGE is not None:
            return DEFAULT_JUDGE
        if role.startswith("twin-"):
            return model_for(role.removeprefix("twin-"), "twin")
        if "-" in role:
            return model_for(role, "translation")
        raise InputError(f"there is no model for '{role}': give --checkpoints with it.")

    def masked(self, role: str = "base") -> maskov.MaskedModel:
        """Return a masked model, conditional for a pair of languages."""
        if role not in self._loaded:
            name = self.named(role)
            model = maskov.load(name, self.where, self.precision)
            if "-" in role and not isinstance(model, ConditionalModel):
                raise InputError(f"'{name}' reads no source: give a translation model for {role}.")
            self._loaded[role] = model
        return self._loaded[role]

    def judge(self) -> maskov.Autoregressive:
        """Return the causal model that judges texts."""
        if self._judge is None:
            self._judge = maskov.Autoregressive(self.named("judge"), self.where)
        return self._judge

    def twin(self, pair: str) -> AutoregressiveTranslator:
        """Return the autoregressive model of a pair of languages."""
        if pair not in self._twins:
            name = self.named(f"twin-{pair}")
            self._twins[pair] = AutoregressiveTranslator.load(
                folder_of(name) or Path(name), self.where, name
            )
        return self._twins[pair]

    def fingerprint(self, role: str) -> str:
        """Return the hash of the weights that a role stands for."""
        if role not in self._fingerprints:
            if role == "judge":
                ((_, found),) = self.judge().models().items()
            elif role.startswith("twin-"):
                found = str(self.twin(role.removeprefix("twin-")).fingerprint())
            else:
                found = self.masked(role).fingerprint()
            self._fingerprints[role] = found
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

    # Data.

    def pairs(self, name: str) -> tuple[list[str], list[str]]:
        """Read a test set: sources and references."""
        languages = name.rsplit(".", 1)[-1]
        root = PACKED if name.startswith("quick.") else self.data
        if root is None:
            raise InputError(f"the test set '{name}' is needed: give its folder with --data.")
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
        # An empty line on either side is no sentence pair.
        kept = [(a, b) for a, b in zip(*sides, strict=True) if a.strip() and b.strip()]
        return [a for a, _ in kept], [b for _, b in kept]

    def __post_init__(self) -> None:
        self._loaded: dict[str, maskov.MaskedModel] = {}
        self._judge: maskov.Autoregressive | None = None
        self._twins: dict[str, AutoregressiveTranslator] = {}
        self._fingerprints: dict[str, str] = {}
        self._checkpoints: dict[str, Path] = {}


def called(name: str, model: Path) -> str:
    """Return the path of a model under another name, which is what results call it by.

    A training leaves its model in a folder `model`, which would say little.
    """
    named = model.with_name(name)
    if not named.exists():
        named.symlink_to(model.name)
    return str(named)


def pair_of(name: str) -> str:
    """Return the pair of languages of a test set, such as de-en."""
    languages = name.rsplit(".", 1)[-1]
    return f"{languages[:2]}-{languages[2:]}"


def _checkpoint(root: Path, role: str) -> Path:
    folder, files = CHECKPOINTS[role]
    for file in ("", *files):
        if not (root / folder / file).exists():
            raise InputError(
                f"'{root / folder / file}' is missing: --checkpoints has a folder '{folder}' with "
                f"{', '.join(files)} and the weights beside it."
            )
    return root / folder
