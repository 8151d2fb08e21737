"""The options of `rewrite`, and how lines are rewritten by them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from maskov.options.constraints import CONSTRAINTS, FREEZE, ConstraintOptions
from maskov.options.model import ModelOptions, findable
from maskov.options.option import FIRST, option
from maskov.options.workers import WorkerOptions
from maskov.shipped import default_judge

if TYPE_CHECKING:
    from maskov.energies import Energy
    from maskov.rewriting import Rewriter

_ENERGY = "Advanced: energy"
_CHAINS = "Advanced: chains"
_RUN = "Advanced: run"
_MOVES = "site:6,span:2,insert-delete:1"
# Mutations can be listed only where lengths are fixed.
_MOVES_OF_RECORDS = "site:6,span:2"


@dataclass(frozen=True)
class RewritingOptions(WorkerOptions, ConstraintOptions, ModelOptions):
    """The options of `rewrite`."""

    toward: Annotated[
        Any,
        option(
            "--toward",
            "what texts should become, an energy: classifier(MODEL, label=positive), "
            "contains('river'), length(12), a sum ...",
            FIRST,
        ),
    ] = ""
    strength: Annotated[float, option("--strength", "weight of --toward", FIRST)] = 20.0
    keep: Annotated[
        float, option("--keep", "weight of every token changed (edit distance)", FIRST)
    ] = 8.0
    fluency: Annotated[
        Any, option("--fluency", "energy of fluent text: norm, raw, or a sum", _ENERGY)
    ] = "0.3*norm"
    target_temperature: Annotated[
        float, option("--target-temperature", "T in p ∝ exp(-E/T)", _ENERGY)
    ] = 1.0

    hot: Annotated[
        float,
        option("--hot", "T of the first epoch, falling to --target-temperature", _ENERGY),
    ] = 1.0

    freeze: Annotated[str | None, option("--freeze", FREEZE, CONSTRAINTS)] = None

    chains: Annotated[int, option("--chains", "chains of each line", FIRST, "-c")] = 8
    epochs: Annotated[int, option("--epochs", "sweeps over all positions", FIRST, "-n")] = 15
    pick: Annotated[
        str,
        option(
            "--pick",
            "lowest energy of any chain and epoch, last sample of the first chain, or mbr over "
            "the chains",
            _CHAINS,
        ),
    ] = "lowest"
    moves: Annotated[
        Any,
        option(
            "--moves",
            "moves by weight: site, span, insert-delete, resize "
            f"(default: {_MOVES}; for FASTA {_MOVES_OF_RECORDS})",
            _CHAINS,
        ),
    ] = None
    span: Annotated[
        str | tuple[int, int], option("--span", "positions of a span: 2, or a range", _CHAINS)
    ] = "2:3"
    temperature: Annotated[
        float, option("--temperature", "temperature of the proposal", _CHAINS)
    ] = 1.0

    every_chain: Annotated[
        bool, option("--every-chain", "print all chains of a line instead of one", _RUN)
    ] = False
    seed: Annotated[int, option("--seed", "random seed", _RUN, "-s")] = 0
    out: Annotated[
        Path | None,
        option("--out", "folder for finished lines; repeat the command to continue", FIRST, "-o"),
    ] = None
    batch: Annotated[
        int | None, option("--batch", "lines of a run (default: 32; on a GPU all)", _RUN)
    ] = None
    token_budget: Annotated[
        int | None, option("--token-budget", "tokens per model call (default: automatic)", _RUN)
    ] = None
    resident: Annotated[
        int | None,
        option("--resident", "maximum chains per device batch (default: automatic)", _RUN),
    ] = None
    threads: Annotated[
        int | None,
        option("--threads", "threads of each process on a CPU (default: 1)", _RUN),
    ] = None

    @property
    def aims(self) -> bool:
        """Whether they say what texts should become."""
        wanted = (self.toward, self.contains, self.avoid, self.allow)
        return any(one not in (None, "") for one in wanted)

    def build(self, device: object, records: bool = False) -> Rewriter:
        """Return how lines are rewritten, or records of FASTA."""
        from maskov.energies import Energy, parse_energy
        from maskov.energies.networks import Loading
        from maskov.kernels.registry import move_names, named_moves, parse_moves, parse_sizes
        from maskov.moves import MaskedConditional
        from maskov.rewriting import Rewriter

        loading = Loading(str(device), self.trust_remote_code, find=findable)
        usual = _MOVES_OF_RECORDS if records else _MOVES
        named = usual if self.moves is None else self.moves
        resizes = bool(move_names(named) & {"insert-delete", "resize"})
        proposal = MaskedConditional(self.temperature, constraints=self.build_constraints(resizes))
        moves, weights = parse_moves(named, named_moves(proposal, parse_sizes(self.span)))

        def energy(given: str | Energy) -> Energy:
            if isinstance(given, Energy):
                return given
            return parse_energy(given, default_judge(), loading)

        return Rewriter(
            energy(self.toward) if self.toward else None,
            self.strength,
            self.keep,
            energy(self.fluency),
            self.target_temperature,
            self.hot,
            self.chains,
            self.epochs,
            self.pick,
            moves,
            weights,
        )
