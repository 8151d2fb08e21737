"""Send a model to other processes, with its weights separate from everything else.

Weights become numpy arrays, which a cluster's object store shares between the processes of a
machine; the rest is small. The receiver rebuilds the model on its own device, as if loaded there.
"""

from __future__ import annotations

import io
import pickle
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from maskov.errors import InputError
from maskov.models.base import MaskedModel, in_precision
from maskov.models.checkpoint import ALIGNMENT
from maskov.models.huggingface import HuggingFaceModel
from maskov.types import Tensor


@dataclass(frozen=True)
class PickledModel:
    """A pickled model without its tensors, and the tensors as bytes."""

    pickled: bytes
    arrays: list[npt.NDArray[np.uint8]]

    @classmethod
    def of(cls, model: MaskedModel) -> PickledModel:
        """Pack a model, which stays as it is."""
        file, arrays = io.BytesIO(), list[npt.NDArray[np.uint8]]()
        try:
            _Pickler(file, arrays).dump(_parts(model))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"'{model.name}' cannot be sent to other processes ({error}); run it without "
                "workers."
            ) from error
        return cls(file.getvalue(), arrays)

    def unpack(self, device: torch.device) -> MaskedModel:
        """Rebuild the model on a device."""
        parts = _Unpickler(io.BytesIO(self.pickled), self.arrays).load()
        return _assemble(parts, device)


def _parts(model: MaskedModel) -> dict[str, Any]:
    from maskov.models.conditional.model import ConditionalModel

    exact = model.exact or model
    if type(exact) is HuggingFaceModel:
        parts: dict[str, Any] = {
            "kind": "masked",
            "caution": exact.caution,
            "prefix": exact.prefix,
            "extra_letters": exact.extra_letters,
        }
    elif type(exact) is ConditionalModel:
        texts = None if exact.sources is None else exact.sources.texts
        parts = {"kind": "conditional", "texts": texts}
    else:
        return {"kind": "other", "model": model}
    return parts | {
        "network": exact.network,
        "tokenizer": exact.tokenizer,
        "name": model.name,
        "precision": model.precision,
        "remove_smoothing": exact.remove_smoothing,
    }


def _assemble(parts: dict[str, Any], device: torch.device) -> MaskedModel:
    from maskov.models.conditional.model import ConditionalModel

    if parts["kind"] == "other":
        other: MaskedModel = parts["model"]
        return other
    network, tokenizer, name = parts["network"].to(device), parts["tokenizer"], parts["name"]
    if parts["kind"] == "masked":
        exact = HuggingFaceModel(network, tokenizer, name, parts["caution"])
        exact = exact.with_prefix(parts["prefix"]) if parts["prefix"] else exact
        extra = parts["extra_letters"]
        exact = exact.with_letters(extra) if extra else exact
        return in_precision(exact.without_smoothing(parts["remove_smoothing"]), parts["precision"])
    whole = ConditionalModel(network, tokenizer, name)
    model = in_precision(whole.without_smoothing(parts["remove_smoothing"]), parts["precision"])
    assert isinstance(model, ConditionalModel)
    return model if parts["texts"] is None else model.given(parts["texts"])


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, arrays: list[npt.NDArray[np.uint8]]) -> None:
        super().__init__(file, protocol=5)
        self._arrays = arrays
        self._keys: dict[int, tuple[Any, ...]] = {}
        self._alive: list[Tensor] = []

    def persistent_id(self, value: Any) -> Any:
        """Store tensors separately; a tensor used twice is stored once."""
        if not isinstance(value, Tensor):
            return None
        if id(value) not in self._keys:
            self._alive.append(value)  # keeps its id from being reused
            tensor = value.detach().cpu().contiguous()
            self._arrays.append(tensor.flatten().view(torch.uint8).numpy())
            parameter = isinstance(value, torch.nn.Parameter)
            number = len(self._arrays) - 1
            self._keys[id(value)] = (number, tensor.dtype, tuple(tensor.shape), parameter)
        return self._keys[id(value)]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrays: list[npt.NDArray[np.uint8]]) -> None:
        super().__init__(file)
        self._arrays = arrays
        self._tensors: dict[int, Tensor] = {}

    def persistent_load(self, key: Any) -> Tensor:
        """Return a tensor; arrays in shared memory are used without a copy."""
        number, dtype, shape, parameter = key
        if number not in self._tensors:
            with warnings.catch_warnings():
                # Shared memory is read-only, and nothing writes to weights.
                warnings.filterwarnings("ignore", message=".*not writable.*")
                flat = torch.from_numpy(self._arrays[number])
            if flat.data_ptr() % ALIGNMENT:
                flat = flat.clone()
            tensor = flat.view(dtype).view(shape)
            self._tensors[number] = torch.nn.Parameter(tensor, False) if parameter else tensor
        return self._tensors[number]
