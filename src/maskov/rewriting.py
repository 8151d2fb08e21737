"""Rewrite texts: chains that start at each text and sample texts like it that please an expert.

    p(x) ∝ exp(−(fluency(x) + strength · toward(x) + keep · edit(x, start)) / T)

Lines are rewritten in batches; each batch is a separate run. With a folder, the lines of a finished
batch are written to it at once, and rewriting the same lines again continues after them. Records of
FASTA are rewritten as lines are, and keep their names. Empty lines stay empty.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from maskov import api
from maskov.arguments import Arguments, arguments_of
from maskov.config import ModelSource
from maskov.energies import Autoregressive, Energy, as_energy
from maskov.energies.counting import Avoids, Contains, Distance, Edit, Repeats, words_changed
from maskov.energies.networks import Loading
from maskov.energies.stages import DelayedAcceptance
from maskov.errors import InputError, RunError
from maskov.evaluation.translation import most_alike
from maskov.fasta import Record, letter, mutations, to_fasta
from maskov.kernels import Kernel
from maskov.kernels.registry import move_names, named_kernel, parse_moves, to_data
from maskov.models import MaskedModel, choose_device
from maskov.moves import INSERT_DELETE, MaskedConditional, Move, Resize, Site, Span
from maskov.options import TextFunction, findable, parse_model
from maskov.plan import constraints_of, energy_of, load_source, plan, refuse_unused, workers_of
from maskov.runs.files import check_folder, explained, read_lines, write_atomically
from maskov.runs.files import read_text as read_file
from maskov.runs.inputs import named_texts
from maskov.runs.manifest import resizes
from maskov.runs.rebuild import models_of
from maskov.runs.result import Run
from maskov.runs.task_runner import Listener
from maskov.sampling import execute, finished, plan_of_folder
from maskov.schedules import LinearSchedule, Schedule
from maskov.shipped import default_judge
from maskov.texts import Mask, frozen_positions, read_text
from maskov.types import Chains, Traces
from maskov.workers import Workers

PICKS = ("lowest", "last", "mbr")
# Mutations of records can be listed only where lengths are fixed.
_MOVES_OF_RECORDS = "site:6,span(2:3):2"
_MOVES = f"{_MOVES_OF_RECORDS},insert-delete:1"
# Options that a Rewriter, or the moves, have when they are given as objects.
_OF_REWRITERS = (
    "strength", "keep", "fluency", "target_temperature", "hot", "chains", "epochs", "pick", "moves",
    "temperature", "contains", "avoid", "allow", "max_changes",
)  # fmt: skip
# Lines of a batch on a CPU: what is lost where a process is killed without a folder.
_BATCH = 32
_DONE, _SETTINGS, _RUNS = "rewritten.jsonl", "settings.json", "runs"


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
        data = asdict(self)
        for name in ("name", "mutations"):
            if data[name] is None:
                del data[name]
        return json.dumps(data, ensure_ascii=False)


@dataclass(frozen=True)
class Rewriter:
    """How lines are rewritten.

    The energy is `fluency` + `strength` · `toward` + `keep` · edit distance in tokens, at a
    `temperature`. Without `toward`, the constraints of the `moves` say what texts become. Chains
    may begin `hot`, at a higher temperature, which falls within the first half of the epochs. Of
    the `chains` of a line the text of `lowest` energy in any epoch is picked, the `last` of the
    first chain (a plain sample), or the one most like all others' last (`mbr`).
    """

    toward: Energy | str | TextFunction | None
    strength: float = 20.0
    keep: float = 8.0
    fluency: Energy | str | TextFunction = "0.3*norm"
    temperature: float = 1.0
    hot: float = 1.0
    chains: int = 8
    epochs: int = 15
    pick: str = "lowest"
    # Single sites propose from cached passes, so that most of their steps cost experts alone.
    moves: tuple[Move, ...] = (Site(), Span(sizes=(2, 3)), Resize(pairs=INSERT_DELETE))
    weights: tuple[float, ...] = (6.0, 2.0, 1.0)
    delayed: DelayedAcceptance = DelayedAcceptance(2)

    def __post_init__(self) -> None:
        if self.pick not in PICKS:
            raise InputError(f"unknown pick '{self.pick}'; use one of {', '.join(PICKS)}.")
        if not (self.strength >= 0 and self.keep >= 0):
            raise InputError("--strength and --keep are weights: 0 or more.")
        if not self.temperature > 0:
            raise InputError(f"the target temperature must be above 0, not {self.temperature:g}.")

    @property
    def energy(self) -> Energy:
        """The whole energy."""
        total = as_energy(self.fluency)
        if self.toward is not None:
            total = total + self.strength * as_energy(self.toward)
        return total + self.keep * Edit() if self.keep else total

    @property
    def kernel(self) -> Kernel:
        """The kernel that moves the chains."""
        return named_kernel("mh", self.energy, self.moves, self.weights, delayed=self.delayed)

    @property
    def schedule(self) -> Schedule:
        """The schedule of a batch."""
        cold, half = self.temperature, self.epochs // 2
        if self.hot <= cold or not half:
            return Schedule(self.epochs, target_temperature=LinearSchedule(cold, 0.0, cold))
        falling = LinearSchedule(self.hot, (self.hot - cold) / half, cold)
        # The first epoch at the last temperature is the first that counts.
        settled = math.ceil(falling.settled_at())
        return Schedule(self.epochs, burn_in=settled, target_temperature=falling)

    def rewrite(
        self,
        model: MaskedModel,
        texts: Sequence[str | Record],
        *,
        freeze: str | Sequence[Mask] | None = None,
        seed: int = 0,
        batch: int | None = None,
        every_chain: bool = False,
        out: str | Path | None = None,
        listener: Listener | None = None,
        stop: Callable[[], bool] | None = None,
        source: ModelSource | None = None,
        workers: Workers | None = None,
        token_budget: int | None = None,
        resident: int | None = None,
    ) -> Iterator[Rewriting]:
        """Yield a rewriting of each text in order, or with `every_chain` one of each chain.

        Texts may be records of FASTA. Tokens that `freeze` names stay, as `sample` reads it. With
        `out`, a folder, finished lines are kept: the same call continues after them.
        """
        if batch is not None and batch < 1:
            raise InputError(f"a batch has at least 1 line, not {batch}.")
        # Refused before anything is sampled.
        spelled, names = named_texts(model, texts)
        full = [line for line, text in enumerate(spelled) if text.strip()]
        if names is None:
            for line in full:
                read_text(model, spelled[line], f"line {line + 1}")
        else:
            _check_experts(self.energy, model, max(spelled, key=len))
        held = _frozen(model, spelled, full, freeze, letters=names is not None)
        kernel = self.kernel
        size = _batch_size(model, len(texts), batch)
        each = self.chains if every_chain else 1
        folder = None if out is None else _Folder.open(Path(out), self._settings(
            model, kernel, texts, held, seed, size, every_chain))  # fmt: skip
        done = [] if folder is None else folder.done(len(texts) * each)
        _check_done(done, texts, size, each, out)
        finished = list(done)
        yield from done
        asked = [part for _, part in self.energy.parts if isinstance(part, Contains)]
        lacking = _lacking(done, asked)
        told = None if listener is None else _Batches(listener)
        for first in range(0, len(texts), size):
            every = range(first, min(first + size, len(texts)))
            chosen = [line for line in every if spelled[line].strip()]
            lines = [texts[line] for line in chosen]
            expected = len(every) * each
            if len(done) >= expected:
                done = done[expected:]
                continue
            if told is not None:
                told.next_batch(first // size * self.epochs)
            found = [
                Rewriting(line, str(texts[line]), str(texts[line]), 0, chain, 0, {})
                for line in every
                for chain in range(each)
                if line not in chosen
            ]
            if lines:
                run = self.run(
                    model, kernel, lines, _seed_of(seed, first),
                    None if folder is None else folder.run(first // size),
                    listener=told, stop=stop, source=source, workers=workers,
                    token_budget=token_budget, resident=resident,
                    freeze=None if held is None else _masks(
                        model, [spelled[line] for line in chosen], [held[line] for line in chosen]
                    ),
                )  # fmt: skip
                picked = self.picked(model, run, lines, 0, every_chain)
                found += [replace(one, line=chosen[one.line]) for one in picked]
                found.sort(key=lambda one: one.line)
            if folder is not None:
                finished += found
                folder.write(finished)
            yield from found
            lacking |= _lacking(found, asked)
        if lacking and listener is not None:
            words = ", ".join(w for part in asked for w in part.words)
            listener.noted(
                f"{len(lacking)} of {len(full)} lines still lack a word: a masked LM seldom "
                f"proposes a given one, so put it in with --contains {words!r}"
            )

    def all_epochs(self, model: MaskedModel, count: int, batch: int | None = None) -> int:
        """Return the epochs that a listener hears of when so many texts are rewritten."""
        return self.epochs * max(1, -(-count // max(1, _batch_size(model, count, batch))))

    def run(
        self,
        model: MaskedModel,
        kernel: Kernel,
        lines: Sequence[str | Record],
        seed: int = 0,
        out: Path | None = None,
        **options: Any,
    ) -> Run:
        """Run the chains of a batch of lines, or continue them.

        `options` are those of `maskov.sample`.
        """
        listener, stop = options.pop("listener", None), options.pop("stop", None)
        # A folder without its manifest was left before it held a run.
        if out is not None and (out / "manifest.json").is_file():
            source, workers = options.get("source"), options.get("workers") or Workers()
            # With the kernel given, nothing is imported or loaded that only the folder names.
            return finished(run=out) or execute(
                plan_of_folder(
                    run=out, model=model, kernel=kernel, workers=replace(workers, threads=None),
                    trust_remote_code=source is not None and source.trust_remote_code,
                ),
                listener,
                stop,
            )  # fmt: skip
        planned = plan(
            model=model, kernel=kernel, schedule=self.schedule, chains=self.chains, texts=lines,
            seed=seed, out=out, length_prior="none" if resizes(kernel) else None, stop=stop,
            **options,
        )  # fmt: skip
        return execute(planned, listener, stop)

    def picked(
        self,
        model: MaskedModel,
        run: Run,
        lines: Sequence[str | Record],
        first: int = 0,
        every_chain: bool = False,
    ) -> Iterator[Rewriting]:
        """Yield what is picked from the chains of a batch, whose lines begin at `first`."""
        traces, names = run.traces, run.manifest.experts
        if "tokens" not in traces:
            raise InputError("a batch is too large to trace its tokens: give a smaller --batch.")
        energy, last = traces["energy_target"], len(traces["energy_target"]) - 1
        fixed = not run.manifest.inputs.sampled

        def at(line: int, epoch: int, chain: int) -> Rewriting:
            length = int(traces["lengths"][epoch, chain])
            ids = traces["tokens"][epoch, chain, :length].tolist()
            values = {
                "target": float(energy[epoch, chain]),
                "raw": float(traces["energy_raw"][epoch, chain]),
                "norm": float(traces["energy_norm"][epoch, chain]),
            }
            experts = traces["expert_energy"][epoch, chain].tolist()
            values |= dict(zip(names, experts, strict=True))
            # Energies that would have cost passes of their own were not traced.
            values = {name: value for name, value in values.items() if not math.isnan(value)}
            number, given = chain - line * self.chains, lines[line]
            if not isinstance(given, Record):
                # As it was given: a tokenizer may have changed case or spaces.
                text = given if ids == model.encode(given) else model.decode(ids)
                changes = words_changed(given, text)
                return Rewriting(first + line, given, text, changes, number, epoch, values)
            parent, text = given.sequence, "".join(map(letter, model.token_strings(ids)))
            changes = words_changed(" ".join(parent), " ".join(text))
            return Rewriting(
                first + line, parent, text, changes, number, epoch, values, given.name,
                mutations(parent, text) if fixed else None,
            )  # fmt: skip

        for line in range(len(lines)):
            own = range(line * self.chains, (line + 1) * self.chains)
            lowest = {chain: int(np.argmin(energy[:, chain])) for chain in own}
            ends = lowest if self.pick == "lowest" else dict.fromkeys(own, last)
            found = [at(line, ends[chain], chain) for chain in own]
            if every_chain:
                yield from found
            elif self.pick == "lowest":
                yield min(found, key=lambda one: one.energies["target"])
            elif self.pick == "last":
                yield found[0]
            else:
                yield found[most_alike([one.text for one in found])]

    def _settings(
        self,
        model: MaskedModel,
        kernel: Kernel,
        texts: Sequence[str | Record],
        frozen: Sequence[Sequence[int]] | None,
        seed: int,
        size: int,
        every_chain: bool,
    ) -> dict[str, Any]:
        """Return what decides the result; a folder is gone on with only if it is the same."""
        return {
            "model": model.fingerprint(),
            "energy": str(kernel.energy),
            "energy_models": models_of(kernel),
            "kernel": to_data(kernel),
            "schedule": str(self.schedule),
            "chains": self.chains,
            "pick": self.pick,
            "seed": seed,
            "batch": size,
            "every_chain": every_chain,
            "frozen": None if frozen is None else [list(places) for places in frozen],
            "texts": hashlib.sha256(_content(texts).encode()).hexdigest(),
        }


@dataclass(frozen=True)
class Task:
    """Texts to rewrite: how, by which model, and the arguments of `Rewriter.rewrite`."""

    rewriter: Rewriter
    model: MaskedModel
    texts: Sequence[str | Record]
    options: dict[str, Any]

    @property
    def epochs(self) -> int:
        """The epochs that a listener hears of."""
        return self.rewriter.all_epochs(self.model, len(self.texts), self.options["batch"])

    def rewritings(
        self, listener: Listener | None, stop: Callable[[], bool] | None
    ) -> Iterator[Rewriting]:
        """Yield a rewriting of each text in order, or one of each chain."""
        return self.rewriter.rewrite(
            self.model, self.texts, listener=listener, stop=stop, **self.options
        )


def plan_rewriting(**given: Any) -> Task:
    """Return what to rewrite, and how, from the arguments of `maskov.rewrite`; or refuse them."""
    asked = arguments_of(api.rewrite, given, Rewriter)
    loaded = asked.model if isinstance(asked.model, MaskedModel) else None
    if loaded is not None:
        asked.refuse_both("a model that is loaded", "device", "precision", "trust_remote_code")
    rewriter, workers = asked.toward, workers_of(asked)
    source = None if loaded is not None else parse_model(asked.model, asked.trust_remote_code)
    device = choose_device(asked.device) if loaded is None else loaded.device
    if isinstance(rewriter, Rewriter):
        asked.refuse_both("a Rewriter", *_OF_REWRITERS)
    else:
        loading = Loading(device, asked.trust_remote_code, find=findable)
        rewriter = _rewriter(asked, loading)
    model = loaded or load_source(source, device, asked.precision)
    names = ("freeze", "seed", "batch", "every_chain", "out", "token_budget", "resident")
    options = {name: getattr(asked, name) for name in names}
    return Task(rewriter, model, asked.texts, options | {"source": source, "workers": workers})


def _rewriter(asked: Arguments, loading: Loading) -> Rewriter:
    """Return how lines are rewritten, or records of FASTA."""
    refuse_unused(asked, "temperature", "contains", "avoid", "allow", "max_changes")
    if all(one in (None, "") for one in (asked.toward, asked.contains, asked.avoid, asked.allow)):
        raise InputError("give --toward, what texts should become, or --contains, a word.")
    moves, records = asked.moves, any(isinstance(text, Record) for text in asked.texts)
    if moves is None:
        moves = _MOVES_OF_RECORDS if records else _MOVES
    moves = (moves,) if isinstance(moves, Move) else moves
    constraints = constraints_of(asked, bool(move_names(moves) & {"insert-delete", "resize"}))
    proposal = MaskedConditional(asked.temperature, constraints=constraints)
    parsed, weights, _ = parse_moves(moves, proposal)
    return Rewriter(
        None if asked.toward in (None, "") else energy_of(asked.toward, loading),
        asked.strength,
        asked.keep,
        energy_of(asked.fluency, loading),
        asked.target_temperature,
        asked.hot,
        asked.chains,
        asked.epochs,
        asked.pick,
        parsed,
        weights,
    )


def _seed_of(seed: int, first: int) -> int:
    """Return the seed of the batch that begins at a line.

    It is a hash, so that batches of nearby seeds do not share their random numbers.
    """
    if not first:
        return seed
    digest = hashlib.sha256(f"{seed}:{first}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def _batch_size(model: MaskedModel, count: int, batch: int | None) -> int:
    return batch or (_BATCH if model.device.type == "cpu" else max(count, 1))


class _Batches:
    """Tells a listener of one batch after the other as of one run."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._begun = False
        self._epochs = self._passes = self._latest = 0

    def next_batch(self, epochs: int) -> None:
        """Count from so many epochs, and from the passes so far."""
        self._epochs, self._passes = epochs, self._latest

    def begun(self, model: MaskedModel) -> None:
        """Tell it once."""
        if not self._begun:
            self._begun = True
            self._listener.begun(model)

    def noted(self, text: str) -> None:
        """Tell it as it is."""
        self._listener.noted(text)

    def moved(self, chains: Chains, epoch: int, passes: int) -> None:
        """Count the batches before it."""
        self._latest = self._passes + passes
        self._listener.moved(chains, self._epochs + epoch, self._latest)

    def epoch_ended(self, epoch: int, values: Traces, passes: int) -> None:
        """Count the batches before it."""
        self._latest = self._passes + passes
        self._listener.epoch_ended(self._epochs + epoch, values, self._latest)


