"""What makes a keyword of a function an option of a command: its help, its names, how it is read.

The signatures in `maskov.api` are the table of options. A keyword whose type is annotated with an
`Opt` is an option of the command of the same name. Types that several functions share are declared
here, once. This module imports nothing heavy, since the help of commands is made from it.
"""

from __future__ import annotations

import builtins
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Union, get_type_hints

from maskov.config import (
    DEFAULT_DRAWS,
    DEFAULT_EPOCHS,
    MOST_UNTIL_CONVERGED,
    LinearSchedule,
    ModelSource,
)
from maskov.errors import InputError, reason_of, refuse
from maskov.parts import parse_call
from maskov.shipped import known

if TYPE_CHECKING:  # also for names that only quoted types have
    from maskov import Energy, Kernel, MaskedConditional, MaskedModel, Record, Workers
    from maskov.kernels.registry import Moves
    from maskov.texts import Mask

# The panel of the options that a newcomer needs; the others are "Advanced".
FIRST = "Options"
MODEL, KERNEL, SCHEDULE = "Advanced: model", "Advanced: kernel", "Advanced: schedule"
CONSTRAINTS, RUN, WORKERS = "Advanced: constraints", "Advanced: run", "Advanced: workers"

# A custom expert: it takes texts and returns a number for each.
TextFunction = Callable[[list[str]], Sequence[float]]


@dataclass(frozen=True)
class Opt:
    """The help of an option; more `names`, separated by spaces; its panel; how its text is read.

    The name is that of the keyword unless another long one is given. With a `metavar` it is an
    argument of the command instead. Arguments may be `many`, and an option of many may be repeated.
    """

    help: str
    names: str = ""
    panel: str = FIRST
    read: Callable[..., Any] | None = None
    metavar: str | None = None
    many: bool = False


