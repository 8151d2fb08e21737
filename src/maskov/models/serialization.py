"""A model as it travels to other processes: its weights apart from everything else.

Weights are plain arrays, which a cluster's store can hold once for all processes of a machine; the
rest is small. A model is built again from its parts on the device it is wanted on, so that it is
the model it would be had it been loaded there.
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
from maskov.models.base import MaskedModel
from maskov.models.huggingface import HuggingFaceModel
from maskov.models.precision import in_precision
from maskov.types import Tensor

# Products of arrays that begin elsewhere may round otherwise.
_ALIGNED = 64


@dataclass(frozen=True)
class Parcel:
    """The parts of a model without its tensors, and the tensors as bytes."""

    rest: bytes
    arrays: list[npt.NDArray[np.uint8]]

    @classmethod
    def of(cls, model: MaskedModel) -> Parcel:
        """Take a model apart; the model itself is left alone."""
        file, arrays = io.BytesIO(), list[npt.NDArray[np.uint8]]()
        try:
            _Packer(file, arrays).dump(_parts(model))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"'{model.name}' cannot be sent to other processes ({error}); run it without "
                "workers."
            ) from error
        return cls(file.getvalue(), arrays)

    def open(self, device: torch.device) -> MaskedModel:
        """Build the model on a device."""
        parts = _Unpacker(io.BytesIO(self.rest), self.arrays).load()
        return _assembled(parts, device)


def _parts(model: MaskedModel) -> dict[str, Any]:
    from maskov.models.conditional.model import ConditionalModel

    exact = model.exact or model
    if type(exact) is HuggingFaceModel:
        parts: dict[str, Any] = {"kind": "masked", "caution": exact.caution}
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
    }


def _assembled(parts: dict[str, Any], device: torch.device) -> MaskedModel:
    from maskov.models.conditional.model import ConditionalModel

    if parts["kind"] == "other":
        found: MaskedModel = parts["model"]
        return found
    network, tokenizer, name = parts["network"].to(device), parts["tokenizer"], parts["name"]
    if parts["kind"] == "masked":
        exact: MaskedModel = HuggingFaceModel(network, tokenizer, name, parts["caution"])
        return in_precision(exact, parts["precision"])
    model = in_precision(ConditionalModel(network, tokenizer, name), parts["precision"])
    assert isinstance(model, ConditionalModel)
    return model if parts["texts"] is None else model.given(parts["texts"])


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, arrays: list[npt.NDArray[np.uint8]]) -> None:
        super().__init__(file, protocol=5)
        self._arrays = arrays
        self._numbers: dict[int, tuple[Any, ...]] = {}
        self._kept: list[Tensor] = []

    def persistent_id(self, found: Any) -> Any:
        """Put tensors aside; one that is used twice stays one."""
        if not isinstance(found, Tensor):
            return None
        if id(found) not in self._numbers:
            self._kept.append(found)  # so that no other takes its place in memory
            plain = found.detach().cpu().contiguous()
            self._arrays.append(plain.flatten().view(torch.uint8).numpy())
            parameter = isinstance(found, torch.nn.Parameter)
            number = len(self._arrays) - 1
            self._numbers[id(found)] = (number, plain.dtype, tuple(plain.shape), parameter)
        return self._numbers[id(found)]


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrays: list[npt.NDArray[np.uint8]]) -> None:
        super().__init__(file)
        self._arrays = arrays
        self._found: dict[int, Tensor] = {}

    def persistent_load(self, key: Any) -> Tensor:
        """Return a tensor; what the store keeps in memory for all is used where it lies."""
        number, dtype, shape, parameter = key
        if number not in self._found:
            with warnings.catch_warnings():
                # Nobody writes to weights, so that they may lie where nobody can.
                warnings.filterwarnings("ignore", message=".*not writable.*")
                flat = torch.from_numpy(self._arrays[number])
            if flat.data_ptr() % _ALIGNED:
                flat = flat.clone()
            tensor = flat.view(dtype).view(shape)
            self._found[number] = torch.nn.Parameter(tensor, False) if parameter else tensor
        return self._found[number]
