"""Options as keywords: what each means, their types, and one sentence for what cannot be."""

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
import typer

import maskov
from maskov import Gibbs, InputError, Metropolis, Norm, Raw, Schedule, Workers, options
from maskov.cli import app
from maskov.moves import Resize
from maskov.options import parse_proposal
from small import random_table, tiny_bert

MODEL = tiny_bert("red green blue white", torch.float32)
SMALL = {"chains": 2, "epochs": 2, "length": 4}
TEXTS = ["red green blue", "white white red green"]
OBJECTS = [maskov.Site(), (maskov.Span(), 2.0)]
SIZED = {"moves": "span:2,insert-delete:1", "length": (3, 5)}


def test_the_six_lines_of_a_newcomer(tmp_path):
    run = maskov.sample("untrained", energy="norm", epochs=4, chains=3, length=(4, 6), seed=1)
    assert len(run) == 3
    assert (run.manifest.energy, run.manifest.schedule.epochs) == ("norm", 4)
    assert all(4 <= len(one.ids) <= 6 for one in run)
    assert run.manifest.config.model.source.name == "untrained"
    MODEL.network.save_pretrained(tmp_path / "model")
    MODEL.tokenizer.save_pretrained(tmp_path / "model")
    for name in (tmp_path / "model", str(tmp_path / "model")):
        run = maskov.sample(name, device="cpu", **SMALL)
        assert run.manifest.config.model.source.name == str((tmp_path / "model").resolve())


def test_defaults_are_those_of_the_command(call, tmp_path):
    call("sample", "-m", "counterexample", "--out", tmp_path / "run", "-q")
    command = maskov.Run.open(tmp_path / "run").manifest
    python = maskov.sample("counterexample").manifest
    for name in ("kernel", "chains", "schedule", "inputs", "thin"):
        assert getattr(command.config, name) == getattr(python.config, name), name
    assert command.signature == python.signature
    assert maskov.sample(random_table(3, 2), epochs=1, chains=1).manifest.inputs.length == (3, 3)
    # Every option of a command is a keyword.
    for name, command in typer.main.get_command(app).commands.items():
        if name in ("sample", "infill"):
            known = set(inspect.signature(getattr(maskov, name)).parameters)
            known |= {"json", "quiet", "start_text", "top_k"}
            for one in command.params:
                words = {word.strip("-").replace("-", "_") for word in one.opts}
                assert one.param_type_name == "argument" or words & known, words


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"target_temperature": 1, "chains": np.int64(2)}, {"chains": 2}),
        ({"burn_in_energy": Raw(groups=4)}, {"burn_in_energy": "raw(groups=4)"}),
        ({"moves": maskov.Site(positions=maskov.Sweep("left-to-right", 2))},
         {"moves": "site(block=2, order=left-to-right)"}),
        ({"proposal": maskov.MaskedConditional(0.8, 20, 0.9, 0.1)},
         {"proposal": parse_proposal("temperature=0.8, top_k=20, top_p=0.9, epsilon=0.1")}),
        ({"target_temperature": maskov.LinearSchedule(1.5, 0.3, 0.5)},
         {"target_temperature": options.parse_temperature("1.5:0.3:0.5")}),
        ({"moves": ["site:1", "span:2"]}, {"moves": "site:1,span:2"}),
        ({"moves": OBJECTS}, {"moves": "site:1,span(2:3):2"}),
        ({"moves": ["site", OBJECTS[1]]}, {"moves": "site:1,span(2:3):2"}),
        ({"moves": maskov.Span()}, {"moves": "span(2:3)"}),
        ({"delayed": 2}, {"energy": "raw"}),
        ({"delayed": (1, 2)}, {"delayed": "1,2"}),
        ({"delayed": ()}, {"delayed": "off"}),
        ({"contains": ["red", "blue"]}, {"contains": "red, blue"}),
        ({"length": (3, 6)}, {"length": options.parse_range("3:6")}),
        ({"energy": Raw() + 2.0 * Norm()}, {"energy": "raw+2*norm"}),
        (SIZED | {"length_prior": {3: 1, 4: 2.5, 5: 1}}, SIZED | {"length_prior": "3:1,4:2.5,5:1"}),
    ],
    ids=str,
)  # fmt: skip
def test_objects_and_lists_mean_what_the_words_of_the_command_mean(given, same):
    one, other = (maskov.sample(MODEL, **SMALL | options) for options in (given, same))
    assert one.samples == other.samples
    assert one.manifest.config.kernel == other.manifest.config.kernel
    assert one.manifest.config.inputs == other.manifest.config.inputs


