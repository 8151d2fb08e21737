"""A setting of the experiments that runs in a second."""

from experiments.lib.settings import Setting, TextSize, TranslationSize

TINY = Setting(
    "tiny",
    "for tests",
    TextSize(chains=5, length=(4, 6), epochs=2, burn_in=1, search=8),
    TranslationSize(sentences=3, tests=4, chains=5, epochs=3, burn_in=1, points=3),
    study="words.deen",
    sets=("words.deen", "words.roen"),
)
