"""Rewrite texts: chains that start at each text and sample texts like it that please an expert.

    p(x) ∝ exp(−(fluency(x) + strength · toward(x) + keep · edit(x, start)) / T)

All lines are one run. With a folder it is kept there, and rewriting the same lines again continues
it. Records of FASTA are rewritten as lines are, and keep their names. Empty lines stay empty.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from maskov import api
from maskov.arguments import (
    Arguments,
    arguments_of,
    constraints_of,
    energy_of,
    refuse_unused,
    workers_of,
)
from maskov.config import LinearSchedule, Schedule
from maskov.energies import Autoregressive, Energy
from maskov.energies.counting import Avoids, Contains, Distance, Edit, Repeats, words_changed
from maskov.energies.stages import DelayedAcceptance
from maskov.errors import refuse
from maskov.evaluation import most_alike
from maskov.fasta import Record, letter, mutations
from maskov.kernels.registry import change_lengths, named_kernel, parse_moves
from maskov.models import MaskedModel
from maskov.moves import MaskedConditional, Move
from maskov.plan import Plan, execute, plan, plan_to_continue
from maskov.runs.coordinator import Listener
from maskov.runs.manifest import resizes
from maskov.runs.preparation import named_texts
from maskov.runs.result import Run
from maskov.runs.store import Store
from maskov.shipped import default_judge
from maskov.texts import read_text

PICKS = ("lowest", "last", "mbr")
# Mutations of records can be listed only where lengths are fixed. Single sites propose from cached
# passes, so that most of their steps cost experts alone.
_MOVES_OF_RECORDS = "site:6,span(2:3):2"
_MOVES = f"{_MOVES_OF_RECORDS},insert-delete:1"


@dataclass(frozen=True)
class Rewriting:
    """A line and what became of it, with every energy by name.

    An empty line has no energies. A line that did not change is as it was, in its own case.
    `changes` are the words that were inserted, deleted or replaced, of a record of FASTA the
    letters. A record has a `name`, its texts are letters without spaces, and `mutations`, where
    lengths are fixed, are the differences to it, such as S31R.
    """

    line: int
    source: str
    text: str
    changes: int
    chain: int
    epoch: int
    energies: dict[str, float]
    name: str | None = None
    mutations: list[str] | None = None

    def to_json(self) -> str:
        """Return one line of JSON."""
        data = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(data, ensure_ascii=False)


@dataclass(frozen=True)
class Task:
    """Texts to rewrite: by which model and energy, and the plan for `lines` that are not empty."""

    asked: Arguments
    model: MaskedModel
    energy: Energy
    lines: Sequence[int]
    plan: Plan | None

    def rewritings(
        self, listener: Listener | None, stop: Callable[[], bool] | None
    ) -> list[Rewriting]:
        """Return a rewriting of each text in order, or one of each chain."""
        texts, every_chain, full = self.asked.texts, self.asked.every_chain, set(self.lines)
        found = [
            Rewriting(line, str(text), str(text), 0, chain, 0, {})
            for line, text in enumerate(texts)
            for chain in range(self.asked.chains if every_chain else 1)
            if line not in full
        ]
        if self.plan is not None:
            run = execute(self.plan, listener, stop)
            given = [texts[line] for line in self.lines]
            chosen = picked(self.model, run, given, self.asked.pick, every_chain)
            found += [replace(one, line=self.lines[one.line]) for one in chosen]
        if listener is not None:
            self._note_lacking(found, listener)
        return sorted(found, key=lambda one: one.line)

    def _note_lacking(self, found: Sequence[Rewriting], listener: Listener) -> None:
        """Say how many lines lack a word that an expert asks for."""
        asked = [part for _, part in self.energy.parts if isinstance(part, Contains)]
        lacking = {
            one.line for one in found if any(one.energies.get(str(part), 0) > 0 for part in asked)
        }
        if lacking:
            words = ", ".join(word for part in asked for word in part.words)
            listener.noted(
                f"{len(lacking)} of {len(self.lines)} lines still lack a word: a masked LM seldom "
                f"proposes a given one, so put it in with --contains {words!r}"
            )


def plan_rewriting(**given: Any) -> Task:
    """Return what to rewrite, and how, from the arguments of `maskov.rewrite`; or refuse them.

    The plan continues what `out` holds, if it was begun alike.
    """
    asked = arguments_of(api.rewrite, given)
    given_model, texts, out = asked.given_model(), asked.texts, asked.out
    loading = given_model.loading()
    moves, weights = _moves(asked)
    schedule, energy = _schedule(asked), energy_of(asked.fluency, loading)
    if asked.toward not in (None, ""):
        energy = energy + asked.strength * energy_of(asked.toward, loading)
    if asked.keep:
        energy = energy + asked.keep * Edit()
    kernel = named_kernel("mh", energy, moves, weights, delayed=DelayedAcceptance(2))
    model = given_model.load(asked.precision)
    spelled, names = named_texts(model, texts)
    lines = [line for line, text in enumerate(spelled) if text.strip()]
    if names is not None:
        _check_experts(energy, model, max(spelled, key=len))
    else:
        for line in lines:  # refused by its own number
            read_text(model, spelled[line], f"line {line + 1}")
    if not lines:
        return Task(asked, model, energy, lines, None)
    freeze = asked.freeze
    if freeze is not None and not isinstance(freeze, str) and len(freeze) == len(texts):
        freeze = [freeze[line] for line in lines]
    begun = out is not None and (out / "manifest.json").is_file()
    options = {
        "model": model, "kernel": kernel, "schedule": schedule, "chains": asked.chains,
        "texts": [texts[line] for line in lines], "out": None if begun else out,
        "length_prior": "none" if resizes(kernel) else None, "freeze": freeze, "seed": asked.seed,
        "token_budget": asked.token_budget, "resident": asked.resident,
        "source": given_model.source, "workers": workers_of(asked),
    }  # fmt: skip
    planned = plan(**options)
    # Large runs have the tokens of epochs with samples alone.
    if "tokens" not in Store(planned.manifest).traced():
        planned = plan(**options, thin=1)
    return Task(asked, model, energy, lines, plan_to_continue(planned, out) if begun else planned)


def _moves(asked: Arguments) -> tuple[tuple[Move, ...], tuple[float, ...]]:
    """Return the moves that rewrite lines, or records of FASTA, and how often each is made."""
    refuse_unused(asked, "temperature", "contains", "avoid", "allow", "max_changes")
    heat = asked.target_temperature
    aims = (asked.toward, asked.contains, asked.avoid, asked.allow)
    refuse(
        (
            all(one in (None, "") for one in aims),
            "give --toward, what texts should become, or --contains, a word.",
        ),
        (
            asked.pick not in PICKS,
            f"unknown pick '{asked.pick}'; use one of {', '.join(PICKS)}.",
        ),
        (
            not (asked.strength >= 0 and asked.keep >= 0),
            "--strength and --keep are weights: 0 or more.",
        ),
        (not heat > 0, f"the target temperature must be above 0, not {heat:g}."),
    )
    moves, records = asked.moves, any(isinstance(text, Record) for text in asked.texts)
    if moves is None:
        moves = _MOVES_OF_RECORDS if records else _MOVES
    proposal = MaskedConditional(
        asked.temperature, constraints=constraints_of(asked, change_lengths(moves))
    )
    return parse_moves(moves, proposal)[:2]


def _schedule(asked: Arguments) -> Schedule:
    """Return the schedule: a hotter temperature falls within the first half of the epochs."""
    hot, cold, half = asked.hot, asked.target_temperature, asked.epochs // 2
    if hot <= cold or not half:
        return Schedule(asked.epochs, target_temperature=LinearSchedule(cold, 0.0, cold))
    falling = LinearSchedule(hot, (hot - cold) / half, cold)
    # The first epoch at the last temperature is the first that counts.
    return Schedule(
        asked.epochs, burn_in=math.ceil(falling.settled_at()), target_temperature=falling
    )


def picked(
    model: MaskedModel,
    run: Run,
    lines: Sequence[str | Record],
    pick: str = "lowest",
    every_chain: bool = False,
) -> Iterator[Rewriting]:
    """Yield what is picked from the chains of a run, of each line or of each chain.

    Of the chains of a line it is the text of `lowest` energy in any epoch, the `last` of the first
    chain (a plain sample), or the one most like all others' last (`mbr`).
    """
    traces, last, chains = run.traces, run.manifest.epochs - 1, run.manifest.config.chains
    energy, traced = traces["energy_target"], "tokens" in traces
    epochs = range(last + 1) if traced else run.store.sampled(last + 1)
    tokens = {epoch: run.store.tokens(epoch) for epoch in epochs}
    fixed = not run.manifest.inputs.sampled

    def at(line: int, given: str | Record, number: int, epoch: int) -> Rewriting:
        chain = line * chains + number
        ids = tokens[epoch][chain, : traces["lengths"][epoch, chain]].tolist()
        values = {
            name: float(traces[f"energy_{name}"][epoch, chain])
            for name in ("target", "raw", "norm")
        }
        experts = traces["expert_energy"][epoch, chain].tolist()
        values |= dict(zip(run.manifest.experts, experts, strict=True))
        # Energies that would have cost extra passes were not traced.
        values = {name: value for name, value in values.items() if not math.isnan(value)}
        if not isinstance(given, Record):
            # As it was given: a tokenizer may have changed case or spaces.
            text = given if ids == model.encode(given) else model.decode(ids)
            changes = words_changed(given, text)
            return Rewriting(line, given, text, changes, number, epoch, values)
        parent, text = given.sequence, "".join(map(letter, model.token_strings(ids)))
        changes = words_changed(" ".join(parent), " ".join(text))
        return Rewriting(
            line, parent, text, changes, number, epoch, values, given.name,
            mutations(parent, text) if fixed else None,
        )  # fmt: skip

    for line, given in enumerate(lines):
        found = []
        for number in range(chains):
            own = energy[:, line * chains + number]
            epoch = min(epochs, key=own.__getitem__) if pick == "lowest" else last
            found.append(at(line, given, number, epoch))
        if every_chain:
            yield from found
        elif pick == "lowest":
            yield min(found, key=lambda one: one.energies["target"])
        else:
            yield found[0 if pick == "last" else most_alike([one.text for one in found])]


def _check_experts(energy: Energy, model: MaskedModel, sequence: str) -> None:
    """Refuse experts that cannot read sequences of letters as the model writes them."""
    ids = model.encode(sequence)
    spaced = len(model.decode(ids).split()) == len(ids)
    judge = default_judge()
    for _, part in energy.parts:
        words = isinstance(part, Contains | Avoids | Repeats)
        refuse(
            (
                isinstance(part, Autoregressive) and part.name == judge,
                f"'{judge}' reads English: name a causal LM of sequences, as in "
                "autoregressive(MODEL).",
            ),
            (
                not spaced and (words or (isinstance(part, Distance) and part.unit == "words")),
                f"'{part}' counts words, and '{model.name}' writes sequences without spaces: use "
                "--contains or --avoid, tokens for words, or a custom function.",
            ),
        )
        for word in part.words if isinstance(part, Contains | Avoids) else ():
            letters = " ".join("".join(word.split()))
            refuse(
                (
                    spaced and letters != " ".join(word.split()),
                    f"'{part}' finds no '{word}', since '{model.name}' writes spaces between "
                    f"letters: write '{letters}'.",
                )
            )
