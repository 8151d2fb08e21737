"""The functions of maskov: their signatures are the options of the commands of the same names.

Every option is one keyword with its type, its default and an `Opt`, which says what help says of it
and how its text is read. Keywords without one are for Python alone. Nothing heavy is imported here
before a function is called, since `maskov --help` is made from these signatures.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from maskov.config import DEFAULT_ENERGY, LinearSchedule, ModelSource, Schedule
from maskov.errors import refuse
from maskov.options import (
    MODEL,
    RUN,
    Allow,
    AnyEnergy,
    AnyKernel,
    AnyModel,
    AnyWorkers,
    Avoid,
    BurnIn,
    BurnInEnergy,
    CheckpointEvery,
    Contains,
    Delayed,
    Device,
    Epochs,
    ForceAccept,
    Freeze,
    LengthPrior,
    Lines,
    MaxChanges,
    Opt,
    Out,
    Particles,
    Passes,
    Populations,
    Precision,
    Proposal,
    Resident,
    RunName,
    SampledMoves,
    Seed,
    SomeMoves,
    SourceLines,
    Start,
    Stop,
    TargetTemperature,
    TextFunction,
    Thin,
    Threads,
    TokenBudget,
    TrustCode,
    Until,
    parse_lengths,
    parse_numbers,
    parse_range,
    parse_temperature,
    read_lines,
    read_templates,
    read_texts,
    texts_or_files,
)
from maskov.shipped import default_model

if TYPE_CHECKING:
    from maskov import (
        AutoregressiveTranslator,
        ConditionalModel,
        Energy,
        Filling,
        Kernel,
        MaskedModel,
        Rewriting,
        Run,
        Score,
        Translation,
        TranslationMethod,
    )
    from maskov.likelihood import Evidence
    from maskov.runs.coordinator import Listener

# The untrained stand-in if no model is shipped.
DEFAULT_MODEL = default_model()


def sample(
    model: AnyModel = DEFAULT_MODEL,
    kernel: AnyKernel = "mh",
    schedule: Schedule | None = None,
    *,
    energy: Annotated[
        AnyEnergy | None,
        Opt("raw, norm, ordered, raw(groups=4), autoregressive(MODEL), module:Class(...), or a "
            f"sum: raw+0.5*norm (default, if nothing else says how to sample or where to start: "
            f"{DEFAULT_ENERGY}; otherwise raw)", "-e"),
    ] = None,
    length: Annotated[
        int | tuple[int, int] | None,
        Opt("tokens of a sample: 20, or a range 15:45 (default: 20)", "-l", read=parse_range),
    ] = None,
    texts: Annotated[
        Lines | None,
        Opt("file of texts to start --chains chains from each: FASTA, or one per line (- for "
            "stdin)", "--start-text", read=read_texts),
    ] = None,
    chains: Annotated[int, Opt("number of chains, for each text or template", "-c")] = 8,
    epochs: Epochs = None,
    until: Until = None,
    out: Out = None,
    contains: Contains = None,
    avoid: Avoid = None,
    allow: Allow = None,
    max_changes: MaxChanges = None,
    freeze: Freeze = None,
    device: Device = "auto",
    precision: Precision = "float32",
    trust_remote_code: TrustCode = False,
    moves: SampledMoves = None,
    proposal: Proposal = None,
    delayed: Delayed = None,
    length_prior: LengthPrior = None,
    particles: Particles = None,
    populations: Populations = 4,
    passes: Passes = None,
    burn_in: BurnIn = None,
    burn_in_energy: BurnInEnergy = None,
    target_temperature: TargetTemperature = 1.0,
    force_accept: ForceAccept = 0,
    start: Start = "masked",
    thin: Thin = 0,
    seed: Seed = 0,
    name: RunName = "",
    token_budget: TokenBudget = None,
    resident: Resident = None,
    checkpoint_every: CheckpointEvery = 60.0,
    workers: AnyWorkers = None,
    threads: Threads = None,
    templates: Lines | None = None,
    lengths: str = "best",
    trace: str = "every",
    source: ModelSource | None = None,
    progress: bool = True,
    listener: Listener | None = None,
    stop: Stop | None = None,
) -> Run:  # fmt: skip
    """Draw samples from a masked language model.

        run = maskov.sample("wiki-any", energy="norm", epochs=40, chains=64)

    `model` is a name, a folder or a MaskedModel. Every option of `maskov sample` is a keyword of
    the same name with the same default (`--start-text` is `texts`). Instead of options, `kernel`
    and `schedule` may be objects: options that such an object has itself are then refused, and with
    a kernel there is no burn-in unless you set it. An `energy` may be an object, too, or a function
    that takes a list of texts and returns a number for each; `moves` may be objects, alone or in
    pairs with their weights: moves=[maskov.Site(), (maskov.Span(), 2.0)].

    Chains have `length` tokens (20 unless given), or a length drawn from a range, `length=(8, 24)`.
    Or they start at given `texts`, or fill the blanks of `templates`, `chains` chains for each.
    Texts and templates may be records of FASTA (`read_fasta`): samples then carry their names and
    mutations, and a run folder also has `samples.fa` and `mutations.csv`. Chains of a conditional
    model are translations of its sources; `lengths` says how long they are (best, top, drawn).

    Tokens of texts that `freeze` names stay: positions counted from 1 ("1-25,40"), words ("river,
    bridge"), what a regular expression finds ("re:PATTERN"), or for each text a boolean or a sign
    (`.` is free) for each of its tokens. With both `texts` and `templates`, chains start at the
    texts and change only where their templates have a blank.

    With moves that change the length (`moves="span:2,insert-delete:1"`) lengths are sampled: any
    within the range, or from half to twice that of a text, or those of blanks such as [MASK*] and
    [MASK{2,5}]; between frozen tokens each stretch has one token at least and twice its own at
    most. `length_prior` weighs lengths: "none" (p ∝ exp(−E/T) over all lengths), "flat" (the
    default: weights found by discarded chains so that lengths are visited about evenly), or a table
    such as {8: 1, 12: 4, 16: 1}.

    The last sequence of each chain is kept, or with `thin=10` one every ten epochs after burn-in.
    With `out` the run is a folder that can be resumed. `passes` sets the number of epochs by the
    masked passes that a chain may take. With `until="converged"` the run ends at the first of a few
    fixed epochs at which all energies and token statistics have a nested R-hat below its limit and
    100 effective draws ("converged:400": 400), or after `epochs` (2,000 unless given).

    With `particles` the run has `populations` instead of chains: each goes from independent draws
    of the energy `ordered` to the target along a path that a discarded pilot finds, and estimates
    Z without bias (docs/concepts/populations.md). With `energy="ordered"` alone, the samples are
    independent draws.

    The rest decides how the work is done, not its result: `token_budget` caps the tokens of one
    model call, `resident` the chains that are on a device at once, and `workers` are processes that
    share the chains. `trace="kept"` leaves out the energies of epochs without samples where they
    would cost passes. `source` is how to load a model again that was given as an object.

    On terminals and in notebooks a bar shows the progress, unless `progress` is false or there is a
    `listener`, which is called after every epoch. `stop` is called between model calls. Once it
    returns true, the run is saved, if it has a folder, and `Interrupted` is raised: `resume`
    continues from there.

    Raises `InputError` for arguments that cannot be used, `ModelError` for models that cannot,
    `RunError` for folders that cannot be written, and `Interrupted`; all are `MaskovError`.
    """
    given = locals()
    from maskov.plan import execute_shown, plan

    return execute_shown(plan(**given), progress, listener, stop)


# Options of `sample` that fills have as well; any other makes `infill` run chains.
_OF_FILLS = frozenset((
    "model", "templates", "energy", "target_temperature", "length_prior", "passes", "contains",
    "avoid", "allow", "device", "precision", "trust_remote_code", "seed", "token_budget", "threads",
    "whole_words", "spans", "stop", "progress",
))  # fmt: skip


def runs_chains(given: Mapping[str, Any]) -> bool:
    """Whether the options of `infill` ask for chains or populations; they have no use for some."""
    own = inspect.signature(infill).parameters
    others = {name for name, value in given.items() if value != own[name].default} - _OF_FILLS
    refuse(
        *(
            (
                others and given.get(name),
                f"chains have no use for '{name}': drop it, or what asks for them.",
            )
            for name in ("whole_words", "spans")
        )
    )
    return bool(others)


def infill(
    model: AnyModel,
    templates: Annotated[
        str | Lines,
        Opt("a text with \\[MASK] (or \\[MASK*], \\[MASK{2,5}]; in proteins _) for blanks, a "
            "file, or -", metavar="TEMPLATE", read=read_templates),
    ],
    kernel: AnyKernel = "mh",
    schedule: Schedule | None = None,
    *,
    energy: Annotated[
        AnyEnergy | None,
        Opt("ordered(orders=8), norm, raw, or a sum: 0.7*ordered+0.3*norm (default: ordered; of "
            "chains raw)", "-e"),
    ] = None,
    chains: Annotated[
        int | None,
        Opt("chains for each template, which sample its fills (default: fills are searched)",
            "-c"),
    ] = None,
    epochs: Epochs = None,
    until: Until = None,
    out: Out = None,
    whole_words: Annotated[bool, Opt("no word pieces: each blank is a word")] = False,
    contains: Contains = None,
    avoid: Avoid = None,
    allow: Allow = None,
    device: Device = "auto",
    precision: Precision = "float32",
    trust_remote_code: TrustCode = False,
    moves: SampledMoves = None,
    proposal: Proposal = None,
    delayed: Delayed = None,
    length_prior: LengthPrior = None,
    particles: Particles = None,
    populations: Populations = 4,
    passes: Passes = None,
    burn_in: BurnIn = None,
    burn_in_energy: BurnInEnergy = None,
    target_temperature: TargetTemperature = 1.0,
    force_accept: ForceAccept = 0,
    start: Start = "masked",
    thin: Thin = 0,
    seed: Seed = 0,
    name: RunName = "",
    token_budget: TokenBudget = None,
    resident: Resident = None,
    checkpoint_every: CheckpointEvery = 60.0,
    workers: AnyWorkers = None,
    threads: Threads = None,
    texts: Lines | None = None,
    spans: Sequence[Sequence[tuple[int, int]]] | None = None,
    progress: bool = True,
    listener: Listener | None = None,
    stop: Stop | None = None,
) -> Filling | Run:  # fmt: skip
    """Fill the blanks of templates: the likeliest fills, each with its probability and error.

        found = maskov.infill("wiki-any", "the capital of france is [MASK] .")
        found.fills(top_k=5)

    A blank is [MASK] for one token, [MASK*] for one to eight, or [MASK{2,5}] for two to five;
    gaps of editions are read, too: [...] and [---] of unknown extent, [.3.] of three characters.
    Or give texts with `spans`: of each, which characters are blank, such as [(4, 9)]. The
    probabilities are those of exp(−E/T) over all fills, given the rest
    (docs/how-to/fill-blanks.md). `passes` is the limit for a template, `length_prior` weighs the
    lengths of the whole text (default: evenly), and with `whole_words` no blank continues the word
    before it.

    `chains`, `particles`, `epochs` or any other option of `sample` alone samples the blanks
    instead: the result is a `Run`, whose `fills()` are shares of draws. Chains may start at
    `texts`, which are the templates with their blanks filled in.
    """
    given = locals()
    if not runs_chains(given):
        from maskov.filling import fill_as_asked

        return fill_as_asked(**{name: given[name] for name in _OF_FILLS})
    del given["whole_words"], given["spans"]
    given["templates"] = [templates] if isinstance(templates, str) else templates
    if chains is None:
        del given["chains"]
    return sample(**given)


def resume(
    run: Annotated[str | Path | Run, Opt("run folder", metavar="RUN", read=Path)],
    model: MaskedModel | None = None,
    device: Annotated[
        str | None, Opt("cpu, cuda, cuda:1 ... (default: where the run began)")
    ] = None,
    *,
    kernel: Kernel | None = None,
    energy: Energy | TextFunction | None = None,
    trust_remote_code: TrustCode = False,
    trust_parts: Annotated[bool, Opt("import parts that are not maskov's", panel=MODEL)] = False,
    allow_download: Annotated[
        bool, Opt("download the models that the run names", panel=MODEL)
    ] = False,
    checkpoint_every: CheckpointEvery = 60.0,
    workers: AnyWorkers = None,
    progress: bool = True,
    listener: Listener | None = None,
    stop: Stop | None = None,
) -> Run:
    """Continue a run, a folder or what `Run.open` read, from its newest whole checkpoints.

    The samples are those of a run that was never stopped, to the byte. It runs where it began,
    on a CPU or a GPU, unless another `device` is named; `workers` may be others than before.

    A manifest may be anybody's. So code that comes with a model, and modules of parts that are not
    maskov's, are run only if they are trusted here, and a model that is not on this machine is
    downloaded only with `allow_download`. What was made here may be passed instead: the `model`,
    and the `kernel` or the `energy` where the manifest names custom parts. It takes the place
    of what the manifest names if it is the same: a model by its fingerprint, a kernel or an energy
    by its parts and their arguments. Anything else is refused. Nothing that is passed needs to be
    trusted, or imported again.

    It raises what `sample` raises, and `Interrupted` once `stop` returns true.
    """
    given = locals()
    from maskov.plan import execute_shown, plan_of_folder

    return execute_shown(plan_of_folder(**given), progress, listener, stop)


def score(
    model: AnyModel,
    texts: Annotated[
        Lines,
        Opt("texts, or files of texts: one per line, or FASTA (- for standard input)",
            metavar="TEXT|FILE|-...", read=texts_or_files, many=True),
    ],
    energy: Annotated[
        AnyEnergy, Opt("raw, norm, raw(groups=4), autoregressive(MODEL), or a sum", "-e")
    ] = "raw",
    *,
    sources: SourceLines = (),
    device: Device = "auto",
    trust_remote_code: TrustCode = False,
    token_budget: TokenBudget = None,
) -> list[Score]:  # fmt: skip
    """Return the energy of each text and what every token contributes to it; the order is kept.

        scores = maskov.score("wiki-any", ["The cat sat on the mat."], energy="norm")

    `model` is a name, a folder or a MaskedModel; `energy` is named as on the command line, or an
    Energy, or a function that takes a list of texts and returns a number for each. With
    "autoregressive" the scores are those of a causal model, in its own tokens: that of the energy,
    autoregressive(MODEL), or else `model`. A translation model scores one translation of each of
    the `sources`, or of those that it was given, `model.given(sources)`.
    """
    given = locals()
    from maskov.scoring import score_as_asked

    return score_as_asked(**given)[0]


def evidence(
    model: AnyModel,
    texts: Annotated[
        Lines,
        Opt("texts to measure, or files of texts, one per line (- for standard "
            "input)", metavar="[TEXT|FILE|-]...", read=texts_or_files, many=True),
    ] = (),
    energy: Annotated[
        Sequence[AnyEnergy] | AnyEnergy,
        Opt("energy to measure: norm, raw, ordered, 0.7*ordered+0.3*norm; repeat it for several",
            "-e", many=True),
    ] = ("norm",),
    *,
    target_temperature: Annotated[
        float | Sequence[float],
        Opt("T in p ∝ exp(-E/T); several: 1,1.5,2", read=parse_numbers),
    ] = 1.0,
    length: Annotated[
        int | Sequence[int] | None,
        Opt("lengths to measure: 20, or 10,20; texts of other lengths are left out (default: "
            "those of the texts)", "-l", read=parse_lengths),
    ] = None,
    particles: Annotated[int, Opt("particles of a population")] = 64,
    populations: Annotated[int, Opt("independent populations of each target and length")] = 4,
    passes: Annotated[
        int | None, Opt("masked passes of a particle (default: chosen by a pilot run)")
    ] = None,
    bounds: Annotated[
        bool,
        Opt("check --particles and --passes on ordered energies, whose log Z is known: "
            "populations bound it from below and from above"),
    ] = False,
    sources: SourceLines = (),
    causal_model: Annotated[
        str | None,
        Opt("causal LM with the same tokens to compare: wiki-judge, a folder or hub name"),
    ] = None,
    device: Device = "auto",
    precision: Precision = "float32",
    trust_remote_code: TrustCode = False,
    seed: Seed = 0,
    token_budget: TokenBudget = None,
    told: Callable[[str], None] | None = None,
) -> Evidence:  # fmt: skip
    """Measure log Z of energies, and with it the likelihood of texts under them.

        found = maskov.evidence("wiki-any", texts, energy=["norm", "ordered(orders=8)"])

    Each energy, at each temperature, is a distribution over the sequences of a length. Its log Z is
    estimated by independent populations (docs/concepts/populations.md); ordered energies are
    normalised and need no estimate. Nats per token and bits per byte of the texts say which
    distribution is nearer to them: lower is better. With `bounds` populations measure the ordered
    energies, too, from either end of the path. A translation model measures a translation of each
    of the `sources`; each pair has a Z of its own. `told` is called with what is measured next.
    """
    given = locals()
    from maskov.likelihood import evidence_as_asked

    return evidence_as_asked(**given)


def rewrite(
    model: AnyModel,
    texts: Annotated[
        Lines,
        Opt("texts, or files of texts: one per line, or FASTA (- for standard input)",
            metavar="TEXT|FILE|-...", read=texts_or_files, many=True),
    ],
    toward: Annotated[
        AnyEnergy | None,
        Opt("what texts should become, an energy: classifier(MODEL, label=positive), "
            "contains('river'), length(12), or a sum"),
    ] = None,
    *,
    strength: Annotated[float, Opt("weight of --toward")] = 20.0,
    keep: Annotated[float, Opt("weight of every token changed (edit distance)")] = 8.0,
    chains: Annotated[int, Opt("chains of each line", "-c")] = 8,
    epochs: Annotated[int, Opt("sweeps over all positions", "-n")] = 15,
    out: Annotated[
        Path | None, Opt("run folder to write; repeat the command to continue", "-o")
    ] = None,
    fluency: Annotated[
        AnyEnergy, Opt("energy of fluent text: norm, raw, or a sum", panel="Advanced: energy")
    ] = "0.3*norm",
    target_temperature: Annotated[
        float, Opt("T in p ∝ exp(-E/T)", panel="Advanced: energy")
    ] = 1.0,
    hot: Annotated[
        float,
        Opt("T of the first epoch, falling to --target-temperature", panel="Advanced: energy"),
    ] = 1.0,
    freeze: Freeze = None,
    contains: Contains = None,
    avoid: Avoid = None,
    allow: Allow = None,
    max_changes: MaxChanges = None,
    pick: Annotated[
        str,
        Opt("lowest energy of any chain and epoch, last sample of the first chain, or mbr over the "
            "chains", panel="Advanced: chains"),
    ] = "lowest",
    moves: Annotated[
        SomeMoves,
        Opt("moves by weight: site, span, insert-delete, resize (default: site:6,span(2:3):2,"
            "insert-delete:1; for FASTA site:6,span(2:3):2)", panel="Advanced: chains"),
    ] = None,
    temperature: Annotated[
        float, Opt("temperature of the proposal", panel="Advanced: chains")
    ] = 1.0,
    device: Device = "auto",
    precision: Precision = "float32",
    trust_remote_code: TrustCode = False,
    every_chain: Annotated[
        bool, Opt("print all chains of a line instead of one", panel=RUN)
    ] = False,
    seed: Seed = 0,
    token_budget: TokenBudget = None,
    resident: Resident = None,
    workers: AnyWorkers = None,
    threads: Threads = None,
    progress: bool = True,
    listener: Listener | None = None,
    stop: Stop | None = None,
) -> list[Rewriting]:  # fmt: skip
    """Rewrite texts: sample texts like them that an expert prefers, and pick one of each.

        toward = "classifier(wiki-genre, label=news)"
        rewritten = maskov.rewrite("wiki-any", ["The film was released in May."], toward)

    `toward` is what texts should become: an energy by name, an Energy, a function that takes a list
    of texts and returns a number for each (low is good). Without it, name the words that texts
    should hold: `contains="river"`. Texts may be records of FASTA (`read_fasta`): rewritings then
    carry their names and mutations, and unless `moves` asks for it no letter is inserted or
    deleted. Tokens that `freeze` names stay, as `sample` reads it. With `out`, a run folder, the
    same call continues what was stopped, or picks again from what is finished. `progress`,
    `listener` and `stop` are those of `sample`.
    """
    given = locals()
    from maskov.rewriting import plan_rewriting
    from maskov.ui.terminal import progress_bar

    task = plan_rewriting(**given)
    with progress_bar(epochs, shown=listener is None and progress) as bar:
        return task.rewritings(listener or bar, stop)


def translate(
    model: Annotated[
        str | Path | ConditionalModel | None, Opt("masked model: name or folder", "-m")
    ] = None,
    texts: Annotated[
        Sequence[str] | None,
        Opt("texts, one per line (- for standard input)", metavar="FILE|-",
            read=read_lines),
    ] = None,
    method: Annotated[
        str | TranslationMethod,
        Opt("greedy, mask-predict, gibbs, block-gibbs, mh, block-mh or ar"),
    ] = "mask-predict",
    autoregressive: Annotated[
        str | Path | AutoregressiveTranslator | None,
        Opt("autoregressive model, for --method ar, --energy autoregressive or --start "
            "autoregressive", panel=MODEL),
    ] = None,
    every_chain: Annotated[bool, Opt("print all chains instead of one", panel=RUN)] = False,
    drafts: Annotated[
        Sequence[str] | None,
        Opt("file of translations to start the chains from, one per line",
            panel="Advanced: method", read=read_lines),
    ] = None,
    *,
    pair: Annotated[str | None, Opt("languages, such as de-en or ro-en")] = None,
    energy: Annotated[
        str | None,
        Opt("target of mh: raw (default), norm, or a sum: norm+0.5*autoregressive", "-e"),
    ] = None,
    length_beam: Annotated[
        int | None, Opt("lengths tried by mask-predict (default: 5)")
    ] = None,
    chains: Annotated[int | None, Opt("chains per source (default: 1)", "-c")] = None,
    out: Annotated[Path | None, Opt("run folder to write", "-o")] = None,
    iterations: Annotated[
        int | None, Opt("iterations of mask-predict (default: 10)", panel="Advanced: method")
    ] = None,
    epochs: Annotated[
        int | None, Opt("sweeps over the target (default: 33)", "-n", "Advanced: method")
    ] = None,
    moves: Annotated[
        SomeMoves,
        Opt("site, span, insert-delete or resize; several with weights: span(1:3):2,resize:1 "
            "(default: site; of block-mh and block-gibbs: site(block=4, block_anneal=0.2))",
            panel="Advanced: method"),
    ] = None,
    delayed: Annotated[
        str | int | Sequence[int] | None,
        Opt("positions next to the change that an early test scores: 2, or 1,2,4 for three tests, "
            "or off (default: 1,3,9)", panel="Advanced: method"),
    ] = None,
    start: Annotated[
        str | None,
        Opt("masked, greedy (one pass), mask-predict, or autoregressive: the translation of "
            "--autoregressive (default: greedy)", panel="Advanced: method"),
    ] = None,
    temperature: Annotated[
        float | None, Opt("temperature of the proposal (default: 0.8)", panel="Advanced: method")
    ] = None,
    target_temperature: Annotated[
        float | LinearSchedule | None,
        Opt("T in p ∝ exp(-E/T); START:FALL:FLOOR falls from epoch to epoch (default: "
            "1:0.02:0.01)", panel="Advanced: method", read=parse_temperature),
    ] = None,
    force_accept: Annotated[
        int | None,
        Opt("first epochs that accept everything (default: 8)", panel="Advanced: method"),
    ] = None,
    lengths: Annotated[
        str | None,
        Opt("lengths of the chains: best, top, drawn, searched (the best of five), or sampled: "
            "moves change them, and the autoregressive model, if there is one, is the start and "
            "a part of the target (default: best)", panel="Advanced: method"),
    ] = None,
    pick: Annotated[
        str | None,
        Opt("last sample, lowest energy, or mbr over the chains (default: last)",
            panel="Advanced: method"),
    ] = None,
    beam: Annotated[
        int | None, Opt("beam of ar; 1 is greedy (default: 5)", panel="Advanced: method")
    ] = None,
    length_power: Annotated[
        float | None, Opt("x in ar's log p / length^x (default: 1)", panel="Advanced: method")
    ] = None,
    device: Device = "auto",
    precision: Precision = "float32",
    seed: Seed = 0,
    token_budget: TokenBudget = None,
    resident: Resident = None,
    workers: AnyWorkers = None,
    threads: Threads = None,
    source: ModelSource | None = None,
    progress: bool = True,
    listener: Listener | None = None,
    stop: Stop | None = None,
) -> list[Translation]:  # fmt: skip
    """Translate each text, in order; empty lines stay empty.

        maskov.translate(pair="de-en", texts=["Guten Morgen!"], method="mh", epochs=20)

    `model` is a name, a folder or a ConditionalModel; `pair` names the shipped one of two languages
    instead. A `TranslationMethod` has the options of its method itself. `autoregressive` is the
    model of the method 'ar' and of the start 'autoregressive'; `drafts` are
    translations to start the chains from, one of each text. Returns one translation of each text,
    picked from its chains, or with `every_chain` the last sample of each chain. `progress`,
    `listener` and `stop` are those of `sample`.
    """
    given = locals()
    from maskov.translation import plan_translation
    from maskov.ui.terminal import progress_bar

    task = plan_translation(**given)
    with progress_bar(task.method.settled.epochs, shown=listener is None and progress) as bar:
        return task.translations(listener or bar, stop)
