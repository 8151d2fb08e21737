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
from experiments.paper.cool_text import COOL_RAW
from experiments.paper.cool_text import TEMPERATURES as COOL_TEMPERATURES
from experiments.paper.explanations import COOL, NORM, RAW, TEMPERATURES
from experiments.paper.shared import LONG_FORCED_EPOCHS
from experiments.paper.verdicts import FAILED, HELD, PART, Claim

_LONG = {name: f"MH {name}, {LONG_FORCED_EPOCHS} forced epochs" for name in ("norm", "raw")}
_KEPT, _STARTED = "after burn-in", "after the start"
_NO_DRIFT = (
    "Our model was trained without label smoothing and beside wrong words, the paper's models with "
    "smoothing and beside right words only. Neither change is enough (below): with smoothing alone "
    "Gibbs is worse from the first epoch on, but its energy does not rise; with right words alone "
    "it is good. With both, the energy rises in the first epochs and then stays (below)."
)
_FROZEN = (
    "Chains that start to reject near the warm start stay near it: in Table 5, eight forced epochs "
    "instead of two bring MH on E_norm to lower energies on every set (a claim of ours, below)."
)
_STILL_FROZEN = (
    f"{_FROZEN} At a fixed target (the claim after it) forced epochs lower the energy at proposal "
    "temperatures of 1, 0.8 and 0.5; with the smoothed model at 0.8 and 0.5, not at 1."
)
_TAIL = (
    "Label smoothing spreads a tenth of every conditional over the vocabulary, and this tail is "
    "part of the target of MH on E_norm. A target temperature of 0.8 ends that (a claim of ours, "
    "below). `--remove-smoothing` ends it in part (the same model, its smoothing removed, below)."
)
_SMOOTHED = (
    "With label smoothing and right words only, as the paper's models were trained, MH has lower "
    "energy and higher BLEU than Gibbs with both energies (below). With smoothing alone (below) "
    f"that is so but for BLEU on E_norm. {_TAIL}"
)
_SWEEP = (
    f"{_STILL_FROZEN} With label smoothing (below), MH stays below Gibbs at 1 as well, but not at "
    "0.8 and 0.5: a proposal temperature below 1 takes the smoothed tail away from Gibbs, but "
    "does not change the target of MH. The tail is not the whole reason: with the smoothing "
    "removed, MH is still above Gibbs there (below). With eight forced epochs it comes close at "
    "0.5 (2.4 against 1.7, smoothed 5.4 against 4.3, `explanations`), so the start is the larger "
    "part."
)
_NOT_POOR = (
    "In translation, Gibbs on our model is not poor to begin with: the model was trained without "
    "label smoothing. With smoothing and right words only (below) Gibbs with blocks is poor, and "
    "MH does better."
)
_NOT_BETTER = (
    f"{_FROZEN} With eight MH on E_norm has 26.3, 37.8, 15.4 and 12.8 BLEU on the four sets, "
    "mask-predict 26.2, 37.8, 14.8 and 13.6. Larger moves from a better start do more: from "
    "mask-predict's translation at the best of five lengths, spans on E_norm have +0.81 ± 0.12 "
    "BLEU against it on newstest2016 (1,999 sentences, `results/translation-newstest2016`) and "
    "+0.03 ± 0.12 on europarl.dev (1,000, `results/translation-twin`)."
)
_BLOCKS_REJECTED = (
    "In text on E_norm, blocks differ from what stands there more often (0.69 of proposals, single "
    "positions 0.50), but of those that differ fewer are accepted (0.24 instead of 0.32). With "
    "1,024 chains the gain is 0.0008 ± 0.0015: there is none."
)
_BELOW_TWIN = (
    "Our masked model was trained for a few minutes on output of the autoregressive one, and is "
    "worse with most methods (a claim of ours, below). With the autoregressive model as an expert "
    "in its target, and as its start, MH is level with it: 28.8 and 28.8 BLEU on 1,000 sentences "
    "(`results/translation-twin`)."
)
_LOW_ENERGIES = (
    "Energies and rates do as in the paper, or are level. BLEU does not: it is level, or higher "
    "after faster annealing. In 33 epochs slow annealing ends at higher energies, and translations "
    "of lower energy are no worse here (the same table)."
)
_NO_CHOICE = (
    "Most proposals equal the current token under either energy, so the two differ little. With "
    "label smoothing more proposals differ, and the two are still level, also with the smoothing "
    "removed (below). At a fixed temperature of 1, chains on E_raw do accept more often, with "
    "smoothing and without it (the result `acceptance`)."
)
_SAME_TEXT = (
    "Our judge and our masked model were trained on the same text, so they differ less than BERT "
    "and GPT-2."
)

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Masked conditionals need not be those of any joint distribution, and Gibbs sampling from "
        "them samples from neither energy",
        "counterexample",
        counterexample,
        "tested exactly, by enumeration",
        {HELD: "Enumerated with the kernels' own code: a proof for this example."},
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
        {PART: f"{_STILL_FROZEN} {_SMOOTHED}", FAILED: f"{_STILL_FROZEN} {_SMOOTHED}"},
    ),
    Claim(
        "Degenerate Gibbs keeps degrading: its energy rises as it runs",
        "figure1",
        degrades,
        "the first epoch against the last quarter",
        {FAILED: _NO_DRIFT},
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
        "Degenerate Gibbs improves drastically at lower proposal temperatures (translation)",
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
        {PART: _SWEEP, FAILED: _SWEEP},
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
            PART: "The target of MH has a temperature of 1, whatever its proposal, and Gibbs "
            "follows the proposal. With the proposal's temperature in its target MH is more fluent "
            "than Gibbs at 0.8, and level with it at 0.5 (a claim of ours, below). The paper has "
            "77.44 and 77.98 at 0.5.",
        },
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
        {},
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
        {},
    ),
    Claim(
        "With a truncated proposal the chain is still ergodic (assumed in section 3)",
        "table3",
        between(
            "table3",
            *((("irreversible", "norm", value), 0.0, 0.0) for value in (0.99, 0.95, 0.9, 0.8)),
        ),
        "the share of steps whose reverse probability is zero, required to be 0",
        {
            FAILED: "Where the current token lies outside its nucleus, no proposal can be "
            "accepted. Mixing in a small share ε of the full conditional fixes this, at the cost "
            "of a few improbable proposals.",
            PART: "Some boundaries leave irreversible steps; a small ε fixes this.",
        },
    ),
    Claim(
        "Blocks make MH move more: novel rates rise, much in translation, less in unconditional "
        "text",
        "table4",
        block_gain,
        "novel rates of blocks against single positions",
        {PART: _BLOCKS_REJECTED},
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
        {PART: _NOT_POOR, FAILED: _NOT_POOR},
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
            HELD: "With mask-predict's own choice of positions. This choice depends on the tokens, "
            "so neither leaves a target invariant.",
            PART: "The differences are ties decided by rounding.",
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
        "mean after the forced epochs, BLEU at the end",
        {FAILED: _NO_CHOICE},
    ),
    Claim(
        "Annealed MH translates better than mask-predict and degenerate Gibbs",
        "table5",
        beats(("MH norm", "MH raw"), ("mask-predict, 10 iterations", "degenerate Gibbs, T = 0.8")),
        "BLEU on each test set, two forced epochs as in the paper",
        {PART: _NOT_BETTER, FAILED: _NOT_BETTER},
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
            FAILED: _BELOW_TWIN,
            PART: "It holds where the autoregressive model is itself weak; elsewhere the "
            "sentences may be too few to decide.",
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
        {},
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
        {PART: _LOW_ENERGIES},
    ),
    Claim(
        "The large blocks of early epochs are accepted often, the small blocks of late epochs less "
        "often",
        "blocksize",
        early_late,
        "acceptance in the first epoch against the last",
        {
            FAILED: "A block is accepted or rejected as a whole; large blocks change more and are "
            "rejected more: so it is with blocks of one size in the same epochs (a claim of ours, "
            "below).",
            PART: "It depends on the energy.",
        },
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
        {},
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
        {PART: _SAME_TEXT, FAILED: _SAME_TEXT},
    ),
    Claim(
        "Ill-formed sequences such as a row of periods have very low energy under both energies, "
        "and low perplexity",
        "degenerate-lows",
        periods,
        "energy per token and judge perplexity against held-out text",
        {
            PART: "In this model other repetitions have low energy; the table lists them.",
        },
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
        {},
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
        {},
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
        {},
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
        {},
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
        {},
    ),
    Claim(
        "Ours: the autoregressive model translates better than every method of the masked model",
        "table5",
        beats(
            ("autoregressive model",),
            ("degenerate Gibbs, T = 0.8", "mask-predict, 5 lengths", *_LONG.values()),
        ),
        "BLEU on each test set",
        {},
    ),
)
