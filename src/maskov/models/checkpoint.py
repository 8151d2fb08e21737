"""Load checkpoints safely, with one-sentence errors, and fingerprint what was loaded."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from maskov.encoders import Encoder, LMHead
from maskov.encoders.families import (
    FAMILIES,
    UNSUPPORTED,
    Weights,
    describe,
    describe_head,
    rule_out,
)
from maskov.errors import MaskovError, ModelError, refuse, required
from maskov.models.scorer import is_out_of_memory
from maskov.models.tokens import (
    PlainTokenizer,
    import_quietly,
    read_json,
    silence_transformers,
)
from maskov.shipped import did_you_mean, folder_of
from maskov.types import Bool, Tensor

# What config.json says of our own translation models, and what they need of a repository on the
# hub: no code and no pickles.
ARCHITECTURE = "maskov-translation"
_FILES = ["*.json", "*.safetensors", "*.txt"]
# The class of transformers that reads masked LMs, and those for which a masked diffusion model may
# have its own code.
MASKED = "AutoModelForMaskedLM"
DIFFUSION = "masked-diffusion"
_DIFFUSION = (MASKED, "AutoModel", "AutoModelForCausalLM")
# Far more than any network has.
_MOST_LAYERS = 2**10
# Bytes; matrix products of unaligned arrays may round differently.
ALIGNMENT = 64
# Loading changes state of the whole process: modules that transformers imports when they are first
# named, the default type of numbers, and the random numbers that weights start from. Two threads
# that load at once fail, or get other weights. The lock is reentrant, because loading one model may
# load another.
LOADING = RLock()
# What errors of transformers and torch contain, and what they mean.
_REASONS = {
    "trust_remote_code": "the model '{name}' has its own code, which was not run; if you trust it, "
    "say so with --trust-remote-code.",
    "Weights only load failed": "the weights of '{name}' are a pickle with more than tensors, "
    "which may be code: it was not run; give the same model as safetensors.",
    "ignore_mismatched_sizes": "the model '{name}' is damaged: its weights do not fit its "
    "config.json.",
    "Unrecognized configuration class": "'{name}' is not a {what} that transformers "
    "knows.{instead}",
}
# What works of other classes than the one named.
_INSTEAD = {
    "masked language model": " What works: masked diffusion models as "
    "'NAME(architecture=masked-diffusion)', networks by maskov.load(network, tokenizer=...), "
    "causal models as energies 'autoregressive(NAME)'."
}
# Configuration entries that do not affect the network's shape.
_NOT_SHAPE = {"_name_or_path", "transformers_version", "architectures", "dtype"}
# What the last call of a tokenizer left in it; every call sets it again.
_LEFT_BY_CALLS = {"truncation", "padding"}


@dataclass(frozen=True)
class MaskedCheckpoint:
    """The settings and weights of a masked LM of a family that our encoder knows.

    It stands for a Hugging Face network, which takes seconds to import, where nobody runs that.
    """

    config: dict[str, Any]
    weights: dict[str, Tensor]
    encoder: Encoder
    head: LMHead

    @classmethod
    def of(cls, config: dict[str, Any], weights: dict[str, Tensor]) -> MaskedCheckpoint:
        """Keep the weights that the family uses; raise one of `UNSUPPORTED` if it is not known."""
        asked = Weights(weights)
        encoder, head = describe(config, asked), describe_head(config, asked)
        return cls(config, asked.used, encoder, head)

    @classmethod
    def read(cls, folder: Path, dtype: torch.dtype) -> MaskedCheckpoint | None:
        """Read a folder that transformers saved; None if it should read the folder itself.

        Files of earlier versions have fewer settings than a network and its fingerprint.
        """
        config = read_json(folder / "config.json")
        try:
            rule_out(not config["transformers_version"].startswith("5."), "an earlier version")
            rule_out(config.keys() & {"auto_map", "quantization_config"}, "an unusual network")
            stored = load_file(folder / "model.safetensors")
            rule_out(not all(map(Tensor.is_floating_point, stored.values())), "other numbers")
            weights = {name: value.to(dtype, copy=True) for name, value in stored.items()}
            ties = FAMILIES[config["model_type"]].tied() if config["tie_word_embeddings"] else {}
            for name, source in ties.items():
                rule_out(
                    not torch.equal(weights.get(name, weights[source]), weights[source]),
                    "weights that are not tied",
                )
                weights[name] = weights[source]
            return cls.of(config, weights)
        except (*UNSUPPORTED, OSError, SafetensorError):
            return None

    def to(self, device: torch.device | str) -> MaskedCheckpoint:
        """Return this with its weights on a device; tied ones stay one tensor."""
        moved = {id(value): value.to(device) for value in self.weights.values()}
        return self.of(self.config, {name: moved[id(one)] for name, one in self.weights.items()})

    def __reduce__(self) -> Any:
        # The encoder holds copies of weights.
        return MaskedCheckpoint.of, (self.config, self.weights)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the weights by name."""
        return self.weights

    def network(self) -> Any:
        """Build the Hugging Face network of these weights, which it shares."""
        transformers, weight = import_quietly(), self.head.weight
        config = transformers.AutoConfig.for_model(**self.config)
        with silence_transformers(), torch.random.fork_rng(devices=[]):
            network = transformers.AutoModelForMaskedLM.from_config(config, dtype=weight.dtype)
        for name, parameter in network.named_parameters():
            parameter.data = self.weights[name]
        return network.to(weight.device).eval().requires_grad_(False)


