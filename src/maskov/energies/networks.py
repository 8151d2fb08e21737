"""Energies of Hugging Face networks besides the masked model: classifiers, encoders, causal LMs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from maskov.constraints.base import per_model
from maskov.energies.base import Energy, contents
from maskov.errors import InputError, ModelError, TooLongError, refuse, required
from maskov.models.base import MaskedModel, coarse
from maskov.models.checkpoint import LOADING, fingerprint, load_checkpoint
from maskov.models.huggingface import HuggingFaceModel, capacity
from maskov.models.scorer import Batcher, token_budget
from maskov.models.tokens import (
    check_tokens,
    embedding_rows,
    frame_of,
    silence_transformers,
    token_ids,
)
from maskov.parts import quoted
from maskov.random import Purpose, Rng
from maskov.shipped import folder_of, source_of
from maskov.types import Float, Int, Sequences, Tensor, inside, padded


@per_model
def same_tokens(model: MaskedModel, tokenizer: Any) -> bool:
    """Whether a masked model, which has a tokenizer, has the tokens of another one."""
    return bool(model.tokenizer.get_vocab() == tokenizer.get_vocab())  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Loading:
    """Where and how the models that energies name are loaded; `find` completes their names."""

    device: torch.device | str = "cpu"
    trust_remote_code: bool = False
    allow_download: bool = True
    budget: int | None = None
    find: Callable[[str], str] = str


class NetworkEnergy(Energy):
    """The energy of a Hugging Face network, which is loaded when it is first asked.

    With the masked model's vocabulary its tokens are read as they are. With another one a sequence
    is decoded and tokenised again: still one energy for each sequence, as Metropolis needs.
    """

    cost = 1.0
    # The class that loads it, what errors call it, and the kind of shipped models that it may be.
    auto_class: str
    what: str
    kind: str | None = None
    # Weights whose names begin with this may be missing.
    unused = ""

    def __init__(
        self, name: str, loading: Loading | None = None, dtype: torch.dtype = torch.float32
    ) -> None:
        self._loading, self._dtype = loading or Loading(), dtype
        self._device = torch.device(self._loading.device)
        # A shipped model keeps its name in signatures, wherever it is installed.
        self.name = self._loading.find(name)
        folder = folder_of(self.name) if self.kind is None else source_of(self.name, self.kind)
        self._source = str(folder or self.name)

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        with LOADING:
            network, tokenizer = load_checkpoint(
                self.auto_class,
                self.what,
                self._source,
                self._dtype,
                trust_remote_code=self._loading.trust_remote_code,
                allow_download=self._loading.allow_download,
                unused=self.unused,
            )
        check_tokens(tokenizer, embedding_rows(network), self.name)
        return network.to(self._device).eval().requires_grad_(False), tokenizer

    @property
    def network(self) -> Any:
        """The network."""
        return self._loaded[0]

    @property
    def tokenizer(self) -> Any:
        """Its tokenizer."""
        return self._loaded[1]

    @cached_property
    def _frame(self) -> tuple[list[int], list[int]] | None:
        return None if self.tokenizer.mask_token is None else frame_of(self.tokenizer, self.name)

    @cached_property
    def _batcher(self) -> Batcher:
        width = int(getattr(self.network.config, "hidden_size", 512))
        return Batcher(self._loading.budget or token_budget(64 * width, self._device))

    def read(self, model: MaskedModel, sequences: Sequences) -> Sequences:
        """Return sequences in this network's own tokens, special ones included, on its device."""
        content = contents(sequences)
        if self._frame is not None and self.shares_vocabulary(model):
            before, after = self._frame
            content = [[*before, *ids, *after] for ids in content]
        else:
            content = token_ids(self.tokenizer, [model.decode(ids) for ids in content], self.name)
        return padded(content, int(self.tokenizer.pad_token_id or 0), self._device)

    def run(self, encoded: Sequences, read: Callable[[Any, Tensor], Tensor]) -> Tensor:
        """Run sequences through the network, equal ones once.

        `read` takes the network's answer and which positions are not padding.
        """
        limit = capacity(self.network.config, self.tokenizer)
        check_lengths(encoded.lengths.tolist(), limit, self.name)
        # The padding of equal sequences is equal, too.
        keys = torch.cat([encoded.lengths[:, None], encoded.tokens], dim=1)
        distinct, which = torch.unique(keys, dim=0, return_inverse=True)
        lengths, tokens = distinct[:, 0], distinct[:, 1:]
        found: list[Tensor] = []
        order: list[Tensor] = []

        def work(rows: Tensor, width: int) -> None:
            rows = rows.to(self._device)
            within = inside(lengths[rows], width)
            with coarse(False):
                answer = self.network(input_ids=tokens[rows, :width], attention_mask=within.long())
                found.append(read(answer, within).double())
            order.append(rows)

        self._batcher.each(lengths.cpu(), work)
        values = torch.cat(found)
        refuse_nan(values, self.name)
        return values[torch.cat(order).argsort()[which]]

    def shares_vocabulary(self, model: MaskedModel) -> bool:
        """Whether a masked model has the same tokens."""
        return isinstance(model, HuggingFaceModel) and same_tokens(model, self.tokenizer)

    def models(self) -> dict[str, str]:
        """Name the network and its fingerprint."""
        return {self.name: fingerprint(self.network, self.tokenizer, **self._inputs())}

    def _inputs(self) -> dict[str, Any]:
        """Return what else decides its answers."""
        return {}