def _content(texts: Sequence[str | Record]) -> str:
    """Return all texts as one."""
    records = [text for text in texts if isinstance(text, Record)]
    return to_fasta(records) if records else "\n".join(map(str, texts))


def _check_experts(energy: Energy, model: MaskedModel, sequence: str) -> None:
    """Refuse experts that cannot read sequences of letters as the model writes them."""
    ids = model.encode(sequence)
    spaced = len(model.decode(ids).split()) == len(ids)
    for _, part in energy.parts:
        if isinstance(part, Autoregressive) and part.name == default_judge():
            raise InputError(
                f"'{part.name}' reads English: name a causal LM of sequences, as in "
                "autoregressive(MODEL)."
            )
        words = isinstance(part, Contains | Avoids | Repeats)
        if not spaced and (words or (isinstance(part, Distance) and part.unit == "words")):
            raise InputError(
                f"'{part}' counts words, and '{model.name}' writes sequences without spaces: use "
                "--contains or --avoid, tokens for words, or a custom function."
            )
        for word in part.words if isinstance(part, Contains | Avoids) else ():
            letters = " ".join("".join(word.split()))
            if spaced and letters != " ".join(word.split()):
                raise InputError(
                    f"'{part}' finds no '{word}', since '{model.name}' writes spaces between "
                    f"letters: write '{letters}'."
                )


