"""Options as keywords: what each means, and one sentence for what cannot be."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
import torch

import maskov
from maskov import InputError, Metropolis, Norm, Raw, Schedule, Workers, arguments, options
from maskov.defaults import default_kernel, default_schedule
from maskov.moves import Resize
from maskov.options import hints_of, parse_proposal, parse_range, parse_replicas
from maskov.plan import plan
from small import random_table, tiny_bert

MODEL = tiny_bert("red green blue white", torch.float32)
SMALL = {"chains": 2, "epochs": 2, "length": 4}


def test_the_six_lines_of_a_newcomer():
    run = maskov.sample("untrained", energy="norm", epochs=4, chains=3, length=(4, 6), seed=1)
    assert len(run) == 3
    assert run.manifest.energy == "norm"
    assert run.manifest.schedule.epochs == 4
    assert all(4 <= len(one.ids) <= 6 for one in run)
    assert run.manifest.config.model.source.name == "untrained"


def kernel_of(**keywords):
    """Return the kernel of a plan."""
    return plan(model=MODEL, **SMALL | keywords).kernel


def test_defaults_are_those_of_the_library():
    planned = plan(model=MODEL)
    assert planned.manifest.schedule == default_schedule()
    assert planned.kernel.kernel == default_kernel()
    assert planned.manifest.inputs.length == (20, 20)


@pytest.mark.parametrize(
    ("function", "opened"),
    [(maskov.sample, {"model", "listener", "source"}), (maskov.infill, {"listener"}),
     (maskov.score, set()), (maskov.rewrite, {"toward", "listener"}),
     (maskov.resume, {"run", "listener"}),
     (maskov.translate, {"model", "method", "twin", "listener"})],
)  # fmt: skip
def test_every_keyword_has_a_type_that_is_checked(function, opened):
    """But for what only one function takes, which that function makes known."""
    kinds = hints_of(function, arguments._KNOWN)
    free = {name for name, kind in kinds.items() if "Any" in re.findall(r"\w+", str(kind))}
    assert free - {"return"} <= opened
    assert set(inspect.signature(function).parameters) <= set(kinds)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"moves": ["site:1", "span(1:2):2"]}, {"moves": "site:1,span(1:2):2"}),
        ({"moves": maskov.Span(sizes=(2, 3))}, {"moves": "span(2:3)"}),
        ({"moves": maskov.Span(sizes=(2,))}, {"moves": "span(2)"}),
        ({"moves": maskov.Site(positions=maskov.Sweep("left-to-right", 2))},
         {"moves": "site(block=2, order=left-to-right)"}),
        ({"replicas": (1, 0.5)}, {"replicas": parse_replicas("1,0.5")}),
        ({"replicas": (), "contains": []}, {}),
        ({"proposal": maskov.MaskedConditional(0.8, 20, 0.9, 0.1)},
         {"proposal": parse_proposal("temperature=0.8, top_k=20, top_p=0.9, epsilon=0.1")}),
        ({"delayed": 2}, {"delayed": "2"}),
        ({"delayed": np.int64(1)}, {"delayed": "1"}),
        ({"delayed": (1, 2)}, {"delayed": "1,2"}),
        ({"delayed": ()}, {"delayed": "off"}),
        ({"contains": ["red", "blue"]}, {"contains": "red, blue"}),
    ],
)  # fmt: skip
def test_objects_and_lists_mean_what_the_words_of_the_command_mean(keywords, words):
    assert kernel_of(**keywords) == kernel_of(**words)


def test_a_word_of_a_list_may_have_a_comma():
    """Values of Python are never joined and split again."""
    assert options.words_of(["1,000", "red"]) == ("1,000", "red")


def test_schedules_by_text_and_by_object():
    schedule = plan(
        model=MODEL, target_temperature=options.parse_temperature("1.5:0.3:0.5"),
        moves="site(block=4, block_anneal=1)", **SMALL,
    ).manifest.schedule  # fmt: skip
    assert schedule.target_temperature == maskov.LinearSchedule(1.5, 0.3, 0.5)
    assert schedule.block == maskov.LinearSchedule(4.0, 1.0, 1.0)
    assert options.parse_temperature("1:0.1") == maskov.LinearSchedule(1.0, 0.1, 0.01)
    same = plan(model=MODEL, burn_in=1, burn_in_energy=Raw(groups=4), **SMALL)
    assert same.manifest.schedule.burn_in_energy == "raw(groups=4)"
    assert same.kernel.first == Raw(groups=4)


def test_models_with_arguments():
    source = options.parse_model("untrained(prefix='a b', extra_letters=XU, remove_smoothing=0.1)")
    assert (source.name, source.prefix, source.extra_letters) == ("untrained", "a b", "XU")
    assert source.remove_smoothing == 0.1
    for wrong in ("untrained(3)", "untrained(prefix=3)", "untrained(smooth=0.1)"):
        with pytest.raises(InputError, match="write tokenizer, prefix"):
            maskov.sample(wrong)


def test_workers_by_text():
    assert options.parse_workers("3") == 3
    assert options.parse_workers("ray") == Workers(0, "ray")
    given = options.parse_workers("ray(4, address=head:6379, gpus_per_worker=0.5)")
    assert given == Workers(4, "ray", "head:6379", 0.5)
    for wrong in ("many", "ray(4, machines=2)"):
        with pytest.raises(InputError, match=r"--workers|engine"):
            options.parse_workers(wrong)


def test_weights_of_lengths_by_their_numbers():
    table = {3: 1, 4: 2.5, 5: 1.0}
    settings = {"moves": "span:2,insert-delete:1", "length": (3, 5), "epochs": 2, "chains": 2}
    mine = maskov.sample(MODEL, length_prior=table, **settings)
    text = maskov.sample(MODEL, length_prior="3:1,4:2.5,5:1", **settings)
    assert mine.samples == text.samples
    for wrong, said in (({}, "weights such as"), ({"three": 1}, "a dict")):
        with pytest.raises(InputError, match=said):
            maskov.sample(MODEL, length_prior=wrong, **settings)


@pytest.mark.parametrize(
    ("length", "bounds"), [(5, (5, 5)), ((3, 6), (3, 6)), (parse_range("3:6"), (3, 6))]
)
def test_lengths(length, bounds):
    run = maskov.sample(MODEL, epochs=1, chains=1, length=length)
    assert run.manifest.inputs.length == bounds


def test_the_usual_length_is_one_that_the_model_takes():
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
    named = maskov.sample(MODEL, moves="site:1,span(2:3):2", **SMALL)
    listed = [maskov.Site(), (maskov.Span(), 2.0)]
    given = maskov.sample(MODEL, moves=listed, **SMALL)
    assert given.samples == named.samples
    assert (
        maskov.sample(MODEL, moves=["site", (maskov.Span(), 2)], **SMALL).samples == named.samples
    )
    alone = maskov.sample(MODEL, moves=maskov.Span(), **SMALL)
    assert alone.samples == maskov.sample(MODEL, moves="span(2:3)", **SMALL).samples
    words = maskov.MaskedConditional(constraints=(maskov.ContainsWords(("red",)),))
    kept = maskov.sample(MODEL, moves=[maskov.Span(words)], **SMALL)
    assert all("red" in one.tokens for one in kept)
    sized = maskov.sample(MODEL, moves=[maskov.Site(), Resize()], **SMALL | {"length": (3, 5)})
    assert sized.manifest.inputs.sampled
    texts, options = ["red green blue"], {"chains": 2, "epochs": 2}
    assert maskov.rewrite(MODEL, texts, "length(3)", moves=listed, **options)
    for wrong, sentence in (
        ({"moves": [maskov.Site(), 3]}, "a Move"),
        ({"moves": [(maskov.Site(), 0.0)]}, "must be above 0"),
        (
            {"moves": listed, "proposal": maskov.MaskedConditional(2.0)},
            "'proposal' and moves",
        ),
        ({"moves": listed, "contains": "red"}, "'contains' and moves that are objects"),
    ):
        with pytest.raises(InputError, match=sentence):
            maskov.sample(MODEL, **SMALL, **wrong)


def test_an_energy_and_the_kernel_that_has_it_are_one_run():
    schedule = Schedule(epochs=3)
    parts = (Metropolis(Norm()), Metropolis(Norm(), maskov.Span(sizes=(1, 2))))
    kernel = maskov.Mixture(parts, (1.0, 2.0))
    options = {"energy": "norm", "moves": "site:1,span(1:2):2"}
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
    planned = plan(model=MODEL, kernel=hot, epochs=4)
    assert (planned.kernel, planned.manifest.schedule) == (hot, Schedule(epochs=4))


@pytest.mark.parametrize(
    "given",
    [{"energy": "norm"}, {"moves": "site"}, {"proposal": maskov.MaskedConditional(0.5)},
     {"delayed": 1}, {"contains": "red"}, {"avoid": "red"}, {"allow": "1:a"}, {"max_changes": 1}],
    ids=str,
)  # fmt: skip
def test_a_kernel_object_and_its_options_are_not_both_given(given):
    (name,) = given
    with pytest.raises(InputError, match=rf"\A'{name}' and a kernel say the same thing.*\Z"):
        maskov.sample(MODEL, Metropolis(Raw()), **given, chains=1, length=3)


@pytest.mark.parametrize(
    "given",
    [{"epochs": 1}, {"burn_in": 1}, {"burn_in_energy": "raw"}, {"target_temperature": 2},
     {"force_accept": 1}],
    ids=str,
)  # fmt: skip
def test_a_schedule_object_and_its_options_are_not_both_given(given):
    (name,) = given
    with pytest.raises(InputError, match=rf"\A'{name}' and a schedule say the same thing.*\Z"):
        maskov.sample(MODEL, schedule=Schedule(1), **given, chains=1, length=3)


@pytest.mark.parametrize(
    ("keywords", "phrase"),
    [
        ({"texts": "red green"}, "write texts=['red green']"),
        ({"length": 3.5}, "a whole number or ("),
        ({"model": 3}, "a MaskedModel"),
        ({"energy": 3}, "an Energy"),
        ({"chains": "8"}, "a whole number, not '8' (str)"),
        ({"chains": True}, "a whole number, not True (bool)"),
        ({"checkpoint_every": "1"}, "a number, not '1' (str)"),
        ({"progress": 1}, "True or False"),
        ({"epochs": 2.0}, "a whole number or None"),
        ({"kernel": 3}, "a text or a Kernel"),
        ({"schedule": 20}, "a Schedule or None"),
        ({"texts": ["red", 3]}, "a list of texts"),
        ({"workers": "2"}, "a whole number or a Workers"),
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
        (lambda: maskov.score(3, ["red"]), "'model' takes a text"),
        (lambda: maskov.score(MODEL, ["red"], device="cpu"), "a model that is loaded"),
        (lambda: maskov.rewrite(MODEL, "red", "edit"), "'texts' takes a list of texts"),
        (lambda: maskov.rewrite(MODEL, ["red"], 3), "'toward' takes a text"),
        (lambda: maskov.rewrite(MODEL, ["red"], maskov.Rewriter("edit"), keep=3), "a Rewriter"),
        (lambda: maskov.translate(texts="red"), "'texts' takes a list of texts"),
        (lambda: maskov.translate(pair="de-en"), "give `texts`"),
        (lambda: maskov.translate(texts=["x"]), "give the languages"),
        (lambda: maskov.translate(texts=["x"], method="mh", epochs="3"), "a whole number or None"),
        (lambda: maskov.infill(MODEL, ["red"], epochs=1), "has no blank"),
        (lambda: maskov.sample(MODEL, templates=["red [MASK]"], length=3), "drop --length"),
        (lambda: maskov.resume(3), "'run' takes"),
        (lambda: maskov.sample(MODEL, device="cpu"), "a model that is loaded"),
        (lambda: maskov.sample("no such model"), "no such model"),
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
    tempered = maskov.sample(MODEL, replicas=[1.0, 0.5], **SMALL)
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
        ({"moves": ["span(block=2)"]}, "takes sizes"),
        ({"moves": "resize(2)"}, "takes no arguments"),
        ({"moves": "site(order=left-to-right),resize"}, "have no order"),
        ({"moves": []}, "at least one kernel"),
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
