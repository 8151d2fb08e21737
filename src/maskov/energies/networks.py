"""Energies of Hugging Face networks besides the masked model: classifiers, and similarity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from maskov.energies.base import Energy
from maskov.errors import InputError, ModelError, TooLongError
from maskov.models.base import MaskedModel, coarse
from maskov.models.checkpoint import LOADING, fingerprint, load_checkpoint
from maskov.models.huggingface import HuggingFaceModel, capacity
from maskov.models.scorer import Batcher, token_budget
from maskov.models.tokens import check_tokens, embedding_rows, frame_of, token_ids
from maskov.parts import quoted
from maskov.shipped import folder_of, source_of
from maskov.types import Float, Sequences, Tensor


def as_given(name: str) -> str:
    """Return the name of a model as it is."""
    return name


@dataclass(frozen=True)
class Loading:
    """Where and how the models that energies name are loaded; `find` completes their names."""

    device: torch.device | str = "cpu"
    trust_remote_code: bool = False
    allow_download: bool = True
    budget: int | None = None
    find: Callable[[str], str] = as_given


class SideNetwork:
    """A Hugging Face network of an energy, loaded when it is first asked.

    With the masked model's vocabulary its tokens are read as they are. With another one a sequence
    is decoded and tokenised again: still one energy for each sequence, as Metropolis needs.
    """

    def __init__(
        self,
        auto_class: str,
        what: str,
        kind: str | None,
        name: str,
        loading: Loading,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.name = loading.find(name)
        self._auto_class, self._what, self._loading = auto_class, what, loading
        self._dtype = dtype
        # A shipped model keeps its name in signatures, wherever it is installed.
        self._source = (
            str(folder_of(self.name) or self.name) if kind is None else source_of(self.name, kind)
        )
        self._shared: tuple[MaskedModel, bool] | None = None

    @cached_property
    def loaded(self) -> tuple[Any, Any]:
        """The network and its tokenizer."""
        with LOADING:
            import transformers

            network, tokenizer = load_checkpoint(
                getattr(transformers, self._auto_class),
                self._what,
                self._source,
                self._dtype,
                trust_remote_code=self._loading.trust_remote_code,
                allow_download=self._loading.allow_download,
                unused="pooler." if self._auto_class == "AutoModel" else "",
            )
        check_tokens(tokenizer, embedding_rows(network), self.name)
        network = network.to(self._device).eval().requires_grad_(False)
        return network, tokenizer

    @property
    def network(self) -> Any:
        """The network."""
        return self.loaded[0]

    @cached_property
    def _frame(self) -> tuple[list[int], list[int]] | None:
        _, tokenizer = self.loaded
        return None if tokenizer.mask_token is None else frame_of(tokenizer, self.name)

    @property
    def _device(self) -> torch.device:
        return torch.device(self._loading.device)

    @cached_property
    def _padding(self) -> int:
        return int(self.loaded[1].pad_token_id or 0)

    @cached_property
    def _batcher(self) -> Batcher:
        width = int(getattr(self.network.config, "hidden_size", 512))
        return Batcher(self._loading.budget or token_budget(64 * width, self._device))

    def encode(self, model: MaskedModel, sequences: Sequences) -> Sequences:
        """Return sequences in this network's own tokens, special ones included, on its device."""
        if self._frame is not None and self.shares_vocabulary(model):
            return self._framed(sequences, *self._frame)
        texts = [model.decode(ids) for ids in contents(sequences)]
        return self._padded(token_ids(self.loaded[1], texts, self.name))

    def _framed(self, sequences: Sequences, before: list[int], after: list[int]) -> Sequences:
        """Put the special tokens around sequences of the same vocabulary."""
        count, width = sequences.tokens.shape
        full = len(before) + width + len(after)
        ids = torch.full((count, full), self._padding)
        ids[:, : len(before)] = torch.tensor(before, dtype=torch.long)
        ids = ids.to(self._device)
        tokens, lengths = (one.to(self._device) for one in (sequences.tokens, sequences.lengths))
        ids[:, len(before) : len(before) + width] = tokens
        place, end = torch.arange(full, device=self._device), (lengths + len(before))[:, None]
        ids = ids.masked_fill(place >= end, self._padding)
        for offset, token in enumerate(after):
            ids = torch.where(place == end + offset, token, ids)
        return Sequences(ids, lengths + len(before) + len(after))

    def _padded(self, ids: Sequence[Sequence[int]]) -> Sequences:
        rows = [torch.tensor(row, dtype=torch.long) for row in ids]
        tokens = torch.nn.utils.rnn.pad_sequence(
            rows, batch_first=True, padding_value=self._padding
        )
        lengths = torch.tensor([len(row) for row in rows])
        return Sequences(tokens.to(self._device), lengths.to(self._device))

    def run(self, encoded: Sequences, read: Callable[[Any, Tensor], Tensor]) -> Tensor:
        """Run sequences through the network, equal ones once.

        `read` takes the network's answer and which positions are not padding.
        """
        check_lengths(
            encoded.lengths.tolist(), capacity(self.network.config, self.loaded[1]), self.name
        )
        # The padding of equal sequences is equal, too.
        keys = torch.cat([encoded.lengths[:, None], encoded.tokens], dim=1)
        distinct, which = torch.unique(keys, dim=0, return_inverse=True)
        lengths, tokens = distinct[:, 0], distinct[:, 1:]
        found: list[Tensor] = []
        order: list[Tensor] = []

        def work(rows: Tensor, width: int) -> None:
            rows = rows.to(self._device)
            inside = torch.arange(width, device=self._device) < lengths[rows, None]
            with coarse(False):
                answer = self.network(input_ids=tokens[rows, :width], attention_mask=inside.long())
                found.append(read(answer, inside).double())
            order.append(rows)

        self._batcher.each(lengths.cpu(), work)
        values = torch.cat(found)
        if bool(values.isnan().any()):
            raise ModelError(
                f"the model '{self.name}' gave not-a-number scores (NaN); its weights are damaged."
            )
        place = torch.cat(order).argsort()
        return values[place[which]]

    def fingerprint(self, **inputs: Any) -> str:
        """Return the network's fingerprint."""
        network, tokenizer = self.loaded
        return fingerprint(network, tokenizer, **inputs)

    def shares_vocabulary(self, model: MaskedModel) -> bool:
        """Whether a masked model has the same tokens."""
        if self._shared is None or self._shared[0] is not model:
            same = (
                isinstance(model, HuggingFaceModel)
                and model.tokenizer.get_vocab() == self.loaded[1].get_vocab()
            )
            self._shared = (model, same)
        return self._shared[1]


