"""Hugging Face masked LMs, from a local folder or by hub name.

Families that `encoders/families.py` knows are read from their files and run in our own encoder:
transformers is not imported. All others run in their own network. A masked LM ends in a projection
onto the vocabulary, which is most of the cost of a small model and is needed at masked positions
only; families whose head is not known run their whole forward pass.
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import nn

from maskov.config import ModelSource
from maskov.encoders import LMHead
from maskov.encoders.families import UNSUPPORTED, Weights, describe_head, encoder_of
from maskov.errors import ModelError, refuse
from maskov.models.base import Queries, coarse
from maskov.models.checkpoint import (
    DIFFUSION,
    MASKED,
    MaskedCheckpoint,
    load_checkpoint,
    load_tokenizer,
)
from maskov.models.packed import PackedModel, pack_masked
from maskov.models.tokens import (
    MARKS,
    check_tokens,
    embedding_rows,
    forbidden_tokens,
    frame_of,
    other_letters,
    silence_transformers,
    with_mask,
)
from maskov.types import Float, Int, Tensor, inside

# Families whose positions start after the padding index, which lowers their maximum length.
_OFFSET_POSITIONS = frozenset(
    {"roberta", "xlm-roberta", "camembert", "esm", "longformer", "mpnet", "data2vec-text",
     "roberta-prelayernorm", "xlm-roberta-xl", "xmod", "ibert"}
)  # fmt: skip

# Tolerated difference between two ways to compute a score, relative to the largest, by dtype.
_TOLERANCE = {torch.float64: 1e-9, torch.float16: 1e-2, torch.bfloat16: 8e-2}
# Texts to compare them on are not longer.
_LONGEST = 300


class HuggingFaceModel(PackedModel):
    """A masked LM and its tokenizer; the head runs at the masked positions only.

    The network may also be any other that returns logits for each token, such as a masked diffusion
    model.
    """

    # Whether the network computes the same in a padded batch, and whether it is told a time.
    pads: bool = True
    _takes_time: bool = False

    def __init__(
        self, network: Any, tokenizer: Any, source: ModelSource | str, caution: str = ""
    ) -> None:
        self._named(source)
        config = getattr(network, "config", None)
        wanted = self.source.mask_token_id
        diffusion = self.source.architecture == "masked-diffusion"
        if wanted is None and tokenizer.mask_token_id is None and diffusion:
            wanted = setting(config, "mask_token_id")
        refuse(
            (
                wanted is None and tokenizer.mask_token_id is None,
                f"the tokenizer of '{self.name}' has no mask token; it is not a masked language "
                "model, or else name its mask: --model 'NAME(mask_token_id=5)'.",
            ),
            kind=ModelError,
        )
        tokenizer = with_mask(tokenizer, wanted, self.name)
        self.caution = caution
        plain = isinstance(network, MaskedCheckpoint)
        # One weight has the device and dtype of all.
        weight = network.head.weight if plain else next(network.parameters())
        self._use(network, tokenizer, weight, *frame_of(tokenizer, self.name))
        pad = tokenizer.pad_token_id
        self._pad_id = int(pad) if pad is not None else self.mask_id
        # A tokenizer that was given its mask here does not know that words hold their space.
        self.mask_takes_space = diffusion and any(
            len(token) > 1 and token[0] in MARKS for token in tokenizer.get_vocab()
        )
        self.max_length = capacity(config, tokenizer) - self.frame.size
        if plain:
            self.encoder, self.head = network.encoder, network.head
            self._use_tokens(len(self.head.weight))
        else:
            self._use_network(network)
        self.packs = self.encoder is not None

    def _use_tokens(self, size: int) -> None:
        """Find out which tokens of a network of so many must never be proposed."""
        check_tokens(self.tokenizer, size, self.name)
        self.forbidden = forbidden_tokens(self.tokenizer, size).to(self.device)
        refuse(
            (
                bool(self.forbidden.all()),
                f"every token of '{self.name}' is special, as if it came without a tokenizer: give "
                "one, a folder, a hub name or a vocab.txt: --model 'NAME(tokenizer=vocab.txt)'.",
            ),
            kind=ModelError,
        )
        self.only_given = other_letters(self.token_strings(range(size)), self.forbidden)
        self.forbidden[list(self.only_given)] = True

    def _use_network(self, network: Any) -> None:
        """Use a network, and our encoder if both agree."""
        check_tokens(self.tokenizer, embedding_rows(network), self.name)
        # No parameter needs gradients, so no inference context is needed anywhere.
        self.network = network.eval().requires_grad_(False)
        self._takes_time = "timesteps" in inspect.signature(network.forward).parameters
        refuse(
            (
                self._takes_time and setting(network.config, "time_conditioning"),
                f"the conditionals of '{self.name}' depend on a time: fix it in a network of your "
                "own, and give that to `maskov.load(network, tokenizer=...)`.",
            ),
            kind=ModelError,
        )
        ids = torch.tensor(
            [[*self.frame.before, self.mask_id, self.mask_id, *self.frame.after]],
            device=self.device,
        )
        with silence_transformers():
            try:
                size = self._scores(ids).shape[-1]
            except Exception as error:
                raise ModelError(
                    f"'{self.name}' gave no logits for two masks, so it is not a masked language "
                    f"model: {str(error).partition(chr(10))[0]}"
                ) from error
            self._use_tokens(size)
            self._check_attention()
            self.head = self.encoder = None
            if not self.source.shift_logits:
                self._use_own_passes(network)

    def _use_own_passes(self, network: Any) -> None:
        """Use our split head, and our encoder, if the network's own forward gives the same.

        Third-party code may use a known family name for a different network.
        """
        encoder = encoder_of(network)
        blocks = () if encoder is None else encoder.blocks
        # One sequence is longer than every window, unless that would take too long.
        windows = [block.window for block in blocks if block.window and block.window < _LONGEST]
        longest = max([9, *(window + 4 for window in windows)])
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")  # the two sides would round differently
        try:
            head, theirs = family_head(network), self._probe(longest)
            limit = _TOLERANCE.get(self.dtype, 1e-3) * theirs.abs().max()
            for self.encoder in (encoder, None):
                self.head = head
                ours = self._probe(longest)
                if ours.shape == theirs.shape and bool((ours - theirs).abs().max() <= limit):
                    return
                self.head = None
        except (*UNSUPPORTED, RuntimeError):
            self.head = self.encoder = None
        finally:
            torch.set_float32_matmul_precision(precision)

    def _probe(self, longest: int) -> Float[Tensor, "passes vocabulary"]:
        """Return the scores at every place of two texts, in batches of mixed and of one length."""
        sizes = [min(size, self.max_length) for size in (5, longest)]
        lengths = torch.tensor([size for size in sizes for _ in range(size)], device=self.device)
        place = torch.cat([torch.arange(size, device=self.device) for size in sizes])
        allowed = (~self.forbidden).nonzero().flatten()
        token = allowed[3 * torch.arange(max(sizes), device=self.device) % len(allowed)]
        tokens, long = token.expand(len(lengths), -1), lengths == sizes[1]
        batches = [(tokens, lengths, place), (tokens[long], lengths[long], place[long])]
        return torch.cat([self.logits(self.hidden_at(*batch)) for batch in batches])

    def _check_attention(self) -> None:
        """Refuse a network that looks to the left only, and find out whether it can be padded."""
        first, *_, last = (~self.forbidden).nonzero().flatten().tolist() * 2
        before, after = self.frame.before.tolist(), self.frame.after.tolist()
        # A masked token between two others, and either of these changed.
        rows = [
            [*before, left, self.mask_id, right, *after]
            for left, right in ((first, first), (last, first), (first, last))
        ]
        ids, place = torch.tensor(rows, device=self.device), len(before) + 1
        scores = self._scores(ids)[:, place]
        left, right = ((scores[0] - scores[row]).abs().max() for row in (1, 2))
        refuse(
            (
                bool(right <= 1e-5 * scores[0].abs().max() and 100 * right < left),
                f"'{self.name}' looks to the left only, so it has no masked conditionals: give a "
                "model with bidirectional attention, or use this one as 'autoregressive(NAME)'.",
            ),
            kind=ModelError,
        )
        padded = torch.nn.functional.pad(ids[:1], (0, 2), value=self._pad_id)
        attention = (torch.arange(padded.shape[1], device=self.device) < ids.shape[1])[None].long()
        try:
            apart = self._scores(padded, attention)[0, place] - scores[0]
            self.pads = bool(apart.abs().max() <= 1e-4 * scores[0].abs().max())
        except Exception:  # whatever a network raises that takes no mask
            self.pads = False

    def _scores(
        self, ids: Int[Tensor, "passes length"], attention: Tensor | None = None
    ) -> Float[Tensor, "passes length vocabulary"]:
        """Run the network; return the scores of the tokens at each position."""
        given = {} if attention is None else {"attention_mask": attention}
        if self._takes_time:
            given["timesteps"] = torch.zeros(len(ids), dtype=self.dtype, device=ids.device)
        answer = self.network(ids, **given)
        answer = answer[0] if type(answer) in (tuple, list) else answer
        logits: Tensor = answer if isinstance(answer, Tensor) else answer.logits
        if logits.shape[:-1] != ids.shape:
            raise ModelError(f"its logits have the shape {tuple(logits.shape)}")
        # Position 0 has nothing before it; those who train such models use its own logits.
        return torch.cat([logits[:, :1], logits[:, :-1]], 1) if self.source.shift_logits else logits

    @cached_property
    def network(self) -> Any:
        """The Hugging Face network; if our encoder was read without it, it is built when used."""
        return self.checkpoint.network()

    @classmethod
    def load(
        cls,
        folder: str,
        source: ModelSource | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        tokenizer: Any = None,
        allow_download: bool = True,
    ) -> HuggingFaceModel:
        """Load a checkpoint, a folder or a hub name; no code in pickled weights runs.

        Its name is that of the `source`, by default what it is loaded from. Without
        `allow_download` the hub is not asked.
        """
        source = source or ModelSource(folder)
        network, loaded = load_checkpoint(
            MASKED if source.architecture == "masked-lm" else DIFFUSION,
            "masked language model",
            folder,
            dtype,
            tokenizer,
            source.trust_remote_code,
            allow_download,
        )
        return cls(network.to(device), loaded, source)

    @classmethod
    def in_memory(
        cls,
        network: nn.Module,
        tokenizer: Any,
        source: ModelSource,
        device: torch.device | None,
        dtype: torch.dtype,
    ) -> HuggingFaceModel:
        """Use a network that is loaded already, and stays as it is; weights are shared, if equal.

        It stays on its device unless another one is given.
        """
        if isinstance(tokenizer, str):
            tokenizer = load_tokenizer(tokenizer, source.trust_remote_code)
        refuse(
            (
                not hasattr(tokenizer, "mask_token_id"),
                "a network in memory needs its tokenizer, one of transformers or its folder: "
                "maskov.load(network, tokenizer=tokenizer).",
            )
        )
        known: dict[int, Any] = {id(value): value.detach() for value in network.buffers()}
        known |= {id(one): nn.Parameter(one.detach(), False) for one in network.parameters()}
        own = copy.deepcopy(network, known)
        return cls(own.to(device or next(own.parameters()).device, dtype), tokenizer, source)

    def with_prefix(self, text: str) -> HuggingFaceModel:
        """Return this model reading a text before every sequence, which is not part of it.

        The text conditions every pass; chains, energies and experts do not see it.
        """
        ids = self.encode(text)
        room = self.max_length - len(ids)
        refuse(
            (
                self.source.prefix,
                f"'{self.name}' reads a prefix already: '{self.source.prefix}'.",
            ),
            (
                not ids or bool(self.forbidden[torch.tensor(ids, device=self.device)].any()),
                f"the prefix '{text}' has no words, or some that '{self.name}' lacks.",
            ),
            (room < self.min_length, f"the prefix '{text}' leaves no room for a sequence."),
        )
        added = torch.tensor(ids, device=self.device)
        frame = replace(self.frame, before=torch.cat([self.frame.before, added]))
        return self.changed(source=replace(self.source, prefix=text), frame=frame, max_length=room)

    def with_letters(self, letters: str) -> HuggingFaceModel:
        """Return this model of proteins proposing more letters than the 20 amino acids: "XU"."""
        ids = sorted(self.only_given)
        names = [name.lstrip(MARKS) for name in self.token_strings(ids)]
        wanted = sorted(set(letters))
        refuse(
            (
                not names,
                f"'{self.name}' has no letters besides the 20 amino acids, or is not a model of "
                "proteins: drop extra_letters.",
            ),
            *(
                (
                    one not in names,
                    f"'{one}' is not an extra letter of '{self.name}'; those are {''.join(names)}.",
                )
                for one in wanted
            ),
        )
        chosen = [number for number, name in zip(ids, names, strict=True) if name in wanted]
        forbidden = self.forbidden.clone()
        forbidden[chosen] = False
        letters = self.source.extra_letters + "".join(wanted)
        return self.changed(
            source=replace(self.source, extra_letters=letters),
            only_given=self.only_given - set(chosen),
            forbidden=forbidden,
        )

    def hidden(self, queries: Queries, several: bool = True) -> Float[Tensor, "masked hidden"]:
        """Run the masked sequences and select the masked positions."""
        if self.encoder is not None:
            return super().hidden(queries, several)
        row, place = queries.masked.nonzero(as_tuple=True)
        sizes = {int(queries.lengths.max())} if self.pads else set(queries.lengths.tolist())
        if len(sizes) > 1:
            alike = {size: queries.lengths == size for size in sizes}
            parts = [
                self.hidden(queries.rows(rows.nonzero().flatten(), size))
                for size, rows in alike.items()
            ]
            where = torch.cat([rows[row].nonzero().flatten() for rows in alike.values()])
            return torch.cat(parts)[where.argsort()]
        passes = pack_masked(queries.tokens, queries.lengths, queries.masked, self.frame)
        lengths = queries.lengths + self.frame.size
        rows = list(torch.split(passes.ids, lengths.tolist()))
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self._pad_id)
        # Without padding no mask is needed, and attention is faster without one.
        within = inside(lengths, ids.shape[1])
        attention = None if bool(within.all()) else within.long()
        at = (row, place + len(self.frame.before))
        with coarse(self.coarse_products):
            if self.head is None:
                logits = self._scores(ids, attention)[at]
                # Sums of scores are not to be rounded to 16 bits.
                return logits.float() if logits.dtype.itemsize < 4 else logits
            states = self.network.base_model(input_ids=ids, attention_mask=attention)[0]
            return self.project(states[at])

    @property
    def bytes_per_token(self) -> int:
        """Estimate the activations of one layer, plus all logits if the head is not split."""
        config = getattr(self.checkpoint, "config", None)
        sizes = (setting(config, name) for name in ("hidden_size", "dim", "d_model"))
        # Input, 4 for attention, 4 x 2 for the feed-forward, and slack.
        width = 16 * int(next(filter(None, sizes), 512))
        if self.head is None:
            width += 2 * self.vocabulary_size
        return width * self.dtype.itemsize

    def other_inputs(self) -> dict[str, Any]:
        """Return the special tokens around a text, and those that fill up a batch."""
        frame = [self.frame.before.tolist(), self.frame.after.tolist()]
        shifted = {"shift_logits": True} if self.source.shift_logits else {}
        return {"frame": frame, "pad": self._pad_id, **shifted}


def setting(config: Any, name: str) -> Any:
    """Return a setting of a network: of its config.json, or of the object for it; None if none."""
    return config.get(name) if isinstance(config, dict) else getattr(config, name, None)


def capacity(config: Any, tokenizer: Any) -> int:
    """Return how many tokens the model takes, special ones included."""
    names = ("max_position_embeddings", "max_sequence_length", "model_length")
    limit = int(next(filter(None, (setting(config, name) for name in names)), 10**9))
    if setting(config, "model_type") in _OFFSET_POSITIONS:
        limit -= int(setting(config, "pad_token_id") or 0) + 1
    return min(limit, int(min(tokenizer.model_max_length, 10**9)))


def family_head(network: Any) -> LMHead:
    """Return the head of a network of a known family, with its own parameters."""
    weights = dict(network.named_parameters(remove_duplicate=False))
    return describe_head(network.config.to_dict(), Weights(weights))