class Classifier(NetworkEnergy):
    """−log p(label | text), under any Hugging Face sequence classifier.

    The label is given by its name or its number.
    """

    auto_class, what = "AutoModelForSequenceClassification", "sequence classifier"
    kind = "classifier"

    def __init__(self, name: str, label: str | int, loading: Loading | None = None) -> None:
        super().__init__(name, loading)
        # A label that looks like another thing, such as True, is a name.
        self.label = label if type(label) is int else str(label)

    @cached_property
    def _labels(self) -> list[str]:
        config = self.network.config
        names = {int(index): str(name) for index, name in config.id2label.items()}
        if len(names) < 2 or config.problem_type not in (None, "single_label_classification"):
            raise InputError(f"'{self.name}' does not choose one of several labels.")
        if sorted(names) != list(range(len(names))):
            raise ModelError(f"the labels of '{self.name}' are damaged: their numbers have gaps.")
        return [names[index] for index in sorted(names)]

    @cached_property
    def _index(self) -> int:
        """The number of the label."""
        names = [name.lower() for name in self._labels]
        place = (
            self.label
            if isinstance(self.label, int)
            else next((n for n, name in enumerate(names) if name == self.label.lower()), -1)
        )
        refuse(
            (
                not 0 <= place < len(names),
                f"'{self.name}' has no label '{self.label}'; it has {', '.join(self._labels)}, "
                f"which are numbered from 0 to {len(names) - 1}.",
            )
        )
        return place

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Classify the sequences."""
        index, encoded = self._index, self.read(model, sequences)
        found = self.run(
            encoded, lambda answer, _: -answer.logits.double().log_softmax(1)[:, index]
        )
        return found.to(sequences.tokens.device)

    def _inputs(self) -> dict[str, Any]:
        """Return the labels; refuse a label that the classifier has not."""
        _ = self._index
        return {"labels": self._labels}

    def __str__(self) -> str:
        return f"classifier({quoted(self.name)}, label={quoted(self.label)})"


class Similar(NetworkEnergy):
    """1 − cos(text, start text), of the means of a Hugging Face encoder's last vectors."""

    compares = True
    auto_class, what, unused = "AutoModel", "text encoder", "pooler."

    def __init__(self, name: str, loading: Loading | None = None) -> None:
        super().__init__(name, loading)
        self._known: dict[tuple[int, ...], Tensor] = {}

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Compare the embeddings."""
        starts = self.read(model, references(sequences, self))
        keys = [tuple(ids) for ids in contents(starts)]
        for row, key in enumerate(keys):
            if key not in self._known:
                # Alone: in another batch its last bits would differ, and chains resume anywhere.
                alone = Sequences(starts.tokens[row, None, : len(key)], starts.lengths[row, None])
                self._known[key] = self.run(alone, _mean)[0]
        embedded = self.run(self.read(model, sequences), _mean)
        compared = torch.stack([self._known[key] for key in keys])
        return (1 - (embedded * compared).sum(1)).to(sequences.tokens.device)

    def __str__(self) -> str:
        return f"similar({quoted(self.name)})"


def _mean(answer: Any, attention: Tensor) -> Tensor:
    """Return the mean of the vectors of each text, of length 1."""
    known = attention[:, :, None].double()
    mean = (answer.last_hidden_state.double() * known).sum(1) / known.sum(1)
    return torch.nn.functional.normalize(mean, dim=1)


class Autoregressive(NetworkEnergy):
    """−log p of the text under a causal LM, which may have its own tokenizer.

    With the masked model's vocabulary, its tokens are scored as they are. With another one the
    sequence is decoded and tokenised again: still one energy for each sequence, as Metropolis
    needs. The first token is scored after the model's start token.
    """

    auto_class, what, kind = "AutoModelForCausalLM", "causal language model", "causal"

    def __init__(
        self,
        name: str,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        trust_remote_code: bool = False,
        budget: int | None = None,
        allow_download: bool = True,
    ) -> None:
        refuse(
            (
                budget is not None and budget < 1,
                f"a token budget must be at least 1, not {budget}.",
            ),
        )
        super().__init__(name, Loading(device, trust_remote_code, allow_download, budget), dtype)

    @cached_property
    def _start(self) -> int:
        """The start token of a model that reads left to right."""
        refuse(
            (
                not _looks_left_only(self.network),
                f"'{self.name}' is not a causal language model; give one that was trained left to "
                "right.",
            ),
            kind=ModelError,
        )
        known = self.tokenizer
        tokens = (known.bos_token_id, known.cls_token_id, known.eos_token_id)
        return self._first(tokens, "start token to begin from.")

    @cached_property
    def _batcher(self) -> Batcher:
        config = self.network.config
        # Logits of the whole vocabulary at every position are what fills the memory.
        per_token = 4 * 3 * int(config.vocab_size) + 64 * int(config.hidden_size)
        return Batcher(self._loading.budget or token_budget(per_token, self._device))

    def token_terms(self, ids: Sequence[Sequence[int]]) -> list[Float[Tensor, " length"]]:
        """Return −log p of each token of sequences in this model's own vocabulary."""
        start, sizes = self._start, [len(sequence) for sequence in ids]
        check_lengths(sizes, self.max_length, self.name)
        terms = [torch.zeros(0, dtype=torch.float64)] * len(ids)

        def work(rows: Tensor, width: int) -> None:
            if not width:
                return  # no tokens, nothing to ask
            chosen = rows.tolist()
            # Padding on the right is never seen from the left, so it needs no mask.
            batch = padded([[start, *ids[index]] for index in chosen], 0, self._device).tokens
            with coarse(False):
                scores = self.network(input_ids=batch[:, :-1]).logits
            picked = scores.gather(2, batch[:, 1:, None]).squeeze(2)
            negative = (scores.logsumexp(2) - picked).double().cpu()
            for line, index in enumerate(chosen):
                terms[index] = negative[line, : sizes[index]]

        self._batcher.each(torch.tensor(sizes), work)
        refuse_nan(torch.cat([torch.zeros(0), *terms]), self.name)
        return terms

    @cached_property
    def end(self) -> int:
        """The token that ends a text."""
        tokens = (self.tokenizer.eos_token_id, self.tokenizer.sep_token_id)
        return self._first(tokens, "end token: texts have no length.")

    def _first(self, tokens: Sequence[int | None], what: str) -> int:
        """Return the first of some special tokens that the tokenizer has."""
        first = next((token for token in tokens if token is not None), None)
        return required(first, f"the tokenizer of '{self.name}' has no {what}", ModelError)

    def log_ends(
        self, longest: int, chain: Int[Tensor, " draws"], rng: Rng
    ) -> Float[Tensor, "draws longest1"]:
        """Draw texts without an end; return log p that each would have ended after 0, 1, … tokens.

        The mean of these probabilities over draws estimates, without bias, how probable it is that
        a text has so many tokens.
        """
        token, past, found = torch.full_like(chain, self._start), None, []
        going = torch.zeros(len(chain), dtype=torch.float64, device=chain.device)
        for place in range(longest + 1):
            with coarse(False):
                answer = self.network(
                    input_ids=token[:, None], past_key_values=past, use_cache=True
                )
            past, log_p = answer.past_key_values, answer.logits[:, -1].double().log_softmax(1)
            found.append(going + log_p[:, self.end])
            log_p[:, self.end] = -torch.inf
            going = going + log_p.logsumexp(1)
            step = torch.full_like(chain, place)
            token = rng.categorical(log_p.softmax(1), chain, step, Purpose.TOKEN)
        return torch.stack(found, dim=1)

    @property
    def max_length(self) -> int:
        """The most tokens of a text: the start token comes in, the last is only asked for."""
        return int(getattr(self.network.config, "max_position_embeddings", None) or 10**9)

    def control_ids(self) -> frozenset[int]:
        """Return the special tokens, which no text may hold, but for the one of unknown words."""
        return frozenset(self.tokenizer.all_special_ids) - {self.tokenizer.unk_token_id}

    def tokenise(self, text: str) -> list[int]:
        """Turn a text into this model's own tokens."""
        return list(map(int, token_ids(self.tokenizer, text, self.name, add_special_tokens=False)))

    def knows(self, text: str) -> bool:
        """Whether the tokenizer reads a text: it has tokens, and none is the unknown one."""
        ids = self.tokenise(text)
        return bool(ids) and self.tokenizer.unk_token_id not in ids

    def token_strings(self, ids: Sequence[int]) -> list[str]:
        """Return the spelling of this model's own tokens."""
        return [str(token) for token in self.tokenizer.convert_ids_to_tokens(list(ids))]

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Return −log p of each sequence, read in this model's vocabulary."""
        content = contents(sequences)
        if not self.shares_vocabulary(model):
            content = [self.tokenise(model.decode(sequence)) for sequence in content]
        energies = torch.stack([terms.sum() for terms in self.token_terms(content)])
        return energies.to(sequences.tokens.device)

    def terms(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, "n length"]:
        """Return the term of each position, where both models share their tokens."""
        refuse(
            (
                not self.shares_vocabulary(model),
                f"'{self.name}' has a different vocabulary from '{model.name}', so its terms "
                "belong to other tokens; ask for `token_terms` instead.",
            )
        )
        terms = torch.zeros(sequences.tokens.shape, dtype=torch.float64)
        for row, part in enumerate(self.token_terms(contents(sequences))):
            terms[row, : len(part)] = part
        return terms.to(sequences.tokens.device)

    def _inputs(self) -> dict[str, Any]:
        return {"start": self._start}

    def __str__(self) -> str:
        return f"autoregressive({self.name})"


