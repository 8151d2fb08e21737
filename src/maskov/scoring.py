"""Score texts: the energy of each and what every token contributes to it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from maskov import api
from maskov.arguments import arguments_of, energy_of
from maskov.energies import Autoregressive, Energy, Norm, Raw
from maskov.energies.base import distinct_names, evaluated
from maskov.energies.networks import Loading
from maskov.energies.ordered import Ordered
from maskov.errors import InputError, refuse, required
from maskov.fasta import Record, causal_spellings, spelled
from maskov.models import MaskedModel
from maskov.models.conditional import ConditionalModel, given_sources
from maskov.models.scorer import Scorer
from maskov.models.tokens import spelling, words_of
from maskov.shipped import default_judge, default_model
from maskov.texts import read_text
from maskov.types import Float, Sequences, Tensor, padded

# Texts held at once: the masked passes of more than this add nothing to a full batch.
_GROUP = 256


@dataclass(frozen=True)
class Score:
    """A text's energy; `terms` belong to `tokens` and add up to it.

    Parts of the energy that have no terms, such as a classifier, are in `experts` by name, with
    their weights; they are added to the terms. `name` is that of a record of FASTA. Other texts
    have `words`, separated by spaces, whose `word_terms` are the sums of their tokens' terms.
    `unknown` counts the tokens that the model does not know. `energies` are by name: `raw` and
    `norm`, which the same masked passes give, and the energy that was asked for if it is another.
    Where it is `normalised`, it is −log p of the text, given its length.
    """

    text: str
    tokens: list[str]
    energy: float
    terms: list[float]
    name: str | None = None
    experts: dict[str, float] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    word_terms: list[float] = field(default_factory=list)
    unknown: int = 0
    energies: dict[str, float] = field(default_factory=dict)
    normalised: bool = False

    @property
    def likelihood(self) -> dict[str, float]:
        """Nats per token and per word, and bits per byte, where the energy is −log p."""
        return likelihood([self])

    def to_json(self) -> str:
        """Return the score as one line of JSON."""
        unused = {name for name in ("experts", "unknown") if not getattr(self, name)}
        # A sequence, which has a name, has no words.
        unused |= {"normalised", *(["name"] if self.name is None else ["words", "word_terms"])}
        data = {name: value for name, value in asdict(self).items() if name not in unused}
        return json.dumps(data | self.likelihood, ensure_ascii=False)


def likelihood(scores: Sequence[Score]) -> dict[str, float]:
    """Return nats per token and per word, and bits per byte, of texts together.

    Only normalised energies have these; FASTA has no words.
    """
    if not scores or not all(score.normalised for score in scores):
        return {}
    nats = sum(score.energy for score in scores)
    found = {"nats_per_token": nats / sum(len(score.tokens) for score in scores)}
    if scores[0].name is None:
        found["nats_per_word"] = nats / max(sum(len(score.text.split()) for score in scores), 1)
        size = sum(len(score.text.encode()) for score in scores)
        found["bits_per_byte"] = nats / (math.log(2) * max(size, 1))
    return found


def score_as_asked(**given: Any) -> tuple[list[Score], MaskedModel | None]:
    """Score as the arguments of `maskov.score` say; return the masked model, too, if one scored."""
    asked = arguments_of(api.score, given)
    budget, energy = asked.token_budget, asked.energy
    refuse((budget is not None and budget < 1, f"--token-budget must be at least 1, not {budget}."))
    given_model = asked.given_model()
    source, device = given_model.source, given_model.device
    if energy == "autoregressive":
        refuse(
            *(
                (
                    getattr(source, name, None),
                    f"the energy 'autoregressive' has no '{name}': drop it.",
                )
                for name in ("prefix", "remove_smoothing", "extra_letters")
            )
        )
        named = None if source is None or source.name == default_model() else source.name
        name = required(
            named or default_judge(), "name a causal LM: --energy 'autoregressive(MODEL)'."
        )
        energy = Autoregressive(
            name, device, trust_remote_code=asked.trust_remote_code, budget=budget
        )
    else:
        energy = energy_of(energy, Loading(device, asked.trust_remote_code, budget=budget))
    if isinstance(asked.energy, str) and isinstance(energy, Autoregressive):
        return score_autoregressive(energy, asked.texts), None
    model = given_model.load()
    if asked.sources:
        model = given_sources(model, asked.sources)
    return score_texts(model, asked.texts, energy, budget), model


def score_texts(
    model: MaskedModel,
    texts: Sequence[str | Record],
    energy: Energy,
    budget: int | None = None,
) -> list[Score]:
    """Return the energy of each text under a masked model; the order is kept.

    Under a translation model that was given sources, text i is the translation of source i.
    """
    sources = model.sources if isinstance(model, ConditionalModel) else None
    if sources is not None and len(sources.texts) != len(texts):
        raise InputError(
            f"'{model.name}' has {len(sources.texts)} sources, and there are {len(texts)} texts: "
            "give one translation of each source."
        )
    lines = [
        read_text(model, spelled(model, text), f"'{text.name}'")
        if isinstance(text, Record)
        else read_text(model, text, f"line {number}", unknown=True)
        for number, text in enumerate(texts, 1)
    ]
    engine = Scorer(model, budget)
    scores: list[Score] = []
    for begin in range(0, len(lines), _GROUP):
        group = lines[begin : begin + _GROUP]
        given = padded(group, model.mask_id, model.device)
        if sources is not None:
            given = replace(given, source=begin + torch.arange(len(group), device=model.device))
        alone = energy.groups is None  # each position is masked alone, as E_raw and E_norm have it
        named: dict[str, list[float]] = {}
        if energy.needs_passes:
            known = engine.cache(given, alone or energy.needs_normaliser, groups=energy.groups)
            engine.check()
            given = replace(given, pass_cache=known)
            named = {str(one): one(model, given).tolist() for one in (Raw(), Norm()) if alone}
        terms, experts = _parts(energy, model, given)
        for row, (text, ids) in enumerate(zip(texts[begin : begin + _GROUP], group, strict=True)):
            kept = terms[row, : len(ids)]
            whole = {name: float(values[row]) for name, values in experts.items()}
            total = float(kept.sum()) + sum(whole.values())
            strings = model.token_strings(ids)
            unknown = sum(not model.may_stand(token) for token in ids)
            # The energy that was asked for is the first, unless it is one of both.
            energies = {} if str(energy) in named else {str(energy): total}
            energies |= {name: values[row] for name, values in named.items()}
            scores.append(
                Score(
                    str(text), strings, total, kept.tolist(), getattr(text, "name", None), whole,
                    *_by_word(str(text), strings, kept.tolist()), unknown, energies,
                    isinstance(energy, Ordered),
                )
            )  # fmt: skip
    return scores


def _parts(
    energy: Energy, model: MaskedModel, given: Sequences
) -> tuple[Float[Tensor, "n length"], dict[str, Float[Tensor, " n"]]]:
    """Return the terms of each position, and the parts of the energy that have none, by name."""
    terms = torch.zeros(given.tokens.shape, dtype=torch.float64)
    experts, values = list[Energy](), list[Tensor]()
    for weight, part in energy.parts:
        try:
            terms += weight * part.terms(model, given).cpu()
        except InputError:  # it has no terms, or those of other tokens
            experts.append(part)
            values.append(weight * evaluated(part, model, given).cpu())
    return terms, dict(zip(distinct_names(experts), values, strict=True))


def _by_word(
    text: str, tokens: Sequence[str], terms: Sequence[float]
) -> tuple[list[str], list[float]]:
    """Return the words of a text and the sum of the terms of each."""
    numbers = words_of(text, tokens)
    words: list[list[str]] = [[] for _ in range(numbers[-1] + 1 if numbers else 0)]
    sums = [0.0] * len(words)
    for number, token, term in zip(numbers, tokens, terms, strict=True):
        words[number].append(token)
        sums[number] += term
    given = text.split()
    return given if len(given) == len(words) else [spelling(each) for each in words], sums


def score_autoregressive(energy: Autoregressive, texts: Sequence[str | Record]) -> list[Score]:
    """Return −log p of each text under a causal LM, in that model's own tokens."""
    records = [text for text in texts if isinstance(text, Record)]
    spelt = iter(causal_spellings(energy, records))
    lines = [energy.tokenise(next(spelt) if isinstance(text, Record) else text) for text in texts]
    for number, ids in enumerate(lines, 1):
        refuse(
            (not ids, f"line {number} is empty; give at least one word."),
            (
                energy.control_ids() & set(ids),
                f"line {number} holds a mask or another special token; take it out.",
            ),
        )
    scores = []
    for text, ids, terms in zip(texts, lines, energy.token_terms(lines), strict=True):
        tokens, total = energy.token_strings(ids), float(terms.sum())
        scores.append(
            Score(
                str(text), tokens, total, terms.tolist(), getattr(text, "name", None), {},
                *_by_word(str(text), tokens, terms.tolist()), energies={"autoregressive": total},
            )
        )  # fmt: skip
    return scores
