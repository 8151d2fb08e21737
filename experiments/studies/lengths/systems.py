"""The systems of the study: methods, and how a translation is selected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from maskov import LinearSchedule
from maskov.evaluation import most_alike
from maskov.translation import SAMPLED, TranslationMethod, lowest, lowest_target
from maskov.types import Sample

# All others are compared with it.
BASELINE = "mask-predict, 5 lengths"
CHAINS = 5
# Chosen on held-out pairs (LOG.md): 1 is as good by BLEU, but the twin's own translations then have
# nearly as low an energy as those of the chains.
TWIN_WEIGHT = 0.5
_SAMPLED = TranslationMethod("mh", lengths="sampled", chains=CHAINS, pick="lowest")
# The settings of the paper's Table 5, written out.
_PAPER = TranslationMethod(
    "mh", energy="raw", moves="site", epochs=33, temperature=0.8, force_accept=2,
    target_temperature=LinearSchedule(1.0, 0.02, 0.01), lengths="best", start="greedy",
)  # fmt: skip

# Spans at the length of mask-predict's best candidate, from which they start.
_SEARCHED = TranslationMethod("mh", lengths="searched")
_FIVE = TranslationMethod("mask-predict", iterations=10, length_beam=5)

Selection = Callable[[list[Sample], list[Sample]], Sample]
# From all samples of a source, and from the last ones of its chains.
SELECTIONS: dict[str, Selection] = {
    "first chain": lambda samples, ends: ends[0],
    "lowest per token": lambda samples, ends: lowest(ends, "norm"),
    "lowest of the first chain": lambda samples, ends: lowest_target(
        [one for one in samples if one.chain == ends[0].chain]
    ),
    "lowest": lambda samples, ends: lowest_target(samples),
    "mbr": lambda samples, ends: ends[most_alike([one.text for one in ends])],
}
# Of the last samples of chains that have another target, or none.
RESCORED = "lowest with the twin"


@dataclass(frozen=True)
class System:
    """A method, and how one translation of each source is selected; some share a run."""

    method: TranslationMethod
    select: str = "first chain"


def twin_energy(twin: str, weight: float = TWIN_WEIGHT) -> str:
    """Return the target of chains with the twin."""
    return f"norm+{weight}*autoregressive({twin})"


def all_systems(chains: int = CHAINS, twin: str | None = None) -> dict[str, System]:
    """Return the systems; those with sampled lengths have so many chains, all of one run."""
    sampled = replace(_SAMPLED, chains=chains)
    systems = {
        "mask-predict": System(TranslationMethod("mask-predict", iterations=10)),
        BASELINE: System(_FIVE, "lowest per token"),
    }
    if twin is not None:
        systems[f"{BASELINE}, chosen with the twin"] = System(_FIVE, RESCORED)
    systems |= {
        "MH, fixed length (paper)": System(_PAPER),
        "MH, searched length": System(_SEARCHED),
        **_ways("MH, sampled length", sampled),
    }
    if twin is not None:
        method = replace(sampled, energy=twin_energy(twin))
        systems |= _ways("MH, sampled length, with the twin", method)
        method = replace(method, start="autoregressive")
        systems |= _ways("MH, sampled length, with the twin, from its translation", method)
    return systems | {
        "autoregressive, greedy": System(TranslationMethod("ar", beam=1)),
        "autoregressive, beam 5": System(TranslationMethod("ar", beam=5)),
    }


def _ways(name: str, method: TranslationMethod) -> dict[str, System]:
    """Return the ways to select from the chains of one run."""
    return {
        name: System(method),
        f"{name}, lowest of a chain": System(method, "lowest of the first chain"),
        f"{name}, lowest of all chains": System(method, "lowest"),
        f"{name}, MBR over chains": System(method, "mbr"),
    }


def _falling(start: float, fall: float) -> LinearSchedule:
    return LinearSchedule(start, fall, SAMPLED.target_temperature.floor)


def variants(twin: str | None = None) -> dict[str, System]:
    """Return variants of the chains with sampled lengths, to choose their settings."""
    one = replace(_SAMPLED, chains=1)
    kept = {name: all_systems()[name] for name in ("mask-predict", BASELINE)}
    energies = ["norm", *(f"norm+{weight}*predicted_length" for weight in (0.5, 1, 2, 4))]
    energies += [f"raw+{weight}*predicted_length" for weight in (2, 4)]
    methods = {energy: replace(one, energy=energy) for energy in energies}
    if twin is not None:
        for weight in (0.25, 0.5, 1.0, 2.0):
            energy = twin_energy(twin, weight)
            methods[f"norm+{weight}*twin"] = replace(one, energy=energy)
        started = replace(one, energy=twin_energy(twin), start="autoregressive")
        methods["from the twin's translation"] = started
        for begin, fall in ((0.2, 0.01), (0.05, 0.0)):
            name = f"from the twin's translation, T = {begin}"
            methods[name] = replace(started, target_temperature=_falling(begin, fall))
    methods |= {
        "searched length": _SEARCHED,
        "from T = 1": replace(one, target_temperature=_falling(1.0, 0.05)),
        "from T = 0.2": replace(one, target_temperature=_falling(0.2, 0.01)),
        "40 epochs": replace(one, epochs=40, target_temperature=_falling(0.5, 0.02)),
        "five lengths": replace(
            _SAMPLED, lengths="top", energy=SAMPLED.energy, moves=SAMPLED.moves,
            start="mask-predict", delayed="2", force_accept=0, epochs=SAMPLED.epochs,
            target_temperature=SAMPLED.target_temperature,
        ),
    }  # fmt: skip
    found = {name: System(method) for name, method in methods.items()}
    found["five lengths, lowest"] = System(methods["five lengths"], "lowest")
    found["five lengths, MBR"] = System(methods["five lengths"], "mbr")
    return kept | found
