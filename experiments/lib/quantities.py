"""Display names of samplers, orders and quantities."""

from __future__ import annotations

# The orders of positions in the counter-example.
ORDERS = ("left to right", "right to left", "random position")

SAMPLERS = {
    "deg": "degenerate Gibbs",
    "raw": "MH, E_raw",
    "norm": "MH, E_norm",
    "norm, ε": "MH, E_norm, with ε = 0.05",
    "norm, forced": "MH, E_norm, 8 forced epochs",
    "raw, forced": "MH, E_raw, 8 forced epochs",
    "norm, cool": "MH, E_norm, target temperature 0.8",
    "raw, cool": "MH, E_raw, target as cool as the proposal",
    "norm, annealed": "MH, E_norm, annealed",
    "raw, annealed": "MH, E_raw, annealed",
    "norm, annealed, delayed": "MH, E_norm, annealed, delayed acceptance",
    "raw, annealed, delayed": "MH, E_raw, annealed, delayed acceptance",
    "autoregressive": "MH, autoregressive energy",
}
# Display name and digits of each quantity.
QUANTITIES = {
    "energy_raw": ("E_raw", 1),
    "energy_norm": ("E_norm", 2),
    "energy_norm_best": ("E_norm, best epoch", 2),
    "acceptance": ("acceptance rate", 3),
    "novel": ("novel rate", 3),
    "proposed_novel": ("proposals that differ", 3),
    "irreversible": ("irreversible steps", 3),
    "bleu": ("BLEU", 2),
    "bleu_best": ("BLEU, best epoch", 2),
    "bleu_last": ("BLEU", 2),
    "bleu_mbr": ("BLEU, MBR over chains", 2),
    "perplexity": ("judge perplexity", 1),
    "perplexity_per_token": ("judge perplexity per token", 1),
    "coherence": ("coherence, 1–4", 2),
    "fluency": ("fluency, 1–4", 2),
    "equal": ("equal to mask-predict", 3),
    "correlation": ("correlation of E_raw and E_norm", 3),
    # The counter-example.
    "ratio_first": ("p(aa)/p(ab) by the first conditional", 2),
    "ratio_second": ("p(aa)/p(ab) by the second", 2),
    "odds_first": ("odds ratio by the first conditional", 1),
    "odds_second": ("odds ratio by the second", 1),
    "mh_invariance_error": ("largest invariance error of MH", 17),
    "deg_invariance_error": ("largest of degenerate Gibbs", 4),
    **{
        f"variation_{energy}, {order}": (f"distance to exp(−E_{energy}), {order}", 4)
        for energy in ("raw", "norm")
        for order in ORDERS
    },
    # The search for low energies.
    "held_out_raw": ("E_raw per token, held-out text", 2),
    "held_out_norm": ("E_norm per token, held-out text", 3),
    "held_out_perplexity": ("judge perplexity, held-out text", 1),
    "period_raw": ("E_raw per token, periods", 2),
    "period_norm": ("E_norm per token, periods", 3),
    "period_perplexity": ("judge perplexity, periods", 1),
    "repeated_below_raw": ("share of repeated tokens below held-out E_raw", 3),
    "repeated_below_norm": ("share of repeated tokens below held-out E_norm", 3),
}
