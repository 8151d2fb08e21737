"""The models that maskov knows by name: shipped folders, two built in code, and packaged ones.

A shipped model is a folder with config.json, weights, a tokenizer, a model card and a description,
`about.json`. Small ones are part of the package; translation models are in the repository's
`models/`, or in the folder that MASKOV_MODELS names. These names take precedence over folders in
the working directory; `./NAME` means the folder. This module imports nothing heavy: the help of the
command line names the default model.
"""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from maskov.errors import ModelError, refuse, refusing, required

ROOT = Path(__file__).parent / "models" / "pretrained"
REPOSITORY = Path(__file__).parents[2] / "models"
KINDS = ("masked", "causal", "classifier", "translation", "autoregressive")


@dataclass(frozen=True)
class Shipped:
    """The description of a model in its `about.json`; `quality` maps measures to values.

    `pairs` are the language pairs of a translation model, such as de-en. The kind `autoregressive`
    is the counterpart of a masked translation model.
    """

    name: str
    kind: str
    summary: str
    parameters: int
    bytes: int
    training_data: str
    licence: str
    quality: dict[str, float] = field(default_factory=dict)
    default: bool = False
    pairs: tuple[str, ...] = ()


BUILT_IN = (
    Shipped(
        name="untrained",
        kind="masked",
        summary="a tiny model with random weights; its sentences mean nothing",
        parameters=105_938,
        bytes=0,
        training_data="none",
        licence="Apache-2.0",
    ),
    Shipped(
        name="counterexample",
        kind="masked",
        summary="the paper's two tokens at two positions, with inconsistent conditionals",
        parameters=8,
        bytes=0,
        training_data="none",
        licence="Apache-2.0",
    ),
)

# Models whose weights are in packages of other people, which `models/builtin.py` reads.
PACKAGED = (
    Shipped(
        name="antiberty",
        kind="masked",
        summary="antibodies of several species (AntiBERTy, from the package antiberty)",
        parameters=25_759_769,
        bytes=0,
        training_data="558 million antibody sequences of OAS (Ruffolo et al. 2021)",
        licence="MIT",
    ),
    Shipped(
        name="sapiens-vh",
        kind="masked",
        summary="human heavy chains of antibodies (Sapiens, from the package sapiens)",
        parameters=572_210,
        bytes=0,
        training_data="human heavy chains of OAS (Prihoda et al. 2022)",
        licence="MIT",
    ),
    Shipped(
        name="sapiens-vl",
        kind="masked",
        summary="human light chains of antibodies (Sapiens, from the package sapiens)",
        parameters=570_162,
        bytes=0,
        training_data="human light chains of OAS (Prihoda et al. 2022)",
        licence="MIT",
    ),
)


@dataclass(frozen=True)
class Package:
    """Where a package of other people keeps a model."""

    name: str
    install: str
    weights: str
    vocabulary: str

    def folder(self) -> Path | None:
        """Return the folder of the package, if it has the weights, without importing it."""
        try:
            spec = importlib.util.find_spec(self.name)
        except (ImportError, ValueError, AttributeError):
            return None
        places = map(Path, (spec and spec.submodule_search_locations) or ())
        return next((place for place in places if (place / self.weights).is_file()), None)


PACKAGES = {
    "antiberty": Package(
        "antiberty",
        "pip install '.[antibody]'",
        "trained_models/AntiBERTy_md_smooth/pytorch_model.bin",
        "trained_models/vocab.txt",
    )
} | {
    f"sapiens-{chain}": Package(
        "sapiens",
        "pip install --no-deps sapiens==1.0.3",
        f"models/v1/checkpoint_{chain}.pt",
        "models/v1/dict.txt",
    )
    for chain in ("vh", "vl")
}


def listed() -> list[Shipped]:
    """Return every model that needs no download, the defaults marked."""
    defaults = (default_model(), default_judge())
    return [
        replace(model, default=model.name in defaults)
        for model in (*shipped(), *BUILT_IN, *installed())
    ]


