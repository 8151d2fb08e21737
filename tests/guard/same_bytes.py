"""Record the bytes of a few dozen runs, or compare them with an earlier record.

    python tests/guard/same_bytes.py record FILE.json
    python tests/guard/same_bytes.py compare FILE.json

Bytes depend on the machine and its libraries, so a record is only good on the machine that made it:
write one before a change to the sampling path, compare after it. Every run computes with one
thread. A run is its samples, energies and tokens included, and its traces.
"""

import contextlib
import hashlib
import io
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import maskov
from maskov.cli import main as maskov_command

SMALL = "--model wiki-small --chains 3 --epochs 3 --length 7:9"
SHORT = "--model wiki-small --chains 2 --epochs 1 --length 6"
TINY = "--model untrained --chains 5 --epochs 6 --length 5:8"
TEMPLATE = "the [MASK] man [MASK] the river ."

SAMPLES = {
    "mh raw": f"{SMALL} --energy raw",
    "mh norm": f"{SMALL} --energy norm",
    "mh sum": f"{SMALL} --energy raw+0.5*norm",
    "mh, left to right": f"{SMALL} --moves site(order=left-to-right)",
    "mh, blocks": f"{SMALL} --moves site(block=3)",
    "mh, falling blocks": f"{SMALL} --moves site(block=4,block_anneal=1)",
    "mh, annealed": f"{SMALL} --target-temperature 1.5:0.3:0.5",
    "mh, forced": f"{SMALL} --force-accept 1",
    "mh, tempered": f"{SMALL} --proposal temperature=0.8 --energy norm",
    "mh, nucleus": f"{SMALL} --proposal top_p=0.9",
    "mh, top-k and epsilon": f"{SMALL} --proposal top_k=20,epsilon=0.1",
    "mh, early test": f"{SMALL} --delayed 2",
    "mh, no early test": f"{SMALL} --delayed off",
    "mh, burn-in": "--model wiki-small --chains 3 --epochs 6 --length 8",
    "mh, greedy start": f"{SMALL} --start greedy",
    "mh, bfloat16": f"{SMALL} --precision bfloat16",
    "mh, autoregressive": f"{SHORT} --energy autoregressive",
    "mh, raw and autoregressive": f"{SHORT} --energy raw+0.3*autoregressive",
    "gibbs": f"{SMALL} --kernel gibbs",
    "gibbs, blocks": f"{SMALL} --kernel gibbs --moves site(block=2) --proposal top_p=0.9",
    "mask-predict": f"{SMALL} --kernel mask-predict",
    "thinned": f"{TINY} --thin 2 --burn-in 2",
    "tiny": TINY,
    "tiny norm, groups": f"{TINY} --energy norm --resident 2",
    "tiny, workers": f"{TINY} --resident 2 --workers 2",
    "table": "--model counterexample --chains 6 --epochs 20 --length 2 --thin 5",
}
FORCED = "--method mh --epochs 4 --force-accept 1"
TRANSLATIONS = {
    "translate mh": f"{FORCED} --chains 2",
    "translate gibbs": "--method gibbs --epochs 3",
    "translate mask-predict": "--method mask-predict --iterations 3",
    "translate mh raw": f"{FORCED} --energy raw --lengths top --chains 2",
}
SENTENCES = "Guten Morgen.\nDas ist ein gutes Buch.\n"


def main() -> None:
    """Record or compare."""
    mode, file = sys.argv[1], Path(sys.argv[2])
    before = json.loads(file.read_text()) if file.exists() else {}
    found: dict[str, dict[str, str]] = {}
    only = sys.argv[3:]
    with tempfile.TemporaryDirectory() as folder:
        for name, run in all_runs(Path(folder)):
            if only and not any(part in name for part in only):
                continue
            found[name] = run()
            state = "" if mode == "record" else differs(before.get(name), found[name])
            print(f"{name}: {state or 'ok'}", flush=True)
    if mode == "record":
        file.write_text(json.dumps(before | found, indent=1))
    elif any(differs(before.get(name), value) for name, value in found.items()):
        sys.exit(1)


def differs(before: dict[str, str] | None, after: dict[str, str]) -> str:
    """Name the parts of a run that are not what they were."""
    if before is None:
        return "not recorded"
    names = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    return "" if not names else f"DIFFERS in {', '.join(sorted(names))}"


def all_runs(folder: Path):
    """Yield each run's name and how to do it."""
    for number, (name, options) in enumerate(SAMPLES.items()):
        out = folder / f"s{number}"
        yield name, lambda o=options, f=out: command(f"sample {o} --threads 1 --seed 3", f)
    yield (
        "infill",
        lambda: command(
            [
                "infill",
                TEMPLATE,
                *["--model", "wiki-small", "--chains", "3", "--epochs", "4", "--threads", "1"],
            ],
            folder / "infill",
        ),
    )
    source = folder / "sentences.txt"
    source.write_text(SENTENCES)
    for name, options in TRANSLATIONS.items():
        words = f"translate {source} --pair de-en {options} --seed 2 --json --threads 1"
        yield name, lambda w=words: {"output": printed(w.split())}
    yield "resumed", lambda: resumed(folder / "resumed")


def command(words: str | list[str], out: Path) -> dict[str, str]:
    """Run the command into a folder."""
    words = words.split() if isinstance(words, str) else words
    printed([*words, "--quiet", "--out", str(out)])
    return hashes(out)


def printed(words: list[str]) -> str:
    """Return the hash of what a command prints."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(output):
        try:
            maskov_command(words)
        except SystemExit as end:
            if end.code not in (0, None):
                raise RuntimeError(f"{words} ended with {end.code}") from end
    output.flush()
    return hashlib.sha256(output.buffer.getvalue()).hexdigest()[:16]


def hashes(out: Path) -> dict[str, str]:
    """Hash the samples and each trace of a run folder."""
    contents = {"samples.jsonl": (out / "samples.jsonl").read_bytes()}
    for name, trace in sorted(maskov.Run.open(out).traces.items()):
        file = io.BytesIO()
        np.save(file, trace)
        contents[f"{name}.npy"] = file.getvalue()
    return {name: hashlib.sha256(one).hexdigest()[:16] for name, one in contents.items()}


def resumed(out: Path) -> dict[str, str]:
    """Stop a run again and again, and go on each time."""
    calls = 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return calls % 25 == 0

    model = maskov.load("untrained", "cpu")
    workers = maskov.Workers(threads=1)
    with contextlib.suppress(maskov.errors.Interrupted):
        maskov.sample(
            model, chains=5, length=(5, 8), seed=4, out=out, resident=3, stop=stop,
            schedule=maskov.Schedule(epochs=6), workers=workers,
        )  # fmt: skip
    while not maskov.Run.open(out).finished:
        with contextlib.suppress(maskov.errors.Interrupted):
            maskov.resume(out, model, stop=stop)
    return hashes(out)


if __name__ == "__main__":
    main()