def test_a_keyword_that_is_not_there_is_pythons_own_error():
    with pytest.raises(TypeError, match="epoch"):
        maskov.sample(MODEL, epoch=8)


def test_schedules_models_and_workers_by_text():
    blocks = maskov.sample(MODEL, moves="site(block=4, block_anneal=1)", **SMALL)
    assert blocks.manifest.schedule.block == maskov.LinearSchedule(4.0, 1.0, 1.0)
    assert options.parse_temperature("1:0.1") == maskov.LinearSchedule(1.0, 0.1, 0.01)
    source = options.parse_model("untrained(prefix='a b', extra_letters=XU, remove_smoothing=0.1)")
    assert (source.name, source.prefix, source.extra_letters) == ("untrained", "a b", "XU")
    assert source.remove_smoothing == 0.1
    assert options.parse_workers("3") == 3
    assert options.parse_workers("ray") == Workers(0, "ray")
    given = options.parse_workers("ray(4, address=head:6379, gpus_per_worker=0.5)")
    assert given == Workers(4, "ray", "head:6379", 0.5)
    for wrong in ("many", "ray(4, machines=2)"):
        with pytest.raises(InputError, match=r"--workers|engine"):
            options.parse_workers(wrong)


def test_a_word_of_a_list_may_have_a_comma():
    """Values of Python are never joined and split again."""
    model = tiny_bert("red green 1,000", torch.float32)
    with pytest.raises(InputError, match="1"):  # as a word of the command it is two
        maskov.sample(model, contains="1,000", **SMALL)
    assert "1,000" in str(_refusal(lambda: maskov.sample(MODEL, contains=["1,000"], **SMALL)))


def _refusal(call):
    with pytest.raises(maskov.MaskovError, match=r"\A.+\Z") as refused:
        call()
    return refused.value


class Long:
    """Nothing of maskov's: it takes texts and returns numbers."""

    def __call__(self, texts):
        return [float(len(text)) for text in texts]


def test_functions_are_energies_and_are_added_to_others():
    own = maskov.energies.as_energy(Long())
    for energy, parts in (
        (Long(), own),
        (Raw() + Long(), Raw() + own),
        (Long() + Raw(), own + Raw()),
        (Long() + Raw() + 2 * Norm(), own + Raw() + 2 * Norm()),
        (sum([Raw(), Long(), Norm()]), Raw() + own + Norm()),
    ):
        values = [[s.energy for s in maskov.score(MODEL, TEXTS, e)] for e in (energy, parts)]
        assert values[0] == pytest.approx(values[1])
    mixed = maskov.sample(MODEL, energy=Raw() + Long(), **SMALL).manifest
    assert mixed.energy.startswith("raw+")
    # A part that nobody can build again by name has no burn-in of its own.
    unnamed = Raw() + maskov.energies.as_energy(lambda texts: [0.0] * len(texts))
    assert maskov.sample(MODEL, energy=unnamed, **SMALL).manifest.schedule.burn_in_energy is None
    (scored,) = maskov.score(MODEL, ["red green"], lambda texts: [3.0] * len(texts))
    assert scored.energy == 3.0
    for wrong in (3, "norm", None):
        with pytest.raises(TypeError):
            Raw() + wrong
        with pytest.raises(TypeError):
            wrong + Raw()