def _looks_left_only(network: Any) -> bool:
    """Check that a later token changes nothing before it; encoders load as causal LMs too."""
    probe = torch.zeros((2, 3), dtype=torch.long, device=network.device)
    probe[1, 2] = 1
    with silence_transformers():
        scores = network(input_ids=probe).logits[:, :2]
    return bool(torch.allclose(scores[0], scores[1], rtol=1e-3, atol=1e-4, equal_nan=True))


def refuse_nan(values: Tensor, name: str) -> None:
    """Refuse what a damaged model gives."""
    if bool(values.isnan().any()):
        raise ModelError(
            f"the model '{name}' gave not-a-number scores (NaN); its weights are damaged."
        )


def check_lengths(lengths: Sequence[int], limit: int, name: str) -> None:
    """Refuse texts of more tokens than a model takes."""
    longest = max(lengths, default=0)
    if longest > limit:
        raise TooLongError(
            f"a text has {longest} tokens; '{name}' takes at most {limit}.",
            [length <= limit for length in lengths],
        )


def references(sequences: Sequences, energy: object) -> Sequences:
    """Return the texts that sequences are compared with."""
    table = sequences.reference
    if table is None or not table.shape[1]:
        raise InputError(
            f"the energy '{energy}' compares with the text that a chain started from: give texts "
            "to start from (--start-text)."
        )
    return Sequences(table.clamp(min=0), (table >= 0).sum(1))
