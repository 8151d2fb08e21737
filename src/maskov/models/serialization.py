"""Send a model to other processes, with its weights separate from everything else.

Weights become numpy arrays, which a cluster's object store shares between the processes of a
machine; the rest is small. The receiver rebuilds the model on its own device, as if loaded there.
"""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from maskov.errors import InputError
from maskov.models.base import MaskedModel, adapted
from maskov.models.checkpoint import ALIGNMENT
from maskov.models.conditional.model import ConditionalModel
from maskov.models.huggingface import HuggingFaceModel
from maskov.models.packed import PackedModel
from maskov.types import Tensor


@dataclass(frozen=True)
class PickledModel:
    """A pickled model without its tensors, and the tensors as bytes."""

    pickled: bytes
    arrays: list[npt.NDArray[np.uint8]]

    @classmethod
    def of(cls, model: MaskedModel) -> PickledModel:
        """Pickle a model, which stays as it is."""
        file, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
        try:
            _Pickler(file, 5, buffer_callback=buffers.append).dump(_parts(model))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"'{model.name}' cannot be sent to other processes ({error}); run it without "
                "workers."
            ) from error
        return cls(file.getvalue(), [np.frombuffer(one.raw(), np.uint8) for one in buffers])

    def unpack(self, device: torch.device) -> MaskedModel:
        """Rebuild the model on a device."""
        parts = pickle.loads(self.pickled, buffers=self.arrays)
        if isinstance(parts, MaskedModel):
            return parts
        kind, (checkpoint, *others), caution, changes, texts = parts
        plain: MaskedModel = kind(checkpoint.to(device), *others)
        plain.caution = caution
        model = adapted(plain, *changes)
        return model.given(texts) if isinstance(model, ConditionalModel) and texts else model


def _parts(model: MaskedModel) -> Any:
    """Return a model as it is, or what it is built from."""
    exact = model.exact or model
    if type(exact) not in (HuggingFaceModel, ConditionalModel):
        return model
    assert isinstance(exact, PackedModel)
    sources = getattr(exact, "sources", None)
    return (
        type(exact),
        (exact.checkpoint, exact.tokenizer, exact.name),
        exact.caution,
        (exact.prefix, exact.extra_letters, exact.remove_smoothing, model.precision),
        sources and sources.texts,
    )


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Store tensors as arrays, which are out of band; a tensor used twice is stored once."""
        if not isinstance(value, Tensor):
            return NotImplemented
        tensor = value.detach().cpu().contiguous()
        array = tensor.flatten().view(torch.uint8).numpy()
        parameter = isinstance(value, torch.nn.Parameter)
        return _tensor, (array, tensor.dtype, tuple(tensor.shape), parameter)


def _tensor(
    array: npt.NDArray[np.uint8], dtype: torch.dtype, shape: Sequence[int], parameter: bool
) -> Tensor:
    """Return a tensor; arrays in shared memory are used without a copy."""
    with warnings.catch_warnings():
        # Shared memory is read-only, and nothing writes to weights.
        warnings.filterwarnings("ignore", message=".*not writable.*")
        flat = torch.from_numpy(array)
    if flat.data_ptr() % ALIGNMENT:
        flat = flat.clone()
    tensor = flat.view(dtype).view(shape)
    return torch.nn.Parameter(tensor, False) if parameter else tensor
