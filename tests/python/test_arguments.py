"""Options as keywords: what each means, and one sentence for what cannot be."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

import maskov
from maskov import InputError, Metropolis, Norm, Raw, Schedule, Workers
from maskov.api import sampling
from maskov.api.arguments import kind_of, read_options
from maskov.defaults import default_kernel, default_schedule
from maskov.moves import Resize
from maskov.options.running import plan_run, start_of
from maskov.options.sampling import SamplingOptions
from small import random_table, tiny_bert

MODEL = tiny_bert("red green blue white", torch.float32)
SMALL = {"chains": 2, "epochs": 2, "length": 4}


def test_the_six_lines_of_a_newcomer():
    run = maskov.sample("untrained", energy="norm", epochs=4, chains=3, length="4:6", seed=1)
    assert len(run) == 3
    assert run.manifest.energy == "norm"
    assert run.manifest.schedule.epochs == 4
    assert all(4 <= len(one.ids) <= 6 for one in run)
    assert run.manifest.config.model.source.name == "untrained"


def test_defaults_are_those_of_the_command():
    run = maskov.sample(random_table(3, 2))
    options = SamplingOptions()
    assert run.manifest.chains == options.chains
    assert run.manifest.schedule == options.build_schedule() == default_schedule()
    assert options.build_kernel("cpu") == default_kernel()
    assert start_of(MODEL)["length"] == (20, 20)
    parameters = inspect.signature(maskov.sample).parameters
    for one in fields(SamplingOptions):
        if one.name not in ("model", "kernel", "workers"):
            assert parameters[one.name].default == one.default, one.name


def test_every_option_of_the_command_is_a_keyword():
    names = {one.name for one in fields(SamplingOptions)}
    for function in (maskov.sample, maskov.infill):
        assert names <= set(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"temperature": 1, "chains": np.int64(3)}, {"temperature": 1.0, "chains": 3}),
        ({"burn_in_energy": Raw(groups=4)}, {"burn_in_energy": "raw(groups=4)"}),
        ({"out": "runs/a"}, {"out": Path("runs/a")}),
    ],
)  # fmt: skip
def test_objects_stand_for_the_words_of_the_command(keywords, words):
    found = read_options(SamplingOptions, keywords)
    assert found == SamplingOptions(**words)
    for name, value in words.items():
        assert type(getattr(found, name)) is type(value)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"span": 2}, {"span": "2"}),
        ({"span": (2, 3)}, {"span": "2:3"}),
        ({"moves": ["site:1", "span:2"]}, {"moves": "site:1,span:2"}),
        ({"ladder": (1, 0.5)}, {"ladder": "1,0.5"}),
        ({"ladder": (), "contains": []}, {}),
        ({"delayed": 2}, {}),
        ({"delayed": np.int64(1)}, {"delayed": "1"}),
        ({"delayed": (1, 2)}, {"delayed": "1,2"}),
        ({"delayed": ()}, {"delayed": "off"}),
        ({"contains": ["red", "blue"]}, {"contains": "red, blue"}),
    ],
)  # fmt: skip
def test_lists_mean_what_the_words_of_the_command_mean(keywords, words):
    found = read_options(SamplingOptions, keywords).build_kernel("cpu")
    assert found == SamplingOptions(**words).build_kernel("cpu")


def test_a_word_of_a_list_may_have_a_comma():
    """Values of Python are never joined and split again."""
    options = read_options(SamplingOptions, {"contains": ["1,000", "red"], "avoid": ("a,b",)})
    contains, avoids = options.build_kernel("cpu").conditional.constraints
    assert contains.words == ("1,000", "red")
    assert avoids.words == ("a,b",)


def test_weights_of_lengths_by_their_numbers():
    table = {3: 1, 4: 2.5, 5: 1.0}
    settings = {"moves": "span:2,insert-delete:1", "length": (3, 5), "epochs": 2, "chains": 2}
    mine = maskov.sample(MODEL, length_prior=table, **settings)
    text = maskov.sample(MODEL, length_prior="3:1,4:2.5,5:1", **settings)
    assert mine.samples == text.samples
    for wrong in ({}, {"three": 1}):
        with pytest.raises(InputError, match="weights such as"):
            maskov.sample(MODEL, length_prior=wrong, **settings)


@pytest.mark.parametrize(
    ("length", "bounds"), [(5, (5, 5)), ((3, 6), (3, 6)), ("3:6", (3, 6)), ("5", (5, 5))]
)
def test_lengths(length, bounds):
    run = maskov.sample(MODEL, epochs=1, chains=1, length=length)
    assert run.manifest.inputs.length == bounds


def test_the_usual_length_is_one_that_the_model_takes():
    assert start_of(random_table(3, 2))["length"] == (3, 3)
    assert maskov.sample(random_table(3, 2), epochs=1, chains=1).manifest.inputs.length == (3, 3)


def test_energies_by_name_object_and_function():
    def by_length(texts):
        return [float(len(text)) for text in texts]

    named = maskov.sample(MODEL, energy="norm", **SMALL)
    given = maskov.sample(MODEL, energy=Norm(), **SMALL)
    assert named.samples == given.samples
    assert given.manifest.schedule.burn_in_energy == "norm(groups=4)"
    own = maskov.sample(MODEL, energy=by_length, **SMALL)
    assert own.manifest.energy == "by_length"
    both = maskov.sample(MODEL, energy=maskov.parse_energy("raw") + 2.0 * Norm(), **SMALL)
    assert both.manifest.energy == "raw+2*norm"
    # A part that nobody can build again by name has no burn-in of its own.
    mixed = Raw() + maskov.energies.as_energy(by_length)
    assert maskov.sample(MODEL, energy=mixed, **SMALL).manifest.schedule.burn_in_energy is None


class Long:
    """Nothing of maskov's: it takes texts and returns numbers."""

    def __call__(self, texts):
        return [float(len(text)) for text in texts]


