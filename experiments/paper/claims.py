"""The paper's claims, each with the comparisons that test it."""

from __future__ import annotations

from experiments.paper.claim_tests import (
    SETS,
    beats,
    between,
    block_gain,
    close,
    counterexample,
    degrades,
    early_late,
    equality,
    less,
    periods,
)
from experiments.paper.cool_text import COOL_RAW, TEMPERATURES as COOL_TEMPERATURES
from experiments.paper.explanations import COOL, NORM, RAW, TEMPERATURES
from experiments.paper.shared import LONG_FORCED_EPOCHS
from experiments.paper.verdicts import Claim

_LONG = {name: f"MH {name}, {LONG_FORCED_EPOCHS} forced epochs" for name in ("norm", "raw")}
_KEPT, _STARTED = "after burn-in", "after the start"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Masked conditionals need not be those of any joint distribution, and Gibbs sampling from "
        "them samples from neither energy",
        "counterexample",
        counterexample,
        "tested exactly, by enumeration",
    ),
    Claim(
        "In translation, MH samples have lower energy and higher BLEU than degenerate Gibbs",
        "figure1",
        less(
            "figure1",
            *(
                pair
                for name in ("norm", "raw")
                for pair in (
                    (
                        ("energy_norm", name, _KEPT),
                        ("energy_norm", "deg", _KEPT),
                    ),
                    (("bleu", "deg", _KEPT), ("bleu", name, _KEPT)),
                )
            ),
        ),
        "averages after burn-in, five chains a sentence",
    ),
    Claim(
        "Degenerate Gibbs keeps degrading: its energy rises as it runs",
        "figure1",
        degrades,
        "the first epoch against the last quarter",
    ),
    Claim(
        "In translation MH accepts most proposals, because most equal the current token, and moves "
        "far less often than degenerate Gibbs",
        "acceptance",
        less(
            "acceptance",
            (("novel", "raw", "translation"), ("novel", "deg", "translation")),
            (("novel", "norm", "translation"), ("novel", "deg", "translation")),
            (("acceptance", "raw", "text"), ("acceptance", "raw", "translation")),
            (("acceptance", "norm", "text"), ("acceptance", "norm", "translation")),
        ),
        "novel rates, and acceptance against that of unconditional text",
    ),
    Claim(
        "In unconditional generation MH rejects most proposals that differ: novel rates fall far "
        "below those of degenerate Gibbs",
        "acceptance",
        less(
            "acceptance",
            (("novel", "raw", "text"), ("novel", "deg", "text")),
            (("novel", "norm", "text"), ("novel", "deg", "text")),
        ),
        "novel rates",
    ),
    Claim(
        "Degenerate Gibbs improves drastically at lower proposal temperatures (translation)",
        "table1",
        less(
            "table1",
            (("bleu", "deg", 1.0), ("bleu", "deg", 0.5)),
            (("energy_norm", "deg", 0.5), ("energy_norm", "deg", 1.0)),
        ),
        "BLEU and E_norm at 0.5 against 1.0",
    ),
    Claim(
        "The energy of MH samples stays below that of degenerate Gibbs at every temperature",
        "table1",
        less(
            "table1",
            *(
                (("energy_norm", "norm", value), ("energy_norm", "deg", value))
                for value in (2.0, 1.5, 1.0, 0.8, 0.5)
            ),
        ),
        "E_norm, translation",
    ),
    Claim(
        "High-entropy proposals stall MH while degenerate Gibbs always moves; low temperatures "
        "stall both",
        "table1",
        less(
            "table1",
            (("novel", "norm", 2.0), ("novel", "norm", 1.0)),
            (("novel", "deg", 1.0), ("novel", "deg", 2.0)),
            (("novel", "norm", 0.5), ("novel", "norm", 1.0)),
            (("novel", "deg", 0.5), ("novel", "deg", 1.0)),
        ),
        "novel rates",
    ),
    Claim(
        "Unconditional text: MH on E_raw is more fluent than degenerate Gibbs, most of all at high "
        "temperatures",
        "table2",
        less(
            "table2",
            *(
                (("perplexity", "raw", value), ("perplexity", "deg", value))
                for value in (1.2, 1.0, 0.8, 0.5)
            ),
        ),
        "judge perplexity at each temperature",
    ),
    Claim(
        "Lower proposal temperatures make unconditional samples of both samplers more fluent and "
        "their chains move less",
        "table2",
        less(
            "table2",
            (("perplexity", "raw", 0.5), ("perplexity", "raw", 1.2)),
            (("perplexity", "deg", 0.5), ("perplexity", "deg", 1.2)),
            (("novel", "deg", 0.5), ("novel", "deg", 1.2)),
            (("novel", "raw", 0.5), ("novel", "raw", 1.0)),
        ),
        "temperature 0.5 against 1.2 (1.0 for the novel rate of MH)",
    ),
    Claim(
        "Nucleus proposals act like low temperatures: better samples, fewer moves",
        "table3",
        less(
            "table3",
            (("bleu", "deg", 1.0), ("bleu", "deg", 0.8)),
            (("energy_norm", "deg", 0.8), ("energy_norm", "deg", 1.0)),
            (("novel", "norm", 0.8), ("novel", "norm", 1.0)),
            (("novel", "deg", 0.8), ("novel", "deg", 1.0)),
        ),
        "boundary 0.80 against 1.0",
    ),
    Claim(
        "With a truncated proposal the chain is still ergodic (assumed in section 3)",
        "table3",
        between(
            "table3",
            *((("irreversible", "norm", value), 0.0, 0.0) for value in (0.99, 0.95, 0.9, 0.8)),
        ),
        "the share of steps whose reverse probability is zero, required to be 0",
    ),
    Claim(
        "Blocks make MH move more: novel rates rise, much in translation, less in unconditional "
        "text",
        "table4",
        block_gain,
        "novel rates of blocks against single positions",
    ),
    Claim(
        "With blocks, degenerate Gibbs stays poor and MH does well",
        "table4",
        less(
            "table4",
            (("bleu", "deg", "translation"), ("bleu", "raw", "translation")),
            (("bleu", "deg", "translation"), ("bleu", "norm", "translation")),
            (("perplexity", "raw", "text"), ("perplexity", "deg", "text")),
            (("perplexity", "norm", "text"), ("perplexity", "deg", "text")),
        ),
        "BLEU and judge perplexity",
    ),
    Claim(
        "For unconditional text E_raw is the better energy",
        "table6",
        less("table6", (("perplexity", "raw", "base"), ("perplexity", "norm", "base"))),
        "judge perplexity, single positions",
    ),
    Claim(
        "Block Gibbs at temperature 0 is mask-predict",
        "table4",
        equality,
        "token by token, against mask-predict in plain code",
    ),
    Claim(
        "Annealed chains on E_raw accept more often than those on E_norm, and give higher BLEU",
        "figure2",
        less(
            "figure2",
            (("acceptance", "norm", _STARTED), ("acceptance", "raw", _STARTED)),
            (("bleu_last", "norm", _STARTED), ("bleu_last", "raw", _STARTED)),
        ),
        "mean after the forced epochs, BLEU at the end",
    ),
    Claim(
        "Annealed MH translates better than mask-predict and degenerate Gibbs",
        "table5",
        beats(("MH norm", "MH raw"), ("mask-predict, 10 iterations", "degenerate Gibbs, T = 0.8")),
        "BLEU on each test set, two forced epochs as in the paper",
    ),
    Claim(
        "Every method improves on the warm start",
        "table5",
        beats(
            ("MH norm", "MH raw", "mask-predict, 10 iterations", "degenerate Gibbs, T = 0.8"),
            ("warm start",),
        ),
        "BLEU on each test set",
    ),
    Claim(
        "The autoregressive model translates better than MH",
        "table5",
        beats(("autoregressive model",), ("MH norm", "MH raw")),
        "BLEU on each test set",
    ),
    Claim(
        "MH comes close to the autoregressive model",
        "table5",
        close,
        "BLEU on each test set",
    ),
    Claim(
        "Unconditional quality: E_raw before E_norm before degenerate Gibbs",
        "table6",
        less(
            "table6",
            (("perplexity", "raw", "base"), ("perplexity", "norm", "base")),
            (("perplexity", "norm", "base"), ("perplexity", "deg", "base")),
        ),
        "judge perplexity",
    ),
    Claim(
        "People rate MH samples as more coherent and more fluent, most of all those of E_raw",
        "table6",
        less(
            "table6",
            *(
                ((scale, low, "base"), (scale, high, "base"))
                for scale in ("coherence", "fluency")
                for low, high in (("deg", "norm"), ("norm", "raw"))
            ),
        ),
        "blind ratings, where there are any",
    ),
    Claim(
        "Faster annealing gives lower energies, lower acceptance and lower BLEU",
        "table7",
        less(
            "table7",
            *(
                pair
                for name in ("norm", "raw")
                for pair in (
                    (("energy_norm_best", name, 0.06), ("energy_norm_best", name, 0.02)),
                    (("acceptance", name, 0.06), ("acceptance", name, 0.02)),
                    (("bleu_best", name, 0.06), ("bleu_best", name, 0.02)),
                )
            ),
        ),
        "0.06 against 0.02",
    ),
    Claim(
        "The large blocks of early epochs are accepted often, the small blocks of late epochs less "
        "often",
        "blocksize",
        early_late,
        "acceptance in the first epoch against the last",
    ),
    Claim(
        "E_raw and E_norm are correlated along a run",
        "rawnorm",
        between(
            "rawnorm",
            *(
                (("correlation", "raw", label), 0.3, 1.0)
                for label in ("at temperature 1", "annealed by 0.02")
            ),
        ),
        "the correlation along chains, required to be above 0.3",
    ),
    Claim(
        "With an autoregressive energy and masked proposals, most proposals are rejected and "
        "chains hardly explore",
        "argpt",
        less(
            "argpt",
            (("acceptance", "autoregressive", "text"), ("acceptance", "norm", "text")),
            (("novel", "autoregressive", "text"), ("novel", "norm", "text")),
            (("acceptance", "autoregressive", "text"), ("acceptance", "raw", "text")),
            (("novel", "autoregressive", "text"), ("novel", "raw", "text")),
        ),
        "rates against those of the model's own energies",
    ),
    Claim(
        "Ill-formed sequences such as a row of periods have very low energy under both energies, "
        "and low perplexity",
        "degenerate-lows",
        periods,
        "energy per token and judge perplexity against held-out text",
    ),
    Claim(
        "Ours, not the paper's: with eight forced epochs annealed MH finds lower energies than "
        "every other method, and better translations than with two",
        "table5",
        less(
            "table5",
            *(
                (("energy_norm", _LONG["norm"], data), ("energy_norm", other, data))
                for other in (
                    "degenerate Gibbs, T = 0.8",
                    "mask-predict, 10 iterations",
                    "MH norm",
                    "autoregressive model",
                )
                for data in SETS
            ),
            *(
                (("bleu_last", f"MH {name}", data), ("bleu_last", _LONG[name], data))
                for name in ("norm", "raw")
                for data in SETS
            ),
        ),
        "E_norm and BLEU on each test set",
    ),
    Claim(
        "Ours: after eight forced epochs MH is below degenerate Gibbs of the same proposal, and "
        "below MH that tests from the first step",
        "explanations",
        less(
            "explanations",
            *(
                (("energy_norm", NORM, value), ("energy_norm", other, value))
                for other in ("deg", "norm")
                for value in TEMPERATURES
            ),
            *((("energy_norm", RAW, 1.0), ("energy_norm", other, 1.0)) for other in ("deg", "raw")),
        ),
        "E_norm at a fixed target temperature of 1",
    ),
    Claim(
        "Ours: a target temperature of 0.8 ends what label smoothing does to MH on E_norm",
        "explanations",
        less(
            "explanations",
            (("energy_norm", COOL, 1.0), ("energy_norm", "norm", 1.0)),
            (("bleu", "norm", 1.0), ("bleu", COOL, 1.0)),
        ),
        "E_norm and BLEU, proposal temperature 1",
    ),
    Claim(
        "Ours: in the same epochs larger blocks are accepted less often",
        "fixed-blocks",
        less(
            "fixed-blocks",
            *(
                (("acceptance", name, large), ("acceptance", name, small))
                for name in ("raw", "norm")
                for small, large in ((1.0, 2.0), (2.0, 4.0), (4.0, 8.0))
            ),
        ),
        "acceptance in the first two epochs",
    ),
    Claim(
        "Ours: below temperature 1, MH on E_raw is more fluent than degenerate Gibbs, and than "
        "before, if its target is as cool as its proposal",
        "cool-text",
        less(
            "cool-text",
            *(
                (("perplexity", COOL_RAW, value), ("perplexity", other, value))
                for other in ("raw", "deg")
                for value in COOL_TEMPERATURES
            ),
        ),
        "judge perplexity, proposal temperatures 0.8 and 0.5",
    ),
    Claim(
        "Ours: the autoregressive model translates better than every method of the masked model",
        "table5",
        beats(
            ("autoregressive model",),
            ("degenerate Gibbs, T = 0.8", "mask-predict, 5 lengths", *_LONG.values()),
        ),
        "BLEU on each test set",
    ),
)