def load_checkpoint(
    auto_class: str,
    what: str,
    name: str,
    dtype: torch.dtype,
    tokenizer: Any = None,
    trust_remote_code: bool = False,
    allow_download: bool = True,
    unused: str = "",
) -> tuple[Any, Any]:
    """Return a network, or what stands for it, and its tokenizer; `what` names it in errors.

    `auto_class` is the class of transformers that reads it, unless our encoder can. The `tokenizer`
    is where to find it, if that is not the same place, or one that is loaded.

    Weights whose names begin with `unused` may be missing: nobody asks for what they compute.

    Without `allow_download` the hub is not asked: what is not on this machine is refused.

    Pickled weights are read as tensors only; no code in them runs. A checkpoint that lacks any
    weight of the network is refused, because that weight would be random.
    """
    if not allow_download:
        name = _on_this_machine(name)
        tokenizer = _on_this_machine(tokenizer) if isinstance(tokenizer, str) else tokenizer
    config = Path(name) / "config.json"
    refuse(
        (
            Path(name).exists() and not config.is_file(),
            f"'{name}' is not a model folder: it has no config.json.",
        ),
        kind=ModelError,
    )
    check_files(Path(name))
    # All layers would be built before missing weights are noticed. Other wrong sizes are caught
    # when the weights do not fit them.
    refuse(
        *(
            (
                value > _MOST_LAYERS,
                f"'{name}' is not a model folder: its config.json has '{key}' {value:.3g}, more "
                "than any network has.",
            )
            for key, value in read_json(config).items()
            if "layer" in key and isinstance(value, int | float)
        ),
        kind=ModelError,
    )
    plain = auto_class == MASKED and not trust_remote_code
    network: Any = MaskedCheckpoint.read(Path(name), dtype) if plain else None
    missing: list[str] = []
    try:
        if network is None:
            network, missing = _from_transformers(auto_class, name, dtype, trust_remote_code)
        tokenizer = name if tokenizer is None else tokenizer
        if isinstance(tokenizer, str):
            tokenizer = load_tokenizer(tokenizer, trust_remote_code)
    except MaskovError:
        raise
    except Exception as error:
        raise ModelError(_why(name, what, error)) from error
    missing = [name for name in missing if not (unused and name.startswith(unused))]
    if missing:
        raise ModelError(
            f"'{name}' is not a {what}: its weights lack {missing[0]} ({len(missing)} missing); "
            "give a checkpoint that has its head."
        )
    return network, tokenizer