def test_functions_are_added_to_energies_as_on_the_command_line():
    own = maskov.energies.as_energy(Long())
    texts = ["red green", "blue"]
    found = {
        "after": Raw() + Long(),
        "before": Long() + Raw(),
        "of three": Long() + Raw() + 2 * Norm(),
        "sum": sum([Raw(), Long(), Norm()]),
    }
    parts = {
        "after": Raw() + own,
        "before": own + Raw(),
        "of three": own + Raw() + 2 * Norm(),
        "sum": Raw() + own + Norm(),
    }
    for name, energy in found.items():
        values = [
            [one.energy for one in maskov.score(MODEL, texts, e)] for e in (energy, parts[name])
        ]
        assert values[0] == pytest.approx(values[1]), name
    assert maskov.sample(MODEL, energy=Raw() + Long(), **SMALL).manifest.energy.startswith("raw+")
    for wrong in (3, "norm", None):
        with pytest.raises(TypeError):
            Raw() + wrong
        with pytest.raises(TypeError):
            wrong + Raw()


def test_moves_are_objects_as_well():
    named = maskov.sample(MODEL, moves="site:1,span:2", span="2:3", **SMALL)
    listed = [maskov.Site(), (maskov.Span(), 2.0)]
    given = maskov.sample(MODEL, moves=listed, **SMALL)
    assert given.samples == named.samples
    assert (
        maskov.sample(MODEL, moves=["site", (maskov.Span(), 2)], **SMALL).samples == named.samples
    )
    alone = maskov.sample(MODEL, moves=maskov.Span(), **SMALL)
    assert alone.samples == maskov.sample(MODEL, moves="span", span="2:3", **SMALL).samples
    words = maskov.MaskedConditional(constraints=(maskov.ContainsWords(("red",)),))
    kept = maskov.sample(MODEL, moves=[maskov.Span(words)], **SMALL)
    assert all("red" in one.tokens for one in kept)
    sized = maskov.sample(MODEL, moves=[maskov.Site(), Resize()], **SMALL | {"length": (3, 5)})
    assert sized.manifest.inputs.sampled
    texts, options = ["red green blue"], {"chains": 2, "epochs": 2}
    assert maskov.rewrite(MODEL, texts, "length(3)", moves=listed, **options)
    for wrong, sentence in (
        ({"moves": [maskov.Site(), 3]}, "or a list of Moves"),
        ({"moves": [(maskov.Site(), 0.0)]}, "must be above 0"),
        ({"moves": listed, "temperature": 2.0}, "'temperature' and moves that are objects"),
        ({"moves": listed, "contains": "red"}, "'contains' and moves that are objects"),
    ):
        with pytest.raises(InputError, match=sentence):
            maskov.sample(MODEL, **SMALL, **wrong)


def test_an_energy_and_the_kernel_that_has_it_are_one_run():
    schedule = Schedule(epochs=3)
    parts = (Metropolis(Norm()), Metropolis(Norm(), maskov.Span(sizes=(1, 2))))
    kernel = maskov.Mixture(parts, (1.0, 2.0))
    options = {"energy": "norm", "moves": "site:1,span:2", "span": "1:2"}
    found = maskov.sample(MODEL, schedule=schedule, chains=3, length=5, **options)
    assert found.manifest.config.kernel["part"] == "mixture"
    given = maskov.sample(MODEL, kernel, schedule, chains=3, length=5)
    assert given.manifest.config.kernel == found.manifest.config.kernel


