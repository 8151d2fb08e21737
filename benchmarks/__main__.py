"""Run a benchmark: `python -m benchmarks NAME ...`."""

import importlib
import sys
from collections.abc import Sequence

from maskov.errors import MaskovError

NAMES = {
    "samplers": "maskov against the paper's Algorithm 1 in plain code, or over a grid",
    "scoring": "score against minicons",
    "paper": "the paper's unconditional run",
    "encoder": "the encoder against Hugging Face's",
    "translate": "sentences per second of every translation method",
    "rounds": "every kind of moves in rounds, a line each",
    "overhead": "workers, Ray, checkpoints, resuming, 100,000 chains, starting the command",
    "versions": "any of the above with two versions of maskov in turn",
    "plot": "figures of results",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark that the first argument names."""
    name, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name not in NAMES:
        lines = (f"  {known:10s} {what}" for known, what in NAMES.items())
        print("usage: python -m benchmarks NAME [--help]", *lines, sep="\n")
        sys.exit(0 if name in ("-h", "--help") else 2)
    try:
        importlib.import_module(f"benchmarks.{name}").main(rest)
    except MaskovError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