def _from_transformers(
    auto_class: str, name: str, dtype: torch.dtype, trust_remote_code: bool
) -> tuple[Any, list[str]]:
    """Return a Hugging Face network, and the names of the weights that its checkpoint lacks."""
    transformers = import_quietly()
    if auto_class == DIFFUSION:
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code)
        code = getattr(config, "auto_map", None) or {MASKED: ""}
        auto_class = next((one for one in _DIFFUSION if one in code), MASKED)
    # Missing weights are drawn at random before we can refuse them.
    with silence_transformers(), torch.random.fork_rng(devices=[]):
        network, report = getattr(transformers, auto_class).from_pretrained(
            name,
            dtype=dtype,
            output_loading_info=True,
            trust_remote_code=trust_remote_code,
            weights_only=True,
        )
    # A mapped file has weights at odd addresses. Copied, they compute what a worker's compute.
    for value in (*network.parameters(), *network.buffers()):
        if value.data_ptr() % ALIGNMENT:
            value.data = value.data.clone()
    return network, sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))


def check_files(folder: Path) -> None:
    """Refuse a model folder with a pipe, a socket or a device in it: reading it may never end."""
    refuse(
        *(
            (
                file.exists() and not (file.is_file() or file.is_dir()),
                f"'{file}' is not a regular file; put one there.",
            )
            for file in (sorted(folder.iterdir()) if folder.is_dir() else ())
        ),
        kind=ModelError,
    )


def _on_this_machine(name: str) -> str:
    """Return a folder as it is, and a hub name as its folder in the cache, or refuse it.

    The hub's own `local_files_only` still opens connections, so it is not asked at all.
    """
    if Path(name).exists() or name.endswith(".txt"):
        return name
    files = ("config.json", "tokenizer_config.json", "tokenizer.json")
    cached = required(
        next(filter(None, (_from_hub(name, file) for file in files)), None),
        f"'{name}' is not on this machine, and is not downloaded because a run folder names it; "
        "if you trust it, allow that with --allow-download; a model in memory is given to "
        "`maskov.resume`.",
        ModelError,
    )
    return str(cached)


def translation_folder(name: str, download: bool = False) -> Path | None:
    """Return the folder of the translation model of this name, or None.

    It is a shipped model, a folder, or a hub name: in the hub's cache or, with `download`, brought
    there. Energies are parsed without, so that reading one opens no connection.
    """
    folder = folder_of(name) or Path(name)
    on_hub = name.count("/") == 1 and not os.path.exists(folder)
    if on_hub:
        folder = _from_hub(name, "config.json", download) or folder
    if read_json(folder / "config.json").get("architecture") != ARCHITECTURE:
        return None
    if on_hub and download:
        from huggingface_hub import snapshot_download

        try:
            return Path(snapshot_download(name, allow_patterns=_FILES))
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise ModelError(
                f"the translation model '{name}' could not be downloaded: {reason}."
            ) from error
    return folder


def _from_hub(name: str, file: str, download: bool = False) -> Path | None:
    """Return the folder of a file in the hub's cache, or None; with `download` it is put there."""
    import huggingface_hub as hub

    try:
        found = (hub.hf_hub_download if download else hub.try_to_load_from_cache)(name, file)
    except Exception:  # many kinds; loading says that there is no such model
        return None
    return Path(found).parent if isinstance(found, str) else None


def load_tokenizer(source: str, trust_remote_code: bool = False) -> Any:
    """Load a tokenizer from a folder or hub name, or from a bare `vocab.txt` of BERT's kind."""
    plain = None if trust_remote_code else PlainTokenizer.read(Path(source))
    if plain is not None:
        return plain
    theirs = import_quietly()
    if source.endswith(".txt"):
        refuse((not Path(source).is_file(), f"no vocabulary file '{source}'."))
        words = Path(source).read_text(encoding="utf-8").split("\n")
        # Folding case would lose every token of a vocabulary that has capitals (amino acids).
        ordinary = [word for word in words if not (word.startswith("[") and word.endswith("]"))]
        lower = all(word == word.lower() for word in ordinary)
        return theirs.BertTokenizer(str(Path(source)), do_lower_case=lower)
    with silence_transformers():
        return theirs.AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code)