def test_an_epoch_is_an_option_beside_a_kernel_object():
    """Such a run has no burn-in, as one with a schedule object."""
    settings = {"chains": 3, "length": 5, "seed": 2}
    one = maskov.sample(MODEL, Metropolis(Raw()), epochs=6, **settings)
    other = maskov.sample(MODEL, Metropolis(Raw()), Schedule(epochs=6), **settings)
    assert one.manifest.schedule == other.manifest.schedule
    assert one.samples == other.samples
    burnt = maskov.sample(MODEL, Metropolis(Raw()), epochs=6, burn_in=2, **settings)
    assert burnt.manifest.schedule == Schedule(epochs=6, burn_in=2)


def test_a_kernel_keeps_its_own_temperature():
    hot = Metropolis(Raw(), target_temperature=3.0)
    kernel, schedule = plan_run(SamplingOptions(epochs=4), MODEL, start_of(MODEL), hot)
    assert (kernel, schedule) == (hot, Schedule(epochs=4))


@pytest.mark.parametrize("name", sampling.OF_KERNELS)
def test_a_kernel_object_and_its_options_are_not_both_given(name):
    with pytest.raises(InputError, match=rf"\A'{name}' and a kernel say the same thing.*\Z"):
        maskov.sample(MODEL, Metropolis(Raw()), **{name: _some(name)}, chains=1, length=3)


@pytest.mark.parametrize("name", sampling.OF_SCHEDULES)
def test_a_schedule_object_and_its_options_are_not_both_given(name):
    with pytest.raises(InputError, match=rf"\A'{name}' and a schedule say the same thing.*\Z"):
        maskov.sample(MODEL, schedule=Schedule(1), **{name: _some(name)}, chains=1, length=3)


def _some(name):
    """Return some value of an option, other than None."""
    kind = str(kind_of(SamplingOptions, name))
    return "1" if "str" in kind else 1


@pytest.mark.parametrize(
    ("keywords", "phrase"),
    [
        ({"texts": "red green"}, "write texts=['red green']"),
        ({"length": 3.5}, "a number of tokens"),
        ({"model": 3}, "a MaskedModel"),
        ({"energy": 3}, "an Energy"),
        ({"chains": "8"}, "a whole number, not '8' (str)"),
        ({"chains": True}, "a whole number, not True (bool)"),
        ({"temperature": "1"}, "a number, not '1' (str)"),
        ({"progress": 1}, "True or False"),
        ({"epochs": 2.0}, "a whole number or None"),
        ({"kernel": 3}, "a Kernel, or a name"),
        ({"schedule": 20}, "a Schedule or None"),
        ({"texts": ["red", 3]}, "a list of texts"),
        ({"workers": "2"}, "a number of processes"),
        ({"chain": 8}, "did you mean 'chains'?"),
        ({"epoch": 8}, "did you mean 'epochs'?"),
        ({"frozen": "1"}, "did you mean 'freeze'?"),
        ({"start_text": "x"}, "did you mean 'texts'?"),
        ({"zzz": 8}, "help(maskov.sample)"),
    ],
)
def test_wrong_arguments_are_answered_in_one_sentence(keywords, phrase):
    with pytest.raises(InputError, match=rf"\A.*'{next(iter(keywords))}'.*\Z") as refused:
        maskov.sample(**{"model": MODEL} | keywords)
    assert phrase in str(refused.value)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: maskov.score(MODEL, "red"), "'texts' takes a list of texts"),
        (lambda: maskov.score(3, ["red"]), "'model' takes the name of a model"),
        (lambda: maskov.score(MODEL, ["red"], budget=3), "did you mean 'token_budget'"),
        (lambda: maskov.score(MODEL, ["red"], device="cpu"), "a model that is loaded"),
        (lambda: maskov.rewrite(MODEL, "red", "edit"), "'texts' takes a list of texts"),
        (lambda: maskov.rewrite(MODEL, ["red"], 3), "'toward' takes a name such as"),
        (lambda: maskov.rewrite(MODEL, ["red"], "edit", kep=3), "did you mean 'keep'"),
        (lambda: maskov.rewrite(MODEL, ["red"], maskov.Rewriter("edit"), keep=3), "a Rewriter"),
        (lambda: maskov.translate(texts="red"), "'texts' takes a list of texts"),
        (lambda: maskov.translate(pair="de-en"), "give `texts`"),
        (lambda: maskov.translate(texts=["x"]), "give the languages"),
        (lambda: maskov.translate(texts=["x"], method="mh", epochs="3"), "a whole number or None"),
        (lambda: maskov.infill(MODEL, ["red"], epochs=1), "has no blank"),
        (lambda: maskov.sample(MODEL, templates=["red [MASK]"], length=3), "drop --length"),
        (lambda: maskov.resume(3), "'run' takes"),
        (lambda: maskov.sample(MODEL, workers=Workers(0), threads=2), "and Workers say"),
        (lambda: maskov.sample(MODEL, device="cpu"), "a model that is loaded"),
        (lambda: maskov.sample("no such model"), "no such model"),
        (lambda: maskov.sample(MODEL, length="3-5"), "write 20 or 15:45"),
        (lambda: maskov.sample(MODEL, moves="sit"), "unknown move"),
    ],
)  # fmt: skip
def test_other_calls_refuse_as_well(call, sentence):
    with pytest.raises(maskov.MaskovError, match=r"\A.+\Z") as refused:
        call()
    assert sentence in str(refused.value)