def installed() -> list[Shipped]:
    """Return the models whose packages are there."""
    folders = ((model, PACKAGES[model.name].folder()) for model in PACKAGED)
    return [
        replace(model, bytes=(folder / PACKAGES[model.name].weights).stat().st_size)
        for model, folder in folders
        if folder is not None
    ]


def known() -> dict[str, Shipped]:
    """Return every model that has a name, by its name; these names mean no folder."""
    return {model.name: model for model in (*PACKAGED, *BUILT_IN, *shipped())}


def shipped() -> list[Shipped]:
    """Return the shipped models, sorted by name within each folder."""
    files = ((folder, (folder / "about.json").stat().st_mtime_ns) for folder in _folders().values())
    return [_read(folder, changed) for folder, changed in files]


def _folders() -> dict[str, Path]:
    """Return the folder of each shipped model; of two with one name the package's own counts."""
    found: dict[str, Path] = {}
    for root in (ROOT, Path(os.environ.get("MASKOV_MODELS") or REPOSITORY)):
        for file in sorted(root.glob("*/about.json")):
            found.setdefault(file.parent.name, file.parent)
    return found


def folder_of(name: str) -> Path | None:
    """Return the folder of a shipped model, or None."""
    return _folders().get(name)


def model_for(pair: str, kind: str) -> str:
    """Return the shipped model of a kind for a language pair."""
    models = [model for model in shipped() if model.kind == kind]
    pairs = sorted({one for model in models for one in model.pairs})
    refuse(
        (
            not pairs,
            "no translation model found: give --model, a folder or a hub name, or set "
            "MASKOV_MODELS to the models/ folder of a clone of the repository.",
        ),
        kind=ModelError,
    )
    return required(
        next((model.name for model in models if pair in model.pairs), None),
        f"no model translates '{pair}'; use one of {', '.join(pairs)}.",
        ModelError,
    )


def source_of(name: str, kind: str) -> str:
    """Return where to load a model of this kind from: a shipped model's folder, or `name`."""
    model = known().get(name)
    if model is not None and model.kind != kind:
        a = "an " if model.kind == "autoregressive" else "a "
        raise ModelError(
            f"'{name}' is {a}{model.kind} model, not a {kind} one; `maskov models` lists all "
            "models and their kinds."
        )
    return str(folder_of(name) or name)


def did_you_mean(name: str) -> str:
    """Return a question with the nearest name of a model, and a space; empty if none is near."""
    models = {one.lower(): one for one in known()}
    near = get_close_matches(name.lower(), models, 1, 0.75)
    return f"Did you mean '{models[near[0]]}'? " if near else ""


def default_model() -> str:
    """Return the masked model used by default."""
    return _default("masked") or "untrained"


def default_judge() -> str | None:
    """Return the causal model that judges texts by default, if one is shipped."""
    return _default("causal")


def _default(kind: str) -> str | None:
    return next((model.name for model in shipped() if model.default and model.kind == kind), None)


@cache
def _read(folder: Path, changed: int) -> Shipped:
    """Read a description, once for each time it `changed`; a bad one is a damaged installation."""
    with refusing(
        f"the shipped model '{folder.name}' is damaged (invalid about.json); install maskov again.",
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
        kind=ModelError,
    ):
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        model = Shipped(
            name=str(about["name"]),
            kind=str(about["kind"]),
            summary=str(about["summary"]),
            parameters=int(about["parameters"]),
            bytes=int(about["bytes"]),
            training_data=str(about["training_data"]),
            licence=str(about["licence"]),
            quality={str(what): float(value) for what, value in about["quality"].items()},
            default=bool(about.get("default", False)),
            pairs=tuple(str(pair) for pair in about.get("pairs", ())),
        )
        refuse(
            (
                model.name != folder.name
                or model.kind not in KINDS
                or not all(0 <= size < 2**60 for size in (model.parameters, model.bytes)),
                "impossible values",
            ),
            kind=ValueError,
        )
    return model