def _why(name: str, what: str, error: Exception) -> str:
    """Return one sentence on why a checkpoint did not load."""
    if is_out_of_memory(error):
        return f"not enough memory to load the model '{name}'; use a smaller one."
    text = str(error).strip() or type(error).__name__
    for sign, reason in _REASONS.items():
        if sign in text:
            return reason.format(name=name, what=what, instead=_INSTEAD.get(what, ""))
    if not Path(name).exists() and isinstance(error, OSError):
        return (
            f"no {what} '{name}': there is no such folder, and the hub could not be reached or "
            f"has none. {did_you_mean(name)}Give a folder with config.json and weights, or a hub "
            "name while online."
        )
    return f"the model '{name}' could not be loaded: {text.splitlines()[0]}"


def fingerprint(network: Any, tokenizer: Any, **inputs: Any) -> str:
    """Hash a network, its tokenizer and what else decides its inputs."""
    digest = hashlib.sha256(weights_hash(network, tokenizer).encode())
    for part in (tokenizer_data(tokenizer), inputs):
        digest.update(json.dumps(part, sort_keys=True).encode())
    return digest.hexdigest()


def weights_hash(network: Any, tokenizer: Any) -> str:
    """Hash weights, shape and vocabulary alone."""
    digest = hashlib.sha256()
    for key, value in sorted(network.state_dict().items()):
        digest.update(key.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    digest.update(json.dumps(tokenizer.get_vocab(), sort_keys=True).encode())
    digest.update(json.dumps(_shape(network), sort_keys=True, default=str).encode())
    return digest.hexdigest()


def _shape(network: Any) -> dict[str, Any]:
    """Return what uses the weights: equal ones may have another activation or head count."""
    if hasattr(network, "shape"):
        return asdict(network.shape)
    config: Any = getattr(network, "config", None)
    if hasattr(config, "to_diff_dict"):
        config = config.to_diff_dict()
    if not isinstance(config, dict):  # of somebody's own
        return {"network": str(network)}
    return {
        key: value for key, value in config.items() if key not in _NOT_SHAPE and value is not None
    }


def tokenizer_data(tokenizer: Any) -> dict[str, Any]:
    """Return all that decides what a tokenizer makes of a text and of tokens, in plain data."""
    if hasattr(tokenizer, "words") and hasattr(tokenizer, "merges"):
        return {"words": tokenizer_data(tokenizer.words), "merges": tokenizer.merges.lines()}
    data: dict[str, Any] = {
        "special": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        "special_ids": sorted(tokenizer.all_special_ids),
        "clean_up": bool(getattr(tokenizer, "clean_up_tokenization_spaces", False)),
    }
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        whole = json.loads(backend.to_str())
        return data | {key: whole[key] for key in whole.keys() - _LEFT_BY_CALLS}
    # Written in Python: its class, its options and the files of its vocabulary.
    added = {index: repr(token) for index, token in tokenizer.added_tokens_decoder.items()}
    options = {
        key: value
        for key, value in tokenizer.init_kwargs.items()
        if isinstance(value, bool | int | float) and key != "model_max_length"
    }
    with TemporaryDirectory() as folder:
        with suppress(NotImplementedError):  # one without files has its vocabulary alone
            tokenizer.save_vocabulary(folder, None)
        files = {
            file.name: hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(Path(folder).iterdir())
        }
    return data | {
        "class": type(tokenizer).__qualname__,
        "added": added,
        "options": options,
        "files": files,
    }


def forbidden_ids(forbidden: Bool[Tensor, " vocabulary"]) -> list[int]:
    """Return which tokens are forbidden, and how many rows there are."""
    return [len(forbidden), *forbidden.nonzero().flatten().tolist()]
