"""Make mistakes in the source, one at a time: for each of them a test must fail.

    python tests/guard/mutants.py [NUMBER ...]

Each mistake is made in a temporary copy of `src`, in which the text to be replaced must stand just
once. A mistake that no test notices needs a better test.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = "exact/test_parts.py"
RESIZING = "exact/test_resizing.py"
ENGINES = "guard/test_engines.py"
NETWORKS = "models/test_any_network.py"
ORDERED = "exact/test_ordered.py"
POPULATIONS = "exact/test_populations.py"

# File, right text, wrong text, tests that must fail.
MUTANTS = [
    # moves
    ("moves/filling.py", "reverse = drawn.log_reverse", "reverse = drawn.log_forward", PARTS),
    ("moves/base.py", "place).masked_fill(others, NEVER)", "place)", PARTS),
    ("moves/base.py", "double().masked_fill(forbidden, -torch.inf)", "double()", PARTS),
    ("moves/filling.py", "reverse = reverse.index_copy(0, apart, only)", "pass", PARTS),
    ("moves/filling.py", "owner, number, last), last & same", "owner, number, last), last", PARTS),
    ("moves/filling.py", "self._tokens[rows], self._old.tokens[rows])",
     "self._tokens[rows], self._tokens[rows])", PARTS),
    ("moves/kinds.py", "inside = free & (among > 0)", "inside = (among > 0)", PARTS),
    ("moves/filling.py", "_ask(old, old.tokens[owner],", "_ask(old, self._tokens[owner],",
     RESIZING),
    ("moves/kinds.py", "= chains.region == chosen[:, None]", "= chains.inside", RESIZING),
    ("moves/filling.py", "self._stuck | (~possible & ~(new.rank >= 0).any(1))", "self._stuck",
     "exact/test_constraints.py"),
    # ordered energies and populations in rounds
    ("execution/window_rounds.py", "first = rank.masked", "first = 1 + rank.masked", ENGINES),
    ("execution/window_rounds.py", "moved.append((b.terms, b.slot_terms[:-1]))", "pass", ENGINES),
    ("execution/window_rounds.py", "order >= number", "order == number", ENGINES),
    ("models/scorer.py", "masked_fill(self.model.forbidden, -torch.inf) / temperature",
     "masked_fill(self.model.forbidden, -torch.inf)", ENGINES),
    ("execution/population_rounds.py", "        rounds.weigh(energy)\n", "", ENGINES),
    ("execution/population_rounds.py", ", steps=kernel.steps(chains)", "", ENGINES),
    ("execution/population_rounds.py", "kernel.begin(kernel.init(chains, scorer), self._rng)",
     "kernel.init(chains, scorer)", ENGINES),
    # energies
    ("energies/base.py", "return log_normaliser - logit", "return 1.01 * log_normaliser - logit",
     "exact/test_grouped.py"),
    ("energies/base.py", "[weight * values[:, column]", "[values[:, column]", PARTS),
    ("energies/counting.py", "differs = (one.tokens[:, :width] != other.tokens[:, :width]) & both",
     "differs = one.tokens[:, :width] != other.tokens[:, :width]", "exact/test_experts.py"),
    ("energies/counting.py", "(w * change if isinstance(p,", "(w if isinstance(p,", RESIZING),
    ("energies/stages.py", "masked_fill((offset == 0) | (offset > right), width)",
     "masked_fill(offset == 0, width)", "asynchronous/test_rounds.py"),
    ("energies/ordered.py", "= now >= number[:, None]", "= now == number[:, None]", ORDERED),
    ("energies/ordered.py", "terms = torch.where(scored & ~again, known, terms)",
     "terms = torch.where(again, terms, known)", ORDERED),
    ("energies/ordered.py", "free & (old < first)", "free & (old <= first)", ORDERED),
    # kernels
    ("kernels/population.py", "_reverse=-old", "_reverse=proposal.log_q_forward", ORDERED),
    ("kernels/population.py", "weights[place] += 1 - share", "weights[place] += 1", POPULATIONS),
    ("kernels/population.py", "start=target.energy, path=path", "path=path", POPULATIONS),
    ("diagnostics/populations.py", "math.log(count * share)", "math.log(share)", POPULATIONS),
    ("kernels/population.py", "step=chains.step + 1)", "step=chains.step)", POPULATIONS),
    ("kernels/base.py", "(log_q_reverse - log_q_forward)",
     "(log_q_forward - log_q_reverse)", PARTS),
    ("kernels/metropolis.py", "proposal.log_q_reverse, self.target_temperature",
     "proposal.log_q_reverse, 1.0", PARTS),
    ("kernels/metropolis.py", "before = torch.where(testing, ratio, before)", "pass", PARTS),
    ("kernels/metropolis.py", "still = unseen(proposal.changed, groups) & alike[:, None]",
     "still = unseen(proposal.changed, groups)", RESIZING),
    ("kernels/base.py", "and self.temperature == other.temperature\n", "and True\n", PARTS),
    # engines
    ("execution/site_rounds.py", "gained = ratio - b.slot_ratio[:-1]", "gained = ratio", ENGINES),
    ("execution/site_rounds.py", "(moves[:, None] | own).flatten()", "own.flatten()", ENGINES),
    ("execution/site_rounds.py", "put(b.fresh, taken, ~self._inside)", "pass", ENGINES),
    ("execution/site_rounds.py", "b.step[chain] + b.rank[chain, place]", "b.step[chain]", ENGINES),
    ("execution/window_rounds.py", "(kept[:, None], own,", "(kept[:, None] & False, own,", ENGINES),
    ("execution/window_rounds.py", "b.missing &= ~passed\n", "pass\n", ENGINES),
    ("execution/window_rounds.py", "passed &= (b.start < 0)[:, None]\n", "pass\n", ENGINES),
    ("execution/window_rounds.py", "& (b.new_lengths == b.lengths)[:, None]", "", ENGINES),
    ("execution/recorded.py", "cumsum(0) <= budget", "cumsum(0) < budget", "asynchronous"),
    ("execution/rounds.py", "b.epoch % self.kept, self.kept)", "b.epoch % self.kept, 0)", ENGINES),
    ("execution/window_rounds.py", "nearer < count if", "nearer <= count if", ENGINES),
    ("execution/window_rounds.py", "known &= ~(passless[:, None] & b.missing)", "pass", ENGINES),
    ("execution/window_rounds.py", "number and not passless[number - 1]:", "number:", ENGINES),
    ("models/packed.py", "past >= 0, after", "past > 0, after", "models/test_antibody_models.py"),
    # storage
    ("runs/store.py", "[row, first : first + len(rows)]", "[row, : len(rows)]", ENGINES),
    ("runs/state.py", "damaged: list[Path] = []\n    for file in reversed(_files(folder, group)):",
     "damaged: list[Path] = []\n    for file in _files(folder, group):",
     "hostile/test_changed_runs.py"),
    ("runs/state.py", "else sites.groups or 0", "else 0", "resume/test_grouped_runs.py"),
    # configuration
    ("config.py", "max(self.floor, self.start - self.rate * epoch)",
     "self.start - self.rate * epoch", "unit/test_schedules.py"),
    ("energies/base.py", "{repr(float(weight)).removesuffix('.0')}*", "{weight:g}*",
     "models/test_experts_refused.py"),
    ("random.py", "where, self.seed, int(purpose))", "where, self.seed, 1)", "unit/test_random.py"),
    # networks of any class
    ("models/huggingface.py", "torch.cat([logits[:, :1], logits[:, :-1]], 1)", "logits", NETWORKS),
    ("models/huggingface.py", "torch.cat(parts)[where.argsort()]", "torch.cat(parts)", NETWORKS),
]  # fmt: skip


def main() -> None:
    """Try the chosen mistakes, or all; fail if one of them is not noticed."""
    chosen = [MUTANTS[int(word)] for word in sys.argv[1:]] or MUTANTS
    if failed(ROOT / "src", *sorted({tests for *_, tests in chosen})):
        sys.exit("the tests fail without any mistake.")
    missed = sum(not noticed(*mutant) for mutant in chosen)
    print(f"{len(chosen) - missed} of {len(chosen)} mistakes are noticed.")
    sys.exit(bool(missed))


def noticed(file: str, right: str, wrong: str, tests: str) -> bool:
    """Make one mistake and run its tests."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", folder, dirs_exist_ok=True)
        path = Path(folder, "maskov", file)
        source = path.read_text()
        if source.count(right) != 1:
            sys.exit(
                f"{file} does not hold this text once, but {source.count(right)} times: {right}"
            )
        path.write_text(source.replace(right, wrong))
        found = failed(Path(folder), tests)
    name = (wrong.strip() or "nothing").splitlines()[0]
    print(f"{file}: {name} ({tests}): {'noticed' if found else 'NOT NOTICED'}", flush=True)
    return found


def failed(source: Path, *tests: str) -> bool:
    """Return whether one of some tests fails; pytest itself must not."""
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider"]
    code = subprocess.run(
        [*command, *(f"tests/{name}" for name in tests)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(source)}, stdout=subprocess.DEVNULL,
    ).returncode  # fmt: skip
    if code not in (0, 1):
        sys.exit(f"pytest ended with {code}: {' '.join(tests)}")
    return code == 1


if __name__ == "__main__":
    main()
