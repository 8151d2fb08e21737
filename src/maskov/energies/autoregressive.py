"""Energies of left-to-right models: −log p(text), and −log p(translation | source)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from maskov.energies.base import Energy
from maskov.energies.networks import Loading, NetworkEnergy, check_lengths, contents, refuse_nan
from maskov.errors import InputError, ModelError
from maskov.models.autoregressive import AutoregressiveTranslator
from maskov.models.base import MaskedModel, coarse
from maskov.models.checkpoint import translation_folder
from maskov.models.conditional import ConditionalModel, Sources
from maskov.models.scorer import Batcher, token_budget
from maskov.models.tokens import silence_transformers, token_ids
from maskov.types import Float, Sequences, Tensor


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
        if budget is not None and budget < 1:
            raise InputError(f"a token budget must be at least 1, not {budget}.")
        super().__init__(name, Loading(device, trust_remote_code, allow_download, budget), dtype)

    @cached_property
    def _start(self) -> int:
        """The start token of a model that reads left to right."""
        if not _looks_left_only(self.network):
            raise ModelError(
                f"'{self.name}' is not a causal language model; give one that was trained left to "
                "right."
            )
        known = self.tokenizer
        for token in (known.bos_token_id, known.cls_token_id, known.eos_token_id):
            if token is not None:
                return int(token)
        raise ModelError(f"the tokenizer of '{self.name}' has no start token to begin from.")

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
            read = [torch.tensor([start, *ids[index]]) for index in chosen]
            # Padding on the right is never seen from the left, so it needs no mask.
            batch = pad_sequence(read, batch_first=True).to(self._device)
            with coarse(False):
                scores = self.network(input_ids=batch[:, :-1]).logits
            picked = scores.gather(2, batch[:, 1:, None]).squeeze(2)
            negative = (scores.logsumexp(2) - picked).double().cpu()
            for line, index in enumerate(chosen):
                terms[index] = negative[line, : sizes[index]]

        self._batcher.each(torch.tensor(sizes), work)
        refuse_nan(torch.cat([torch.zeros(0), *terms]), self.name)
        return terms

    @property
    def max_length(self) -> int:
        """The most tokens of a text: the start token comes in, the last is only asked for."""
        return int(getattr(self.network.config, "max_position_embeddings", None) or 10**9)

    def control_ids(self) -> frozenset[int]:
        """Return the special tokens, which no text may hold, but for the one of unknown words."""
        return frozenset(self.tokenizer.all_special_ids) - {self.tokenizer.unk_token_id}

    def tokenise(self, text: str) -> list[int]:
        """Turn a text into this model's own tokens."""
        ids = token_ids(self.tokenizer, text, self.name, add_special_tokens=False)
        return [int(i) for i in ids]

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
        if not self.shares_vocabulary(model):
            raise InputError(
                f"'{self.name}' has a different vocabulary from '{model.name}', so its terms "
                "belong to other tokens; ask for `token_terms` instead."
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


class AutoregressiveTranslation(Energy):
    """−log p(y | source) of a translation and its end, under a model with the same tokens.

    It reads each chain's own source, encodes all sources once and costs one decoder pass a
    sequence. It compares translations of any length. Those too long for the model have probability
    zero.
    """

    # One pass, and the scores of the whole vocabulary at each position.
    cost = 1.5

    def __init__(
        self, name: str, loading: Loading | None = None, dtype: torch.dtype = torch.float32
    ) -> None:
        self._loading = loading or Loading()
        self.name, self._dtype = self._loading.find(name), dtype
        self._sources: Sources | None = None
        self._checked: MaskedModel | None = None

    @cached_property
    def _model(self) -> AutoregressiveTranslator:
        folder = translation_folder(self.name) or Path(self.name)
        device = torch.device(self._loading.device)
        return AutoregressiveTranslator.load(folder, device, self.name, self._dtype)

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Return −log p of each translation, its end included."""
        return self.terms(model, sequences).sum(1)

    def terms(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, "n length"]:
        """Return the term of each position; the last one's includes the end."""
        sources, reader = self._read(model), self._model
        if sequences.source is None:
            raise no_sources(self, model)
        given = (sequences.source, sequences.tokens, sequences.lengths)
        source, tokens, lengths = (one.to(reader.device) for one in given)
        # What is too long is read in part, and is impossible whatever that gives.
        kept = lengths.clamp(max=reader.max_length)
        with coarse(isinstance(model, ConditionalModel) and model.coarse_products):
            found = reader.token_terms(sources, source, tokens[:, : reader.max_length], kept)
        refuse_nan(found, self.name)
        last = kept[:, None]
        end = found.gather(1, last)
        terms = found.scatter(1, last, 0.0)[:, :-1].scatter_add(1, last - 1, end)
        terms[:, 0] = terms[:, 0].masked_fill(lengths > reader.max_length, torch.inf)
        padded = torch.nn.functional.pad(terms, (0, tokens.shape[1] - terms.shape[1]))
        return padded.to(sequences.tokens.device)

    def _read(self, model: MaskedModel) -> Sources:
        """Return the sources of a model as this energy's own network encodes them."""
        if not isinstance(model, ConditionalModel) or model.sources is None:
            raise no_sources(self, model)
        if self._checked is not model:
            if self._model.tokenizer.get_vocab() != model.tokenizer.get_vocab():
                raise InputError(
                    f"'{self.name}' and '{model.name}' have different tokens: the energy '{self}' "
                    "needs a model with the same vocabulary."
                )
            self._checked = model
        if self._sources is None or self._sources.texts != model.sources.texts:
            self._sources = self._model.read(model.sources.texts)
        return self._sources

    def models(self) -> dict[str, str]:
        """Name the model and its fingerprint."""
        return {self.name: self._model.fingerprint()}

    def __str__(self) -> str:
        return f"autoregressive({self.name})"


def no_sources(energy: Energy, model: MaskedModel) -> InputError:
    """Return the refusal of a model that has no sources."""
    return InputError(
        f"the energy '{energy}' scores translations, and '{model.name}' has no sources here: use "
        "it with `maskov translate`, or with `model.given(texts)` of a translation model."
    )
