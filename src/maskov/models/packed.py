"""Models whose masked passes run in our own encoder: concatenated, without padding."""

from __future__ import annotations

import copy
import io
import pickle
import re
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from maskov.config import ModelSource
from maskov.encoders import Encoder, LMHead, Packed, Reading, TokenLayout, Uniform, cast
from maskov.errors import InputError, refuse
from maskov.models.base import MaskedModel, Queries, adapted, coarse
from maskov.models.checkpoint import ALIGNMENT, fingerprint, forbidden_ids
from maskov.models.tokens import token_ids
from maskov.types import Bool, Float, Int, Tensor


@dataclass(frozen=True)
class Frame:
    """The special tokens before and after a text, and the mask token."""

    before: Int[Tensor, " before"]
    after: Int[Tensor, " after"]
    mask_id: int

    @property
    def size(self) -> int:
        """Number of tokens added to each sequence."""
        return len(self.before) + len(self.after)


@dataclass(frozen=True)
class PackedPasses:
    """Concatenated masked passes: `starts` is where each begins, `query` where its masks are."""

    ids: Int[Tensor, " tokens"]
    position: Int[Tensor, " tokens"]
    starts: Int[Tensor, " bounds"]
    query: Int[Tensor, " queries"]


def pack_masked(
    tokens: Int[Tensor, "passes length"],
    lengths: Int[Tensor, " passes"],
    masked: Bool[Tensor, "passes length"],
    frame: Frame,
) -> PackedPasses:
    """Mask any places of each sequence and concatenate them; `query` is in row-major order."""
    total = int(lengths.sum()) + len(tokens) * frame.size
    content = tokens.masked_fill(masked, frame.mask_id)
    row, place = masked.nonzero(as_tuple=True)
    return pack_queries(content, lengths, row, place, frame, total)


def pack_queries(
    tokens: Int[Tensor, "passes length"],
    lengths: Int[Tensor, " passes"],
    row: Int[Tensor, " queries"],
    place: Int[Tensor, " queries"],
    frame: Frame,
    total: int,
) -> PackedPasses:
    """Concatenate masked sequences into a row of `total` tokens; ask about any (row, place).

    A sequence of length zero takes no space. Nothing synchronises with the device.
    """
    count, device = len(tokens), tokens.device
    full = torch.where(lengths > 0, lengths + frame.size, 0)
    ends = full.cumsum(0)
    starts = torch.cat([ends.new_zeros(1), ends])
    token = torch.arange(total, device=device)
    owner = torch.searchsorted(ends, token, right=True).clamp(max=count - 1)
    offset = token - starts[owner]
    framed = torch.nn.functional.pad(tokens, (len(frame.before), len(frame.after)))
    framed[:, : len(frame.before)] = frame.before
    if len(frame.after):
        past = torch.arange(framed.shape[1], device=device) - (full - len(frame.after))[:, None]
        after = frame.after[past.clamp(0, len(frame.after) - 1)]
        framed = torch.where(past >= 0, after, framed)
    ids = framed[owner, offset.clamp(0, framed.shape[1] - 1)]
    query = (starts[row] + len(frame.before) + place).clamp(0, total - 1)
    return PackedPasses(ids, offset, starts.int(), query)


def pack_passes(
    tokens: Int[Tensor, "passes length"],
    lengths: Int[Tensor, " passes"],
    place: Int[Tensor, " passes"],
    frame: Frame,
    total: int,
) -> PackedPasses:
    """Mask one place of each sequence and concatenate them, as `pack_queries`."""
    masked = torch.arange(tokens.shape[1], device=tokens.device) == place[:, None]
    row = torch.arange(len(tokens), device=tokens.device)
    return pack_queries(
        tokens.masked_fill(masked, frame.mask_id), lengths, row, place, frame, total
    )


# The share of its probability that every token keeps.
FLOOR = 0.01


def without_smoothing(
    scores: Float[Tensor, "*positions tokens"],
    log_normaliser: Float[Tensor, "*positions 1"],
    share: float,
    vocabulary: int,
) -> Float[Tensor, "*positions tokens"]:
    """Return scores f' without the tail of a label smoothing `share` (ε).

        f'_i = f_i + log(max(1 − (ε/V) exp(L − f_i), FLOOR))

    `scores` f are those of any tokens, `log_normaliser` L is the log-sum-exp of all V tokens of the
    `vocabulary` that the training's softmax had. The softmax of f' is the distribution without the
    tail. Nothing waits for the device, and no shape depends on values.
    """
    tail = (log_normaliser - scores).exp() * (share / vocabulary)
    return scores + (1 - tail).clamp(min=FLOOR).log()