def test_constraints_and_moves_by_name():
    run = maskov.sample(
        MODEL, contains="red", avoid=["white"], moves="site:1,span:2", chains=6, epochs=4, length=5
    )  # fmt: skip
    for one in run:
        assert "red" in one.tokens
        assert "white" not in one.tokens
    limited = maskov.sample(
        MODEL, texts=["red green blue white"], max_changes=1, chains=5, epochs=4
    )
    for one in limited:
        words = ["red", "green", "blue", "white"]
        assert sum(a != b for a, b in zip(one.tokens, words, strict=True)) <= 1


def test_replicas_and_passes_and_until_by_name():
    tempered = maskov.sample(MODEL, replicas=2, ladder=[1.0, 0.5], **SMALL)
    assert tempered.manifest.replicas == 2
    paid = maskov.sample(random_table(3, 2), passes=60, chains=2)
    assert paid.manifest.schedule.epochs > 1
    until = maskov.sample(random_table(3, 2), until="converged", epochs=40, chains=4)
    assert until.manifest.config.until is not None
    with pytest.raises(InputError, match="not both"):
        maskov.sample(MODEL, passes=60, until="converged")


def test_gibbs_and_mask_predict_by_name():
    for name in ("gibbs", "mask-predict"):
        assert maskov.sample(MODEL, kernel=name, **SMALL).manifest.kernel == name


def test_scores_by_name(tmp_path):
    (named,) = maskov.score("untrained", ["the cat sat"], "norm")
    (given,) = maskov.score(maskov.load("untrained"), ["the cat sat"], Norm())
    assert named == given
    (own,) = maskov.score(MODEL, ["red green"], lambda texts: [3.0] * len(texts))
    assert own.energy == 3.0
    default = maskov.score(MODEL, ["red green"])
    assert default == maskov.score(MODEL, ["red green"], Raw())


def test_a_rewriter_is_the_options_it_has():
    texts = ["red green blue"]
    options = {"chains": 2, "epochs": 2, "seed": 3}
    toward = "contains('white')"
    by_name = maskov.rewrite(MODEL, texts, toward, **options)
    whole = maskov.Rewriter(toward, chains=2, epochs=2)
    assert maskov.rewrite(MODEL, texts, whole, seed=3) == by_name
    frozen = maskov.rewrite(MODEL, texts, toward, freeze="green", **options)
    assert "green" in frozen[0].text


def test_folders_are_models(tmp_path):
    MODEL.network.save_pretrained(tmp_path / "model")
    MODEL.tokenizer.save_pretrained(tmp_path / "model")
    for name in (tmp_path / "model", str(tmp_path / "model")):
        run = maskov.sample(name, device="cpu", **SMALL)
        assert run.manifest.config.model.source.name == str((tmp_path / "model").resolve())


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"kernel": "gibbs", "energy": "norm"}, "drop --energy"),
        ({"kernel": "gibbs", "energy": Norm()}, "drop --energy"),
        ({"moves": ["span"], "block": 2}, "for the move 'site'"),
        ({"templates": ["red [MASK*]"], "order": "left-to-right"}, "for the move 'site'"),
        ({"moves": "site,resize", "order": "left-to-right"}, "drop --order"),
        ({"moves": []}, "at least one kernel"),
        ({"prefetch": 2}, "takes no 'prefetch'"),
        ({"asynchronous": False}, "takes no 'asynchronous'"),
        ({"first_stage": "bfloat16"}, "takes no 'first_stage'"),
        ({"block_floor": 1}, "takes no 'block_floor'"),
    ],
    ids=str,
)
def test_what_would_be_ignored_is_refused(keywords, said):
    settings = {"epochs": 2, "chains": 1} | ({} if "templates" in keywords else {"length": 5})
    with pytest.raises(InputError, match=said):
        maskov.sample(MODEL, **settings, **keywords)


def test_a_kernel_object_whose_order_would_be_ignored_is_refused():
    site = Metropolis(Norm(), maskov.Site(positions=maskov.Sweep("left-to-right")))
    kernel = maskov.Mixture((site, Metropolis(Norm(), maskov.moves.Resize())))
    with pytest.raises(InputError, match="have no order"):
        maskov.sample(MODEL, kernel, length=(3, 5), epochs=1, chains=1)