def check_lengths(lengths: Sequence[int], limit: int, name: str) -> None:
    """Refuse texts of more tokens than a model takes."""
    longest = max(lengths, default=0)
    if longest > limit:
        raise TooLongError(
            f"a text has {longest} tokens; '{name}' takes at most {limit}.",
            [length <= limit for length in lengths],
        )


def contents(sequences: Sequences) -> list[list[int]]:
    """Return each sequence without its padding."""
    rows, sizes = sequences.tokens.tolist(), sequences.lengths.tolist()
    return [row[:size] for row, size in zip(rows, sizes, strict=True)]


def references(sequences: Sequences, energy: object) -> Sequences:
    """Return the texts that sequences are compared with."""
    table = sequences.reference
    if table is None or not table.shape[1]:
        raise InputError(
            f"the energy '{energy}' compares with the text that a chain started from: give texts "
            "to start from (--start-text)."
        )
    known = table >= 0
    return Sequences(table.clamp(min=0), known.sum(1))


class Classifier(Energy):
    """−log p of a label, given by its name or its number."""

    cost = 1.0

    def __init__(self, name: str, label: str | int, loading: Loading | None = None) -> None:
        # A label that looks like another thing, such as True, is a name.
        self.label = label if type(label) is int else str(label)
        self._network = SideNetwork(
            "AutoModelForSequenceClassification",
            "sequence classifier",
            "classifier",
            name,
            loading or Loading(),
        )
        self.name = self._network.name

    @cached_property
    def _index(self) -> int:
        """The number of the label."""
        config = self._network.network.config
        names = {int(index): str(name) for index, name in config.id2label.items()}
        if len(names) < 2 or config.problem_type not in (None, "single_label_classification"):
            raise InputError(f"'{self.name}' does not choose one of several labels.")
        if sorted(names) != list(range(len(names))):
            raise ModelError(f"the labels of '{self.name}' are damaged: their numbers have gaps.")
        if isinstance(self.label, int):
            if not 0 <= self.label < len(names):
                raise InputError(f"'{self.name}' has labels 0 to {len(names) - 1}.")
            return self.label
        matching = [i for i, name in names.items() if name.lower() == self.label.lower()]
        if not matching:
            raise InputError(
                f"'{self.name}' has no label '{self.label}'; it has "
                f"{', '.join(names[index] for index in sorted(names))}."
            )
        return matching[0]

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Classify the sequences."""
        index = self._index

        def read(answer: Any, attention: Tensor) -> Tensor:
            found: Tensor = -answer.logits.double().log_softmax(1)[:, index]
            return found

        values = self._network.run(self._network.encode(model, sequences), read)
        return values.to(sequences.tokens.device)

    def models(self) -> dict[str, str]:
        """Name the classifier and its fingerprint; refuse a label that it has not."""
        _ = self._index
        return {self.name: self._network.fingerprint(labels=self._labels)}

    @cached_property
    def _labels(self) -> list[str]:
        names = self._network.network.config.id2label
        return [str(names[index]) for index in sorted(names)]

    def __str__(self) -> str:
        return f"classifier({quoted(self.name)}, label={quoted(self.label)})"


class Similar(Energy):
    """1 − cos(text, start text), of the means of a Hugging Face encoder's last vectors."""

    cost = 1.0
    compares = True

    def __init__(self, name: str, loading: Loading | None = None) -> None:
        self._network = SideNetwork("AutoModel", "text encoder", None, name, loading or Loading())
        self.name = self._network.name
        self._known: dict[tuple[int, ...], Tensor] = {}

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Compare the embeddings."""
        starts = self._network.encode(model, references(sequences, self))
        keys = [tuple(ids) for ids in contents(starts)]
        for row, key in enumerate(keys):
            if key not in self._known:
                # Alone: in another batch its last bits would differ, and chains resume anywhere.
                width, index = len(key), torch.tensor([row], device=starts.tokens.device)
                alone = Sequences(starts.tokens[index, :width], starts.lengths[index])
                self._known[key] = self._network.run(alone, _mean)[0]
        embedded = self._network.run(self._network.encode(model, sequences), _mean)
        compared = torch.stack([self._known[key] for key in keys])
        return (1 - (embedded * compared).sum(1)).to(sequences.tokens.device)

    def models(self) -> dict[str, str]:
        """Name the encoder and its fingerprint."""
        return {self.name: self._network.fingerprint()}

    def __str__(self) -> str:
        return f"similar({quoted(self.name)})"


def _mean(answer: Any, attention: Tensor) -> Tensor:
    """Return the mean of the vectors of each text, of length 1."""
    known = attention[:, :, None].double()
    mean = (answer.last_hidden_state.double() * known).sum(1) / known.sum(1)
    return torch.nn.functional.normalize(mean, dim=1)