class PackedModel(MaskedModel):
    """A network and its tokenizer, with our own encoder for its passes if it is a known one.

    Without a `head`, the vectors of masked positions are logits already.
    """

    network: Any
    encoder: Encoder | None
    head: LMHead | None
    source: ModelSource
    # Whether float32 matrix products may use TF32.
    coarse_products: bool = False
    # Whether a token holds the space before it, and the mask therefore, too.
    mask_takes_space: bool = False

    min_length = 1

    def _named(self, source: ModelSource | str) -> None:
        """Set the name and the source; what is changed in the model afterwards is added to it."""
        source = ModelSource(source) if isinstance(source, str) else source
        self.name = source.name
        self.source = replace(source, prefix="", extra_letters="", remove_smoothing=0.0)

    def _use(
        self,
        network: Any,
        tokenizer: Any,
        weight: Tensor,
        before: Sequence[int],
        after: Sequence[int],
    ) -> None:
        """Set the network and its tokenizer, which frames texts with special tokens.

        One `weight` has the device and dtype of all.
        """
        # The weights and settings that were loaded: the network, or what stands for it.
        self.checkpoint, self.tokenizer = network, tokenizer
        self.mask_id = int(tokenizer.mask_token_id)
        self.device, self.dtype = weight.device, weight.dtype
        self.precision = str(self.dtype).removeprefix("torch.")
        first, last = (
            torch.tensor(ids, dtype=torch.long, device=self.device) for ids in (before, after)
        )
        self.frame = Frame(first, last, self.mask_id)

    # Texts.

    def encode(self, text: str) -> list[int]:
        """Tokenise without special tokens; [MASK] becomes this model's mask."""
        text = text.replace("[MASK]", self.tokenizer.mask_token)
        if self.mask_takes_space:
            text = re.sub(rf"\s+(?={re.escape(self.tokenizer.mask_token)})", "", text)
        return list(map(int, token_ids(self.tokenizer, text, self.name, add_special_tokens=False)))

    def token_spans(self, text: str) -> list[tuple[int, int]] | None:
        """Ask the tokenizer, if it knows where its tokens are from."""
        if not getattr(self.tokenizer, "is_fast", False):
            return super().token_spans(text)
        spans = token_ids(
            self.tokenizer, text, self.name, "offset_mapping",
            add_special_tokens=False, return_offsets_mapping=True,
        )  # fmt: skip
        return [(end - len(text[start:end].lstrip()), end) for start, end in spans]

    def decode(self, ids: Sequence[int]) -> str:
        """Decode with the tokenizer."""
        return str(self.tokenizer.decode([int(i) for i in ids])).strip()

    def token_strings(self, ids: Sequence[int]) -> list[str]:
        """Return the vocabulary's spelling of each token."""
        return [str(t) for t in self.tokenizer.convert_ids_to_tokens([int(i) for i in ids])]

    def control_ids(self) -> frozenset[int]:
        """Return all special tokens but the unknown one, which may occur in a scored text."""
        return frozenset(self.tokenizer.all_special_ids) - {self.tokenizer.unk_token_id}

    # Scores.

    @property
    def hidden_width(self) -> int:
        """Width of the vector before the projection, or of the logits if the head is not split."""
        return self.vocabulary_size if self.head is None else self.head.weight.shape[1]

    def project(self, states: Float[Tensor, "masked width"]) -> Float[Tensor, "masked hidden"]:
        """Apply the head up to its projection, in its own precision."""
        assert self.head is not None
        return self.head.transform(states.to(self.head.weight.dtype))

    def logits(self, hidden: Float[Tensor, "masked hidden"]) -> Float[Tensor, "masked vocabulary"]:
        """Return the scores of the full vocabulary, without label smoothing if that is removed."""
        scores, share = hidden, self.source.remove_smoothing
        if self.head is not None:
            with coarse(self.coarse_products):
                scores = self.head.logits(hidden)
        if not share:
            return scores
        return without_smoothing(scores, scores.logsumexp(1, keepdim=True), share, scores.shape[1])

    def logit_of(
        self, hidden: Float[Tensor, "masked hidden"], tokens: Int[Tensor, " masked"]
    ) -> Float[Tensor, " masked"]:
        """Return the score of one token for each vector.

        To remove label smoothing takes the scores of all tokens, which are computed in portions.
        """
        if self.head is not None and not self.source.remove_smoothing:
            return self.head.logit_of(hidden, tokens)
        parts = (torch.split(values, self.head_rows) for values in (hidden, tokens))
        return torch.cat(
            [super(PackedModel, self).logit_of(*part) for part in zip(*parts, strict=True)]
        )

    # The same model, changed.

    def changed(self, **attributes: Any) -> Self:
        """Return this model, and its `exact` one, with some attributes changed."""
        other = copy.copy(self)
        vars(other).update(attributes)
        if isinstance(self.exact, PackedModel):
            other.exact = self.exact.changed(**attributes)
        return other

    def without_smoothing(self, share: float) -> Self:
        """Return this model with the label smoothing of its training removed.

        `share` is what the training spread over the vocabulary, such as 0.1; the function of this
        name defines what is left. Energies and proposals both change.
        """
        removed = self.source.remove_smoothing
        refuse(
            (
                share and removed,
                f"label smoothing is removed from '{self.name}' already: {removed:g}.",
            )
        )
        source = replace(self.source, remove_smoothing=float(share))
        return self.changed(source=source) if share else self

    def in_precision(self, precision: str) -> Self:
        """Return this model with the passes of its encoder in a lower precision: tf32, bfloat16.

        The head keeps its precision: it runs at masked positions only, and energies depend on it
        directly. If the head cannot be split, the whole network is converted.
        """
        refuse(
            (
                precision == "tf32" and self.device.type != "cuda",
                "tf32 needs an NVIDIA GPU; use float32, or --device cuda.",
            )
        )
        dtype = torch.float32 if precision == "tf32" else getattr(torch, precision)
        changed = copy.copy(self)
        changed.exact = self
        if dtype != self.dtype and self.encoder is not None:
            changed.encoder = cast(self.encoder, dtype)
        elif dtype != self.dtype:
            changed.network = copy.deepcopy(self.network)
            (changed.network if self.head is None else changed.network.base_model).to(dtype)
        changed.dtype = dtype
        changed.precision, changed.coarse_products = precision, True
        return changed

    def fingerprint(self) -> str:
        """Hash the full-precision weights, how texts become inputs and what is removed."""
        if self.exact is not None:
            return self.exact.fingerprint()
        inputs = {"mask": self.mask_id, "forbidden": forbidden_ids(self.forbidden)}
        if self.source.remove_smoothing:
            inputs["remove_smoothing"] = self.source.remove_smoothing
        return fingerprint(self.checkpoint, self.tokenizer, **inputs, **self.other_inputs())

    @abstractmethod
    def other_inputs(self) -> dict[str, Any]:
        """Return what else decides the inputs of the network."""

    # Passes.

    def reading(self, source: Int[Tensor, " passes"] | None) -> Reading | None:
        """Return what passes read besides their own tokens; nothing, unless it is overridden."""
        return None

    def hidden(self, queries: Queries, several: bool = True) -> Float[Tensor, "masked hidden"]:
        """Run the masked sequences and select the masked positions.

        Without `several` each sequence masks one position.
        """
        passes = pack_masked(queries.tokens, queries.lengths, queries.masked, self.frame)
        width = queries.tokens.shape[1]
        layout: TokenLayout = Packed(passes.starts, width + self.frame.size)
        if self.device.type == "cpu" and bool((queries.lengths == width).all()):
            # Attention on a CPU is faster if nothing has to be padded for it.
            layout = Uniform(len(queries), width + self.frame.size)
        return self._encoded(passes, layout, queries.source, several)

    def hidden_at(
        self,
        tokens: Int[Tensor, "passes length"],
        lengths: Int[Tensor, " passes"],
        place: Int[Tensor, " passes"],
        source: Int[Tensor, " passes"] | None = None,
    ) -> Float[Tensor, "passes hidden"]:
        """Mask one place of each sequence; the last layer runs there alone."""
        masked = torch.arange(tokens.shape[1], device=tokens.device) == place[:, None]
        return self.hidden(Queries(tokens, lengths, masked, source), several=False)

    def hidden_of(
        self,
        passes: PackedPasses,
        longest: int,
        source: Int[Tensor, " passes"] | None = None,
        several: bool = False,
    ) -> Float[Tensor, "queries hidden"]:
        """Return the vector at the mask of each packed pass, without device synchronisation.

        With `several` a pass may be asked about any number of places.
        """
        return self._encoded(passes, Packed(passes.starts, longest), source, several)

    def _encoded(
        self,
        passes: PackedPasses,
        layout: TokenLayout,
        source: Tensor | None,
        several: bool = False,
    ) -> Tensor:
        assert self.encoder is not None
        with coarse(self.coarse_products):
            states = self.encoder(
                passes.ids, passes.position, layout, passes.query, several, self.reading(source)
            )
            return self.project(states)


@dataclass(frozen=True)
class PickledModel:
    """A pickled model without its tensors, and the tensors as bytes, for other processes.

    Weights become numpy arrays, which a cluster's object store shares between the processes of a
    machine; the rest is small. The receiver rebuilds the model on its own device, as if loaded
    there.
    """

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
        kind, (checkpoint, *others), caution, precision, texts = parts
        plain: PackedModel = kind(checkpoint.to(device), *others)
        plain.caution = caution
        model = adapted(plain, others[-1], precision)
        return model.given(texts) if texts else model  # type: ignore[attr-defined]


def _parts(model: MaskedModel) -> Any:
    """Return a model as it is, or what it is built from."""
    exact = model.exact or model
    # A class of somebody else's may be built in any way.
    if not isinstance(exact, PackedModel) or not type(exact).__module__.startswith("maskov."):
        return model
    sources = getattr(exact, "sources", None)
    return (
        type(exact),
        (exact.checkpoint, exact.tokenizer, exact.source),
        exact.caution,
        model.precision,
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
