"""What the paper claims, each with the comparisons that it stands or falls by."""

from __future__ import annotations

from experiments.asked import (
    SETS,
    beats,
    block_gain,
    close,
    counterexample,
    degrades,
    early_late,
    equality,
    periods,
)
from experiments.claims import FAILED, HELD, PART, Claim, between, less
from experiments.studies import LONG_FORCED

_LONG = {name: f"MH {name}, {LONG_FORCED} forced epochs" for name in ("norm", "raw")}
_KEPT, _STARTED = "after burn-in", "after the start"
_NO_DRIFT = (
    "Our model has no label smoothing, and Mask-Predict has (0.1): there every conditional has a "
    "tail of a tenth spread over the vocabulary, into which Gibbs drifts. Fine-tuned with it, ours "
    "moves about as the paper's at every temperature, and is poor from 1 on (beside); wrong words "
    "in training make no difference to this (beside)."
)
_FROZEN = (
    "Chains that begin to reject while they are near the warm start stay near it: with eight "
    "epochs that accept everything, MH ends at lower energy than Gibbs on most sets (the last "
    "claim)."
)
_SAME_TEXT = (
    "Our judge was trained on the masked model's own text, so the two diverge less than BERT and "
    "GPT-2."
)

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Masked conditionals need not belong to any joint distribution, and Gibbs sampling from "
        "them is not sampling from either energy",
        "counterexample",
        counterexample,
        "tested exactly, by enumeration",
        {
            HELD: "By enumeration with the kernels' own code, so that it is a proof for this "
            "example."
        },
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
        {PART: _FROZEN, FAILED: _FROZEN},
    ),
    Claim(
        "Degenerate Gibbs keeps degrading: its energy rises as it runs",
        "figure1",
        degrades,
        "the first epoch against the last quarter",
        {FAILED: _NO_DRIFT},
    ),
    Claim(
        "MH accepts most proposals in translation, since most equal the current token, and moves "
        "far less often than degenerate Gibbs",
        "acceptance",
        less(
            "acceptance",
            (("novel", "raw", "translation"), ("novel", "deg", "translation")),
            (("novel", "norm", "translation"), ("novel", "deg", "translation")),
            (("acceptance", "raw", "text"), ("acceptance", "raw", "translation")),
            (("acceptance", "norm", "text"), ("acceptance", "norm", "translation")),
        ),
        "novel rates, and acceptance beside that of unconditional text",
        {},
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
        "novel rates, paper 0.10 and 0.08 against 0.58",
        {},
    ),
    Claim(
        "Degenerate Gibbs improves drastically as the proposal's temperature falls (translation)",
        "table1",
        less(
            "table1",
            (("bleu", "deg", 1.0), ("bleu", "deg", 0.5)),
            (("energy_norm", "deg", 0.5), ("energy_norm", "deg", 1.0)),
        ),
        "BLEU and E_norm at 0.5 against 1.0",
        {},
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
        {PART: f"{_NO_DRIFT} {_FROZEN}", FAILED: f"{_NO_DRIFT} {_FROZEN}"},
    ),
    Claim(
        "High-entropy proposals stall MH while degenerate Gibbs always moves; low temperatures "
        "still both",
        "table1",
        less(
            "table1",
            (("novel", "norm", 2.0), ("novel", "norm", 1.0)),
            (("novel", "deg", 1.0), ("novel", "deg", 2.0)),
            (("novel", "norm", 0.5), ("novel", "norm", 1.0)),
            (("novel", "deg", 0.5), ("novel", "deg", 1.0)),
        ),
        "novel rates",
        {},
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
        {
            PART: "At low temperatures the gap closes or turns around: both then show the modes of "
            "the conditionals (the paper has 77.44 and 77.98 at 0.5).",
        },
    ),
    Claim(
        "Lower proposal temperatures make unconditional samples of both more fluent, and move "
        "them less",
        "table2",
        less(
            "table2",
            (("perplexity", "raw", 0.5), ("perplexity", "raw", 1.2)),
            (("perplexity", "deg", 0.5), ("perplexity", "deg", 1.2)),
            (("novel", "deg", 0.5), ("novel", "deg", 1.2)),
            (("novel", "raw", 0.5), ("novel", "raw", 1.0)),
        ),
        "temperature 0.5 against 1.2 (1.0 for the novel rate of MH)",
        {},
    ),
    Claim(
        "Nucleus proposals act as low temperatures do: better samples, fewer moves",
        "table3",
        less(
            "table3",
            (("bleu", "deg", 1.0), ("bleu", "deg", 0.8)),
            (("energy_norm", "deg", 0.8), ("energy_norm", "deg", 1.0)),
            (("novel", "norm", 0.8), ("novel", "norm", 1.0)),
            (("novel", "deg", 0.8), ("novel", "deg", 1.0)),
        ),
        "boundary 0.80 against 1.0",
        {},
    ),
    Claim(
        "With a truncated proposal the chain is still safely ergodic (assumed in section 3)",
        "table3",
        between(
            "table3",
            *((("irreversible", "norm", value), 0.0, 0.0) for value in (0.99, 0.95, 0.9, 0.8)),
        ),
        "the share of steps whose reverse probability is zero, asked to be 0",
        {
            FAILED: "Where the current token lies outside its nucleus no proposal can be "
            "accepted; a small ε of the full conditional mends it, at the cost of a few wilder "
            "proposals.",
            PART: "Some boundaries leave steps without a way back; a small ε mends it.",
        },
    ),
    Claim(
        "Blocks make MH move more: novel rates rise, much in translation, less in unconditional "
        "text",
        "table4",
        block_gain,
        "novel rates of blocks against single positions",
        {},
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
        {PART: f"In translation: {_NO_DRIFT}", FAILED: _NO_DRIFT},
    ),
    Claim(
        "For unconditional text E_raw is the better energy",
        "table6",
        less("table6", (("perplexity", "raw", "base"), ("perplexity", "norm", "base"))),
        "judge perplexity, single positions",
        {},
    ),
    Claim(
        "Block Gibbs at temperature 0 is mask-predict",
        "table4",
        equality,
        "token by token, against mask-predict in plain code",
        {
            HELD: "With mask-predict's own choice of positions: the choice looks at the tokens, "
            "which is why neither leaves a target invariant.",
            PART: "Differences are ties that rounding decides.",
        },
    ),
    Claim(
        "Annealed chains on E_raw accept more often than those on E_norm, and give higher BLEU",
        "figure2",
        less(
            "figure2",
            (("acceptance", "norm", _STARTED), ("acceptance", "raw", _STARTED)),
            (("bleu_last", "norm", _STARTED), ("bleu_last", "raw", _STARTED)),
        ),
        "average after the forced epochs, BLEU at the end",
        {
            FAILED: "Our conditionals are far more certain than the paper's, which are smoothed: "
            "most proposals equal the current token whatever the energy, and the two differ by "
            "little."
        },
    ),
    Claim(
        "Annealed MH translates better than mask-predict and degenerate Gibbs",
        "table5",
        beats(("MH norm", "MH raw"), ("mask-predict, 10 iterations", "degenerate Gibbs, T = 0.8")),
        "BLEU on each test set, two forced epochs as in the paper",
        {PART: _FROZEN, FAILED: _FROZEN},
    ),
    Claim(
        "Every method improves on the warm start",
        "table5",
        beats(
            ("MH norm", "MH raw", "mask-predict, 10 iterations", "degenerate Gibbs, T = 0.8"),
            ("warm start",),
        ),
        "BLEU on each test set",
        {},
    ),
    Claim(
        "The autoregressive model translates better than MH",
        "table5",
        beats(("autoregressive model",), ("MH norm", "MH raw")),
        "BLEU on each test set",
        {},
    ),
    Claim(
        "MH comes close to the autoregressive model",
        "table5",
        close,
        "BLEU on each test set",
        {
            FAILED: "Our masked model is trained on what the autoregressive one wrote, for a few "
            "minutes, and stays behind it with every method.",
            PART: "Where the autoregressive model is itself weak, or sentences are too few to say.",
        },
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
        {},
    ),
    Claim(
        "People find MH samples more coherent and more fluent, most of all those of E_raw",
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
        {},
    ),
    Claim(
        "Annealing faster finds lower energies with lower acceptance and lower BLEU",
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
        {},
    ),
    Claim(
        "Large blocks at first are accepted often, small ones at last more selectively",
        "blocksize",
        early_late,
        "acceptance in the first epoch against the last",
        {
            FAILED: "A block is accepted or rejected as a whole; large ones change more and are "
            "rejected more. The paper's curve starts where everything is still an improvement.",
            PART: "It depends on the energy.",
        },
    ),
    Claim(
        "E_raw and E_norm go together along a run",
        "rawnorm",
        between(
            "rawnorm",
            *(
                (("correlation", "raw", told), 0.3, 1.0)
                for told in ("at temperature 1", "annealed by 0.02")
            ),
        ),
        "the correlation along chains, asked to be above 0.3",
        {},
    ),
    Claim(
        "With an autoregressive energy and masked proposals chains hardly explore: most is "
        "rejected",
        "argpt",
        less(
            "argpt",
            (("acceptance", "autoregressive", "text"), ("acceptance", "norm", "text")),
            (("novel", "autoregressive", "text"), ("novel", "norm", "text")),
            (("acceptance", "autoregressive", "text"), ("acceptance", "raw", "text")),
            (("novel", "autoregressive", "text"), ("novel", "raw", "text")),
        ),
        "rates beside those of the model's own energies",
        {PART: _SAME_TEXT, FAILED: _SAME_TEXT},
    ),
    Claim(
        "Ill-formed sequences such as a row of periods have very low energy under both energies, "
        "and low perplexity",
        "degenerate-lows",
        periods,
        "energies a token and the judge's perplexity, beside held-out text",
        {
            PART: "In this model it is other repetition that is low: the table lists it.",
        },
    ),
    Claim(
        "Ours, not the paper's: with eight forced epochs annealed MH finds lower energies than "
        "every other way to translate, and better translations than with two",
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
        {},
    ),
)
