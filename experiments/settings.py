"""How large experiments are: quick for CI, small for a CPU, full for one H200, and the paper's own.

The sizes of `paper` are 500 chains of 15 to 45 tokens for 100 epochs, and five chains a sentence
for 7 + 26 epochs, over whole test sets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from maskov.errors import InputError


@dataclass(frozen=True)
class TextSize:
    """Unconditional chains; `search` is how many tokens the hunt for low energies tries."""

    chains: int
    length: tuple[int, int]
    epochs: int
    burn_in: int
    search: int


@dataclass(frozen=True)
class TranslationSize:
    """Chains of translations: `chains` to each of `sentences`, BLEU at up to `points` epochs.

    `tests` are the sentences of each test set of Table 5, of any length; those of the other studies
    have at most `longest` tokens in the source. None means all.
    """

    sentences: int | None
    tests: int | None
    chains: int
    epochs: int
    burn_in: int
    points: int
    longest: int | None = None


@dataclass(frozen=True)
class Setting:
    """One size of every experiment.

    `study` is the German-English set that all studies but Table 5 use, `sets` those of Table 5.
    `precision` holds on a GPU; a CPU computes in float32.
    """

    name: str
    summary: str
    text: TextSize
    translation: TranslationSize
    study: str
    sets: tuple[str, ...]
    precision: str = "float32"


_IN_DOMAIN = "europarl.dev.deen"
_SETS = ("newstest2014.deen", "europarl.dev.deen", "newstest2016.roen", "rosts.dev.roen")

SETTINGS = {
    "quick": Setting(
        "quick",
        "for CI: does everything run? The numbers mean nothing",
        TextSize(chains=6, length=(6, 8), epochs=3, burn_in=1, search=24),
        TranslationSize(sentences=2, tests=2, chains=5, epochs=3, burn_in=1, points=2),
        study="quick.deen",
        sets=("quick.deen", "quick.roen"),
    ),
    "small": Setting(
        "small",
        "for a CPU: short chains of short texts, a few sentences",
        TextSize(chains=32, length=(10, 14), epochs=8, burn_in=2, search=200),
        TranslationSize(12, 12, chains=5, epochs=17, burn_in=5, points=7, longest=20),
        study=_IN_DOMAIN,
        sets=_SETS,
    ),
    "full": Setting(
        "full",
        "for one H200 in about half an hour",
        TextSize(chains=256, length=(15, 45), epochs=40, burn_in=10, search=4000),
        TranslationSize(100, 40, chains=5, epochs=33, burn_in=7, points=13, longest=30),
        study=_IN_DOMAIN,
        sets=_SETS,
        precision="tf32",
    ),
    "base": Setting(
        "base",
        "for a model as large as BERT-base, right after its training (experiments/base.py)",
        TextSize(chains=128, length=(15, 45), epochs=30, burn_in=10, search=1000),
        TranslationSize(60, 60, chains=5, epochs=33, burn_in=7, points=13, longest=30),
        study=_IN_DOMAIN,
        sets=_SETS,
        precision="bfloat16",
    ),
    "paper": Setting(
        "paper",
        "the paper's sizes, with the paper's models where --checkpoints has them",
        TextSize(chains=500, length=(15, 45), epochs=100, burn_in=0, search=30_000),
        TranslationSize(sentences=None, tests=None, chains=5, epochs=33, burn_in=7, points=13),
        study="newstest2014.deen",
        sets=("newstest2014.deen", "newstest2016.roen"),
        precision="tf32",
    ),
}


def setting_of(name: str) -> Setting:
    """Return a setting by its name."""
    if name not in SETTINGS:
        raise InputError(f"unknown setting '{name}'; use one of {', '.join(SETTINGS)}.")
    return SETTINGS[name]


def with_sentences(setting: Setting, count: int) -> Setting:
    """Return a setting with so many sentences of each test set; signatures tell them apart."""
    size = replace(setting.translation, sentences=count, tests=count)
    return replace(setting, translation=size)