def test_kernels_and_schedules_that_are_objects():
    parts = (Metropolis(Norm()), Metropolis(Norm(), maskov.Span(sizes=(1, 2))))
    kernel, settings = maskov.Mixture(parts, (1.0, 2.0)), {"chains": 3, "length": 5, "seed": 2}
    asked = {"energy": "norm", "moves": "site:1,span(1:2):2"}
    found = maskov.sample(MODEL, schedule=Schedule(epochs=3), **settings, **asked)
    given = maskov.sample(MODEL, kernel, Schedule(epochs=3), **settings)
    assert given.manifest.config.kernel == found.manifest.config.kernel
    assert given.samples == found.samples
    # Epochs are an option beside a kernel object: such a run has no burn-in.
    kernel = Metropolis(Raw(), target_temperature=3.0)
    one = maskov.sample(MODEL, kernel, epochs=6, **settings)
    other = maskov.sample(MODEL, kernel, Schedule(epochs=6), **settings)
    assert one.manifest.schedule == other.manifest.schedule
    assert one.samples == other.samples
    assert one.manifest.config.kernel["target_temperature"] == 3.0
    burnt = maskov.sample(MODEL, kernel, epochs=6, burn_in=2, **settings)
    assert burnt.manifest.schedule == Schedule(epochs=6, burn_in=2)


MH = Metropolis(Raw())
UNTIL = {"until": "converged", "length": 2}
# The text "b a" has probability zero.
ZERO = maskov.TabularModel(
    torch.tensor([[[1.0, 0.5], [0.0, 0.5]], [[0.5, 0.5], [0.5, 0.5]]]).log(), ["a", "b"]
)
ORDERED = Metropolis(Norm(), maskov.Site(positions=maskov.Sweep("left-to-right")))


@pytest.mark.parametrize(
    ("keywords", "phrase"),
    [
        ({"texts": "red green"}, "write texts=['red green']"),
        ({"length": 3.5}, "int | tuple[int, int] | None, not 3.5 (float)"),
        ({"model": "untrained(smooth=1)"}, "write tokenizer, prefix"),
        ({"device": "cpu"}, "a model that is loaded"),
        ({"energy": 3}, "Energy |"),
        ({"chains": "8"}, "not '8' (str)"),
        ({"moves": []}, "at least one kernel"),
        ({"moves": [maskov.Site(), 3]}, "Move, "),
        ({"moves": [(maskov.Site(), 0.0)]}, "must be above 0"),
        ({"moves": OBJECTS, "proposal": maskov.MaskedConditional(2.0)}, "'proposal' and moves"),
        ({"moves": OBJECTS, "contains": "red"}, "'contains' and moves that are objects"),
        ({"moves": "site(order=left-to-right),resize", "length": (3, 5)}, "have no order"),
        ({"templates": ["red [MASK]"], "length": 3}, "drop --length"),
        ({"kernel": maskov.Mixture((ORDERED, Metropolis(Norm(), Resize()))), "length": (3, 5)},
         "have no order"),
        ({"model": ZERO, "kernel": MH, "texts": ["b a"]}, "probability zero"),
        ({"model": random_table(), "length": 4}, "exactly 3 tokens"),
        ({"length": 3, "lengths": "top"}, "predicts no lengths"),
        *((UNTIL | {"until": word}, f"not until '{word}'")
          for word in ("bored", "converged:0", "converged:many")),
        (UNTIL | {"kernel": Gibbs()}, "needs a fixed target"),
        (UNTIL | {"schedule": Schedule(90, 0, maskov.LinearSchedule(2.0, 0.1, 1.0))},
         "needs a fixed target"),
        (UNTIL | {"thin": 5}, "--thin with --until converged needs --burn-in"),
        (UNTIL | {"trace": "kept"}, "needs the energies of every epoch"),
        (UNTIL | {"chains": 1}, "compares chains of the same length and template"),
        ({"kernel": MH, "passes": 0}, "at least 1"),
        ({"kernel": MH, "passes": 100, "until": "converged"}, "not both"),
        ({"kernel": MH, "schedule": Schedule(100, 99), "passes": 100, "length": 6},
         "all of them burn-in"),
        ({"kernel": Gibbs(), "schedule": Schedule(3, 1, burn_in_energy="raw")},
         "cannot take another energy"),
        ({"burn_in": 0, "burn_in_energy": "raw"}, "give --burn-in, too"),
        ({"burn_in": 1, "burn_in_energy": "heat"}, "unknown energy 'heat'"),
        *(({"kernel": MH, name: value}, f"'{name}' and a kernel say the same")
          for name, value in {"energy": "raw", "proposal": maskov.MaskedConditional(),
                              "moves": "site", "delayed": 1, "contains": "red"}.items()),
        *(({"schedule": Schedule(1), name: value}, f"'{name}' and a schedule say the same")
          for name, value in {"epochs": 1, "burn_in": 1, "target_temperature": 2}.items()),
        (SIZED | {"length_prior": {}}, "weights such as"),
        (SIZED | {"length_prior": {"three": 1}}, "Mapping[int, float]"),
        # Texts that are resampled in part.
        ({"texts": TEXTS, "templates": ["red [MASK] [MASK]"]}, "1 templates for 2 texts"),
        ({"texts": TEXTS[:1], "templates": ["blue [MASK] [MASK]"]}, "is not text 1 with blanks"),
        ({"texts": TEXTS[:1], "templates": ["red [MASK*]"]}, "blank of unknown length"),
        ({"texts": TEXTS[:1], "templates": [TEXTS[0]]}, "every token of text 1 is frozen"),
        ({"texts": TEXTS[:1], "templates": ["red [MASK] blue"], "freeze": "1"}, "drop --freeze"),
        ({"freeze": "1"}, "texts to start from"),
        ({"texts": TEXTS, "freeze": ["#.."]}, "give one each"),
        ({"texts": TEXTS, "freeze": 1}, "'freeze' takes str |"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_sentence(keywords, phrase):
    assert phrase in str(_refusal(lambda: maskov.sample(**{"model": MODEL} | keywords)))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: maskov.score(MODEL, "red"), "'texts' takes Sequence[str"),
        (lambda: maskov.rewrite(MODEL, ["red", maskov.Record("a", "EV")], "edit"), "all lines, or"),
        (lambda: maskov.translate(pair="de-en"), "give `texts`"),
        (lambda: maskov.translate(texts=["x"]), "give the languages"),
        (lambda: maskov.translate(texts=["x"], method="mh", epochs="3"), "int | None"),
        (lambda: maskov.infill(MODEL, ["red"], epochs=1), "has no blank"),
        (lambda: maskov.resume(3), "'run' takes"),
    ],
)
def test_other_calls_refuse_as_well(call, sentence):
    assert sentence in str(_refusal(call))