def hints_of(
    function: Callable[..., Any], known: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the types of a function's keywords; a type that is not `known` is Any.

    Help knows none of the classes that need torch, so that it need not import it.
    """
    names = defaultdict(lambda: Any, vars(builtins) | function.__globals__ | dict(known))
    return get_type_hints(function, {}, names, include_extras=True)


def _numbers(text: str, sign: str, kind: type, wanted: str, most: int = 1000) -> tuple[Any, ...]:
    """Read numbers with a sign between them, or say what is wanted."""
    found: tuple[Any, ...] = ()
    with suppress(ValueError):
        found = tuple(map(kind, text.split(sign)))
    refuse((not 1 <= len(found) <= most, f"'{text}' is not {wanted}."))
    return found


parse_numbers = partial(
    _numbers, sign=",", kind=float, wanted="a list of numbers: write 1, or 1,1.5,2"
)
parse_lengths = partial(
    _numbers, sign=",", kind=int, wanted="a list of lengths: write 20, or 10,20"
)


def parse_range(text: str) -> int | tuple[int, int]:
    """Read `20` or `15:45`."""
    first, *last = _numbers(text, ":", int, "a number or a range: write 20 or 15:45", 2)
    return (first, *last) if last else first


def parse_temperature(text: str) -> float | LinearSchedule:
    """Read a number, or one that falls: `START:FALL` or `START:FALL:FLOOR`."""
    wanted = (
        "a target temperature: write 0.8, or START:FALL:FLOOR such as 1.5:0.3:0.5 for one that "
        "falls by 0.3 an epoch until it is 0.5"
    )
    start, *falling = _numbers(text, ":", float, wanted, 3)
    return LinearSchedule(start, *(*falling, 0.01)[:2]) if falling else start


def parse_proposal(text: str) -> MaskedConditional:
    """Read `temperature=0.8, top_p=0.9, top_k=20, epsilon=0.1`, or some of these."""
    from maskov.moves import MaskedConditional

    _, positional, given = parse_call(f"proposal({text})")
    parts = ("temperature", "top_p", "top_k", "epsilon")
    numbers = all(isinstance(value, int | float) for value in given.values())
    refuse(
        (
            positional or not given or not given.keys() <= set(parts) or not numbers,
            f"--proposal '{text}' names no part of the proposal: write {', '.join(parts)} with "
            "their values, such as temperature=0.8,top_p=0.9.",
        )
    )
    return MaskedConditional(**given)


def parse_workers(text: str) -> int | Workers:
    """Read a number of processes, or `ray(4, address=HOST, gpus_per_worker=0.5)`."""
    from maskov.workers import Workers

    with suppress(ValueError):
        return int(text)
    name, positional, given = parse_call(text)
    try:
        count, *others = positional or [0]
        return Workers(count, name, *others, **given)
    except TypeError:
        raise InputError(
            f"--workers '{text}' is not a number of processes or a cluster: write 4, ray, or "
            "ray(4, address=HOST:PORT, gpus_per_worker=0.5)."
        ) from None


def words_of(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Read words that are separated by commas, or that are given one by one."""
    words = map(str.strip, given.split(",")) if isinstance(given, str) else given
    return tuple(words or ())


def parse_model(given: str | Path, trust_remote_code: bool = False) -> ModelSource:
    """Read the name of a model, which may have arguments: `NAME(prefix='<human>')`.

    What is on disk gets its full path, so that a run can be resumed from anywhere.
    """
    if isinstance(given, Path):
        return ModelSource(str(given.resolve()), None, trust_remote_code)
    name, arguments = given, dict[str, Any]()
    if given.endswith(")") and "(" in given and not Path(given).exists():
        name, _, rest = given.partition("(")
        _, positional, arguments = parse_call(f"model({rest}")
        texts = ("tokenizer", "prefix", "extra_letters", "architecture")
        kinds: dict[str, Any] = dict.fromkeys(texts, str) | {
            "remove_smoothing": int | float, "mask_token_id": int, "shift_logits": bool
        }  # fmt: skip
        shift = arguments.get("shift_logits")
        if shift in ("true", "false"):
            arguments["shift_logits"] = shift == "true"
        wrong = positional + [
            key for key, value in arguments.items() if not isinstance(value, kinds.get(key, ()))
        ]
        if wrong:
            raise InputError(
                f"the model '{given}' has the argument '{wrong[0]}': write {', '.join(texts)} with "
                "a text, remove_smoothing or mask_token_id with a number, or shift_logits=true."
            )
        if arguments.get("tokenizer"):
            arguments["tokenizer"] = findable(arguments["tokenizer"])
    return ModelSource(findable(name), trust_remote_code=trust_remote_code, **arguments)


def findable(name: str) -> str:
    """Return the full path of what is on disk, so that a run can be resumed from anywhere."""
    return name if name in known() or not Path(name).exists() else str(Path(name).resolve())


# One word with a folder or an ending.
_LIKE_A_FILE = re.compile(r"\S*/\S*|\S+\.[A-Za-z]\w{0,5}")


def read_lines(source: str) -> list[str]:
    """Read texts, one per line, from a file or from standard input (`-`); empty lines are kept."""
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError(f"'{source}' is not UTF-8 text (line {line}).") from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise InputError(f"cannot read '{source}': {reason_of(error)}.") from error
    refuse((not text, f"'{source}' is empty; give one text per line."))
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def read_texts(source: str) -> list[str] | list[Record]:
    """Read texts, one per line, or the records of a FASTA file."""
    from maskov.fasta import is_fasta, parse

    lines = read_lines(source)
    return parse(lines, source) if is_fasta(source, lines) else lines


def read_frozen(rule: str) -> str | list[str]:
    """Return a rule of frozen tokens, or the masks of a file of this name."""
    return read_lines(rule) if os.path.isfile(rule) else rule


def read_templates(template: str) -> list[str] | list[Record]:
    """Return a template, or those of a file of this name."""
    from maskov.fasta import BLANK
    from maskov.texts import find_blanks, gaps_of

    # Models of letters have another blank, which may also stand in the name of a file.
    literal = bool(find_blanks(gaps_of(template)[0])) or (
        BLANK in template and not names_a_file(template)
    )
    refuse(
        (
            not literal and template != "-" and not Path(template).is_file(),
            f"'{template}' is neither a template nor a file: write [MASK] for each blank.",
        )
    )
    return [template] if literal else read_texts(template)


def texts_or_files(sources: Sequence[str]) -> list[str] | list[Record]:
    """Return texts given on the command line, and those of the files that are named there."""
    each = (read_texts(source) if names_a_file(source) else [source] for source in sources)
    found: list[Any] = [text for texts in each for text in texts]
    refuse((len({isinstance(one, str) for one in found}) > 1, "give texts or FASTA, not both."))
    return found


def names_a_file(source: str) -> bool:
    """Whether a word is a file, or looks like one that is not there."""
    return source == "-" or os.path.exists(source) or bool(_LIKE_A_FILE.fullmatch(source))


# What several functions take. Kinds in quotes need torch, so that help does not know them.
Lines = Sequence["str | Record"]
AnyModel = Annotated[
    "str | Path | MaskedModel",
    Opt("built-in name, folder or hub name; NAME(prefix='...', tokenizer=FOLDER, "
        "extra_letters=XU, remove_smoothing=0.1, architecture=masked-diffusion, shift_logits=true, "
        "mask_token_id=5) for one with arguments", "-m"),
]  # fmt: skip
Device = Annotated[str, Opt("auto, cpu, cuda, cuda:1 ...", panel=MODEL)]
Precision = Annotated[str, Opt("float32, float64, or coarser: tf32, bfloat16", panel=MODEL)]
TrustCode = Annotated[bool, Opt("run code that comes with the model", panel=MODEL)]

Contains = Annotated[
    "str | Sequence[str] | None",
    Opt("words that every sample holds: 'river, bridge'", panel=CONSTRAINTS),
]
Avoid = Annotated[
    "str | Sequence[str] | None", Opt("words that no sample holds: 'very, C'", panel=CONSTRAINTS)
]
Allow = Annotated[
    "str | None", Opt("tokens of positions, counted from 1: '30-35:AGST, 40:C'", panel=CONSTRAINTS)
]
MaxChanges = Annotated[
    "int | None",
    Opt("maximum number of tokens changed in a starting text", "--max-changes --max-mutations",
        CONSTRAINTS),
]  # fmt: skip
Freeze = Annotated[
    "str | Sequence[Mask] | None",
    Opt("tokens of each text that stay: positions '1-25,40', words 'river, bridge', a regular "
        "expression 're:PATTERN', or a file with a line of characters for each text, '.' for a "
        "free token", panel=CONSTRAINTS, read=read_frozen),
]  # fmt: skip
SomeMoves: TypeAlias = Union["Moves", None]

# Options of runs of chains.
AnyKernel = Annotated[
    "str | Kernel",
    Opt("mh, gibbs, mask-predict, or module:Class", "-k", KERNEL),
]  # fmt: skip
Epochs = Annotated[
    "int | None",
    Opt(f"sweeps over all positions (default: {DEFAULT_EPOCHS}), or redraws (default: "
        f"{DEFAULT_DRAWS}); with --until the most there may be (default: {MOST_UNTIL_CONVERGED})",
        "-n"),
]  # fmt: skip
Until = Annotated[
    "str | None",
    Opt("converged: stop when R-hat is good and there are 100 effective draws; converged:400 "
        "for 400"),
]  # fmt: skip
Out = Annotated["Path | None", Opt("run folder to write", "-o")]
SampledMoves = Annotated[
    "Moves | None",
    Opt("site, span, redraw, insert-delete, resize or module:Class; several with weights: "
        "site:1,span:2; with arguments: span(1:3), site(block=4, block_anneal=0.2, "
        "order=left-to-right), redraw(temperature=0.8) (default: span; with the default "
        "--energy redraw)", panel=KERNEL),
]  # fmt: skip
Proposal = Annotated[
    "MaskedConditional | None",
    Opt("how tokens are proposed: temperature=0.8,top_p=0.9,top_k=20,epsilon=0.1, or some of "
        "these; top_p and top_k keep the most probable tokens, epsilon is the share of the "
        "full conditional", panel=KERNEL, read=parse_proposal),
]  # fmt: skip
Delayed = Annotated[
    "str | int | Sequence[int] | None",
    Opt("positions next to the change that an early test scores: 2, or 1,2,4 for three tests, "
        "or off (default: 2; off for grouped energies)", panel=KERNEL),
]  # fmt: skip
LengthPrior = Annotated[
    "str | Mapping[int, float] | None",
    Opt("weights of sampled lengths: flat, none, or 8:1,12:4,16:1 (default: flat)",
        panel=KERNEL),
]  # fmt: skip
Particles = Annotated[
    "int | None",
    Opt("particles of a population, which goes from independent draws to the target "
        "together: 64, for example; instead of --chains and --epochs", panel=KERNEL),
]  # fmt: skip
Populations = Annotated[
    "int",
    Opt("independent populations of --particles, for each template", panel=KERNEL),
]  # fmt: skip
Passes = Annotated[
    "int | None",
    Opt("masked passes of a chain or particle, instead of --epochs", panel=SCHEDULE),
]  # fmt: skip
BurnIn = Annotated[
    "int | None",
    Opt("first epochs, left out of samples and averages (default: 8, but at most half of the "
        "epochs; with --until: half of them)", panel=SCHEDULE),
]  # fmt: skip
BurnInEnergy = Annotated[
    "str | Energy | None",
    Opt("energy of burn-in, such as raw(groups=4), or same for that of --energy (default: "
        "--energy with groups=4; same if --burn-in is given)", panel=SCHEDULE),
]  # fmt: skip
TargetTemperature = Annotated[
    "float | LinearSchedule",
    Opt("T in p ∝ exp(-E/T); START:FALL:FLOOR falls from epoch to epoch: 1.5:0.3:0.5",
        panel=SCHEDULE, read=parse_temperature),
]  # fmt: skip
ForceAccept = Annotated[
    "int",
    Opt("first epochs that accept everything", panel=SCHEDULE),
]  # fmt: skip
Start = Annotated[
    "str",
    Opt("masked (filled at random), greedy (one pass) or mask-predict", panel=RUN),
]  # fmt: skip
Thin = Annotated[
    "int",
    Opt("epochs between samples of a chain; 0: only the last is kept", panel=RUN),
]  # fmt: skip
RunName = Annotated[
    "str",
    Opt("name of the run in reports and pages (default: its folder)", panel=RUN),
]  # fmt: skip

SourceLines = Annotated[
    Lines,
    Opt("what each text is a translation of, for a translation model: a text, or a file with a "
        "line for each", read=texts_or_files, many=True),
]  # fmt: skip
Seed = Annotated[int, Opt("seed of all random numbers", "-s", RUN)]
TokenBudget = Annotated[
    "int | None", Opt("maximum tokens per model call (default: automatic)", panel=RUN)
]
Resident = Annotated[
    "int | None", Opt("maximum chains per device batch (default: automatic)", panel=RUN)
]
CheckpointEvery = Annotated[float, Opt("seconds between checkpoints", panel=RUN)]
AnyWorkers = Annotated[
    "int | Workers | None",
    Opt("processes that share the chains, 0: this one (default: automatic); or a Ray cluster: ray, "
        "ray(4, address=HOST:PORT, gpus_per_worker=0.5)", "-w", WORKERS, parse_workers),
]  # fmt: skip
Threads = Annotated[
    "int | None", Opt("threads of each process on a CPU (default: 1)", panel=WORKERS)
]
# Unions of quoted names, which `|` cannot join.
AnyEnergy: TypeAlias = Union[str, "Energy", TextFunction]
Stop = Callable[[], bool]