def _lacking(found: Sequence[Rewriting], asked: Sequence[Contains]) -> set[int]:
    """Return the lines that lack a word that an expert asks for."""
    names = list(map(str, asked))
    return {one.line for one in found if any(one.energies.get(name, 0) > 0 for name in names)}


def _frozen(
    model: MaskedModel,
    texts: Sequence[str],
    full: Sequence[int],
    rule: str | Sequence[Mask] | None,
    letters: bool,
) -> list[tuple[int, ...]] | None:
    """Return the positions of each text that stay, if any must; empty ones have none."""
    if rule is not None and not isinstance(rule, str) and len(rule) == len(texts):
        rule = [rule[line] for line in full]
    held = frozen_positions(model, [texts[line] for line in full], rule, letters)
    if held is None:
        return None
    own = dict(zip(full, held, strict=True))
    return [own.get(line, ()) for line in range(len(texts))]


def _masks(
    model: MaskedModel, lines: Sequence[str], frozen: Sequence[Sequence[int]]
) -> list[list[bool]]:
    """Return which tokens of some lines are frozen."""
    return [
        [place in held for place in range(len(model.encode(line)))]
        for line, held in zip(lines, frozen, strict=True)
    ]


def _check_done(
    done: Sequence[Rewriting], texts: Sequence[str | Record], size: int, each: int, out: object
) -> None:
    """Refuse finished lines that are not those of whole batches of the texts."""
    lines = [number for number in range(len(texts)) for _ in range(each)]
    whole = len(done) % (size * each) == 0 or len(done) == len(lines)
    if len(done) > len(lines) or not whole or any(
        (one.line, one.source, one.name) != (line, str(texts[line]), _name(texts[line]))
        for one, line in zip(done, lines, strict=False)
    ):  # fmt: skip
        raise _damaged(Path(str(out)) / _DONE)


