"""The command that does the paper again: `reproduce`."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from maskov.cli.output import say
from maskov.cli.signals import stop_on_signals
from maskov.errors import InputError, Interrupted

# A checkout has `experiments` beside `src`; an installed package has not.
_REPOSITORY = Path(__file__).parents[3]


def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="a result, all, list, or report (draw again)")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="folder of results; what is there is kept")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="does it run? minutes on a CPU")] = False,
    full: Annotated[bool, typer.Option("--full", help="sized for one H200")] = False,
    paper: Annotated[
        bool, typer.Option("--paper", help="the paper's sizes, with the models of --checkpoints")
    ] = False,
    data: Annotated[Path | None, typer.Option("--data", help="folder of test sets")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 ...")] = "auto",
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="masked model of unconditional text")
    ] = None,
    judge: Annotated[str | None, typer.Option(help="causal LM for perplexity")] = None,
    translation: Annotated[
        str | None, typer.Option("--translation", help="masked model of all translations")
    ] = None,
    twin: Annotated[
        str | None, typer.Option("--twin", help="autoregressive model of all translations")
    ] = None,
    checkpoints: Annotated[
        Path | None, typer.Option(help="folder of the paper's checkpoints, for --paper")
    ] = None,
    sentences: Annotated[
        int | None, typer.Option(min=2, help="of each test set, instead of the setting's")
    ] = None,
    ratings: Annotated[
        Path | None, typer.Option(metavar="STUDY", help="study with people's ratings, for table6")
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", help="cells of one task: text or translation")
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, max=64, help="cells at once, a process each")
    ] = 1,
    page: Annotated[
        Path | None, typer.Option(help="file for the page of claims; OUT/README.md unless given")
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(help="with report: another model's results to put beside (may be repeated)"),
    ] = None,
    keep_runs: Annotated[
        bool, typer.Option("--keep-runs", help="keep run folders of finished cells")
    ] = False,
) -> None:
    """Reproduce the paper's tables and figures, the paper's number beside ours."""
    modules = _experiments()
    if sum((quick, full, paper)) > 1:
        raise InputError("give one of --quick, --full and --paper (none of them: sized for a CPU).")
    if only not in (None, "text", "translation"):
        raise InputError(f"--only takes text or translation, not '{only}'.")
    if paper and checkpoints is None and name not in ("list", "report"):
        raise InputError("--paper needs --checkpoints, the folder with the paper's models.")
    setting = modules["settings"].setting_of(
        "quick" if quick else "full" if full else "paper" if paper else "small"
    )
    if sentences is not None:
        setting = modules["settings"].with_sentences(setting, sentences)
    if beside and name != "report":
        raise InputError("--beside belongs to `reproduce report`.")
    if name == "list":
        modules["driver"].listing(setting, print)
        return
    if out is None:
        raise InputError("say where results go: --out DIR.")
    if name == "report":
        modules["driver"].report(out, page, say, beside or ())
        return
    results = modules["registry"].results_of(name)
    given = {
        "base": model, "judge": judge, "de-en": translation, "ro-en": translation,
        "twin-de-en": twin, "twin-ro-en": twin,
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    with stop_on_signals() as stop:
        workshop = modules["workshop"].Workshop(
            setting,
            out,
            data,
            device,
            {role: one for role, one in given.items() if one is not None},
            checkpoints,
            ratings,
            keep_runs,
            stop,
        )
        try:
            modules["driver"].reproduce(
                results,
                workshop,
                say,
                lambda work: only is None or work.translates == (only == "translation"),
                lenient=name == "all",
                jobs=jobs,
            )
        except (Interrupted, KeyboardInterrupt):
            say("stopped; the same command goes on from here")
            raise typer.Exit(stop.exit_code) from None
        finally:
            modules["driver"].write_page(out, page)


def _experiments() -> dict[str, Any]:
    """Import the experiments of a checkout, or say that they are not part of the package."""
    if not (_REPOSITORY / "experiments" / "paper.py").is_file():
        raise InputError(
            "the experiments are in the repository, not in the installed package: clone it, "
            "`pip install -e .` there, and run this again."
        )
    if str(_REPOSITORY) not in sys.path:
        sys.path.insert(0, str(_REPOSITORY))
    names = ("settings", "registry", "workshop", "driver")
    return {name: import_module(f"experiments.{name}") for name in names}