# Given texts are resampled in part: by `freeze`, by a mask, or by a template.


def test_a_template_a_mask_and_a_rule_are_the_same_run():
    settings = {"chains": 4, "epochs": 6, "seed": 3, "thin": 1, "burn_in": 0, "texts": TEXTS}
    rule = maskov.sample(MODEL, freeze="1", **settings)
    held = [[True, False, False], [True, False, False, False]]
    templates = ["red [MASK] [MASK]", "white [MASK] [MASK] [MASK]"]
    for run in (
        maskov.sample(MODEL, freeze=["#..", "#..."], **settings),
        maskov.sample(MODEL, freeze=held, **settings),
        maskov.sample(MODEL, templates=templates, **settings),
        maskov.infill(MODEL, templates, **settings),
    ):
        assert run.manifest.inputs == rule.manifest.inputs
        assert [one.tokens for one in run] == [one.tokens for one in rule]
    assert rule.manifest.inputs.frozen == ((0,), (0,))
    assert {(one.template, one.tokens[0]) for one in rule} == {(0, "red"), (1, "white")}
    assert len({tuple(one.tokens) for one in rule}) > 2  # the others move


SNIPPET = """
import maskov
maskov.sample("wiki-any", epoch=3, chains="many")
found = maskov.infill("wiki-any", "the [MASK]", whole_words=True)
maskov.infill("wiki-any", "the [MASK]", chains="many")
run = maskov.Run.open("run")
reveal_type((found, found.fills(), run.plot(), run.to_arviz()))
"""


@pytest.mark.slow
def test_a_type_checker_flags_wrong_keywords_and_values(tmp_path):
    api = pytest.importorskip("mypy.api")
    config = Path(__file__).parents[2] / "pyproject.toml"
    (tmp_path / "wrong.py").write_text(SNIPPET)
    told, _, _ = api.run(["--config-file", str(config), str(tmp_path / "wrong.py")])
    assert 'Unexpected keyword argument "epoch" for "sample"' in told
    assert told.count('Argument "chains"') == 2
    (revealed,) = (line for line in told.splitlines() if "Revealed type" in line)
    for kind in ("filling.Filling", "result.Run", "result.Fill", "axes.Axes", "datatree.DataTree"):
        assert kind in revealed
    assert "Found 3 errors" in told