def _name(text: str | Record) -> str | None:
    return text.name if isinstance(text, Record) else None


def _damaged(file: Path) -> RunError:
    return RunError(
        f"'{file}' is damaged: remove it, and its lines are picked again from the runs."
    )


@dataclass(frozen=True)
class _Folder:
    """A folder with the finished lines and a run for each batch."""

    path: Path

    @classmethod
    def open(cls, path: Path, settings: dict[str, Any]) -> _Folder:
        """Open a folder that was begun with the same settings, or a new one."""
        file = path / _SETTINGS
        if file.is_file():
            check_folder(path)
            known = _read(file)
            for name in sorted(settings.keys() | known.keys()):
                if known.get(name) != settings.get(name):
                    raise InputError(
                        f"'{path}' was begun with another {name}: give another --out, or the "
                        "options it was begun with."
                    )
            return cls(path)
        with explained(path):
            # What is left where a process was killed before it had begun is nobody's.
            if path.exists() and {one.name for one in path.iterdir()} - {_SETTINGS + ".tmp"}:
                raise InputError(
                    f"'{path}' exists and is not a folder of rewritings: give another --out."
                )
            path.mkdir(parents=True, exist_ok=True)
            write_atomically(file, json.dumps(settings, indent=1).encode())
        return cls(path)

    def done(self, most: int) -> list[Rewriting]:
        """Return the lines that are finished; there are at most so many."""
        file = self.path / _DONE
        if not file.is_file():
            return []
        try:
            found = [Rewriting(**json.loads(line)) for line in read_lines(file, most)]
            if not all(isinstance(one.text, str) and type(one.chain) is int for one in found):
                raise TypeError("no rewritings")
            return found
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise _damaged(file) from error

    def write(self, rewritings: Sequence[Rewriting]) -> None:
        """Write the finished lines; the file is replaced as a whole, so none is ever cut."""
        lines = "".join(one.to_json() + "\n" for one in rewritings)
        with explained(self.path):
            write_atomically(self.path / _DONE, lines.encode())

    def run(self, batch: int) -> Path:
        """Return the folder of a batch's run."""
        return self.path / _RUNS / f"{batch:05d}"


def _read(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(read_file(file)))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise RunError(f"'{file}' is damaged: give another --out.") from error
