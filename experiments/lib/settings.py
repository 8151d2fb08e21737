"""Sizes of the experiments: quick (CI), small (CPU), full and large (one H200), base, and paper.

The paper uses 500 chains of 15 to 45 tokens for 100 epochs, and five chains per sentence for
7 + 26 epochs on whole test sets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from maskov.errors import InputError


@dataclass(frozen=True)
class TextSize:
    """Size of unconditional chains; `search` is the number of tokens in the low-energy search."""

    chains: int
    length: tuple[int, int]
    epochs: int
    burn_in: int
    search: int


@dataclass(frozen=True)
class TranslationSize:
    """Size of translation chains: `chains` per sentence, BLEU at up to `points` epochs.

    `tests` is the number of sentences of each test set of Table 5, of any length, with
    `test_chains` chains each and, for MH, delayed acceptance if `test_nearest` is the number of
    positions of its first stage. The other studies use `sentences` sentences with at most `longest`
    source tokens. None means no limit.
    """

    sentences: int | None
    tests: int | None
    chains: int
    epochs: int
    burn_in: int
    points: int
    longest: int | None = None
    test_chains: int = 5
    test_nearest: int = 0


@dataclass(frozen=True)
class Setting:
    """One size of every experiment.

    `sets` are the test sets of Table 5; the other studies use the German-English set `study`.
    `precision` is for GPUs; CPUs use float32.
    """

    name: str
    summary: str
    text: TextSize
    translation: TranslationSize
    study: str
    sets: tuple[str, ...]
    precision: str = "float32"


_IN_DOMAIN = "europarl.dev.deen"
# In-domain sets first, then the paper's.
_SETS = ("europarl.dev.deen", "rosts.dev.roen", "newstest2016.roen", "newstest2014.deen")

SETTINGS = {
    "quick": Setting(
        "quick",
        "for CI: a smoke test with meaningless numbers",
        TextSize(chains=6, length=(6, 8), epochs=3, burn_in=1, search=24),
        TranslationSize(sentences=2, tests=2, chains=5, epochs=3, burn_in=1, points=2),
        study="quick.deen",
        sets=("quick.deen", "quick.roen"),
    ),
    "small": Setting(
        "small",
        "for a CPU: short chains of short texts, few sentences",
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
        "for a model of the size of BERT-base",
        TextSize(chains=128, length=(15, 45), epochs=30, burn_in=10, search=1000),
        TranslationSize(60, 60, chains=5, epochs=33, burn_in=7, points=13, longest=30),
        study=_IN_DOMAIN,
        sets=_SETS,
        precision="bfloat16",
    ),
    "paper": Setting(
        "paper",
        "the paper's sizes, with the paper's models from --checkpoints",
        TextSize(chains=500, length=(15, 45), epochs=100, burn_in=0, search=30_000),
        TranslationSize(sentences=None, tests=None, chains=5, epochs=33, burn_in=7, points=13),
        study="newstest2014.deen",
        sets=("newstest2014.deen", "newstest2016.roen"),
        precision="tf32",
    ),
}
SETTINGS["large"] = replace(
    SETTINGS["full"],
    name="large",
    summary="as full, with 1,024 texts, and 200 sentences a set, three chains each, in Table 5",
    text=replace(SETTINGS["full"].text, chains=1024),
    translation=replace(SETTINGS["full"].translation, tests=200, test_chains=3, test_nearest=2),
)


def setting_of(name: str) -> Setting:
    """Return a setting by name."""
    if name not in SETTINGS:
        raise InputError(f"unknown setting '{name}'; use one of {', '.join(SETTINGS)}.")
    return SETTINGS[name]


def with_sentences(setting: Setting, count: int | None) -> Setting:
    """Return a setting with another number of sentences per test set; None means all."""
    size = replace(setting.translation, sentences=count, tests=count)
    return replace(setting, translation=size)


def with_texts(setting: Setting, count: int) -> Setting:
    """Return a setting with another number of unconditional chains."""
    return replace(setting, text=replace(setting.text, chains=count))
