"""Reproduce the paper's tables and figures: `python -m experiments NAME --out DIR`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from experiments.lib.cell import Cell
from experiments.lib.chains import Translations
from experiments.lib.context import Context
from experiments.lib.deterministic import DeterministicTranslations
from experiments.lib.settings import setting_of, with_sentences, with_texts
from maskov.cli import main as run_app
from maskov.cli.commands import say, stop_on_signals
from maskov.config import ModelSource
from maskov.errors import InputError

# The cells that --only selects.
_ONLY: dict[str, Callable[[Cell], bool]] = {
    "text": lambda cell: not cell.translates,
    "translation": lambda cell: cell.translates,
    "chains": lambda cell: cell.kind == Translations.kind,
    "deterministic": lambda cell: cell.kind == DeterministicTranslations.kind,
}

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command(no_args_is_help=True)
def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="results, or all, list, report (render only)"),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="folder of results; finished cells are kept")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="smoke test: minutes on a CPU, meaningless numbers")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="sizes for one H200")] = False,
    large: Annotated[
        bool,
        typer.Option(
            "--large", help="as --full, with 1,024 texts, and 200 sentences per set in table5"
        ),
    ] = False,
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
        str | None, typer.Option("--translation", help="masked translation model")
    ] = None,
    remove_smoothing: Annotated[
        float,
        typer.Option(
            help="label smoothing of the masked translation model's training, to be removed from "
            "its conditionals"
        ),
    ] = 0.0,
    twin: Annotated[
        str | None, typer.Option("--twin", help="autoregressive translation model")
    ] = None,
    checkpoints: Annotated[
        Path | None, typer.Option(help="folder of the paper's checkpoints, for --paper")
    ] = None,
    sentences: Annotated[
        str | None,
        typer.Option(metavar="N", help="sentences per test set, or all (default: the setting's)"),
    ] = None,
    texts: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=2, help="chains of unconditional text (default: the setting's)"
        ),
    ] = None,
    ratings: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="FILE KEY", help="human ratings (as for `maskov rate import`), for table6"
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            help="some cells: text, translation, chains (of translations), or deterministic",
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="name of the --translation model, kept in OUT/training.json")
    ] = None,
    training: Annotated[
        Path | None, typer.Option(help="with --title: log.json of the model's training")
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, max=64, help="processes that run cells")
    ] = 1,
    keep_runs: Annotated[
        bool, typer.Option("--keep-runs", help="keep the run folders of finished cells")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks")] = False,
) -> None:
    """Reproduce the paper's tables and figures and compare them with the paper's numbers."""
    # Imported here so that a missing matplotlib is reported like any other input error.
    from experiments.paper import driver, registry

    sizes = {"quick": quick, "full": full, "large": large, "paper": paper}
    given = [size for size, chosen in sizes.items() if chosen] or ["small"]
    if len(given) > 1:
        raise InputError(
            "give only one of --quick, --full, --large and --paper (default: sizes for a CPU)."
        )
    if only is not None and only not in _ONLY:
        raise InputError(f"--only takes {', '.join(_ONLY)}, not '{only}'.")
    if len(names) > 1 and (wrong := {"all", "list", "report"} & set(names)):
        raise InputError(
            f"'{min(wrong)}' stands alone; give results by name, or only '{min(wrong)}'."
        )
    name = names[0]
    if training is not None and title is None:
        raise InputError("--training needs --title.")
    if title is not None and translation is None:
        raise InputError("--title names the model of --translation: give both.")
    if paper and checkpoints is None and name not in ("list", "report"):
        raise InputError("--paper needs --checkpoints, the folder with the paper's models.")
    ModelSource(name, remove_smoothing=remove_smoothing)  # which refuses what is not a share
    setting = setting_of(given[0])
    if sentences is not None:
        setting = with_sentences(setting, _count(sentences))
    if texts is not None:
        setting = with_texts(setting, texts)
    if name == "list":
        driver.list_results(setting, print)
        return
    if out is None:
        raise InputError("no folder for the results: give --out DIR.")
    if name == "report":
        driver.report(out, say)
        return
    results = registry.results_of(names)
    every = (cell for result in results for cell in result.cells(setting).values())
    if remove_smoothing and (only == "text" or not any(cell.translates for cell in every)):
        raise InputError(
            "--remove-smoothing is for masked translation models, and none is used here: drop it."
        )
    models = {
        "base": model, "judge": judge, "de-en": translation, "ro-en": translation,
        "twin-de-en": twin, "twin-ro-en": twin,
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    with stop_on_signals(lambda: "stopped; run the same command to continue") as stop:
        context = Context(
            setting,
            out,
            data,
            device,
            {role: model for role, model in models.items() if model is not None},
            checkpoints,
            ratings,
            keep_runs,
            stop,
            remove_smoothing,
        )
        if title is not None:
            driver.write_record(context, title, training)
        try:
            driver.reproduce(
                results,
                context,
                say,
                lambda cell: only is None or _ONLY[only](cell),
                skip_missing=name == "all",
                jobs=jobs,
            )
        finally:
            driver.write_page(out)


def _count(text: str) -> int | None:
    """Return a number of sentences; None for all."""
    if text == "all":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 2:
        raise InputError(f"--sentences takes all or a number from 2 on, not '{text}'.")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; report input errors in one sentence with exit code 2."""
    run_app(arguments, app, "experiments")


if __name__ == "__main__":
    main()
