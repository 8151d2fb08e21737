"""The pairs and the vocabulary of the translation recipe, on data made here."""

import json
import lzma
from collections import Counter

import pytest
from recipes.translation import pairs, vocabulary
from recipes.vocabulary import read_sentences

LONG = " ".join(["wort"] * 61)


def cleaned(*lines, tests=()):
    """Clean pairs given as text; return those kept and the reasons of the others."""
    dropped: Counter[str] = Counter()
    raw = [tuple(f"{side}\n".encode() for side in pair) for pair in lines]
    return pairs.clean(raw, {pairs.key(line) for line in tests}, dropped, 1), dropped


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("", "Nothing there.", "empty"),
        ("Amen.", " Amen. ", "equal sides"),
        ("Herr Präsident!", "Mr President, this is much too long for it.", "ratio"),
        (LONG, LONG.replace("wort", "word"), "long"),
        ("Ein\x07Ton.", "A tone.", "broken character"),
        ("Eroare la $(ARG1).", "Error at $(ARG1).", "markup"),
        ("Zu den Autoren zählen , , und Jančar.", "Authors include , , and Jančar.", "hole"),
        ("EUR für Malta und 35 Mio. EUR.", "Malta got 35 million.", "cut"),
        ("15.1. - 19.1.", "15.1. – 19.1.2", "few letters"),
        ("Das Wort Слово ist alt.", "The word Слово is old.", "other script"),
        ("Das war im Jahr 2003.", "That was a long time ago.", "numbers differ"),
    ],
)
def test_unfit_pairs_are_left_out_for_the_right_reason(source, target, reason):
    kept, dropped = cleaned((source, target), ("Ein guter Satz.", "A good sentence."))
    assert kept == [("Ein guter Satz.", "A good sentence.")]
    assert dropped == {reason: 1}


def test_lines_are_tidied():
    assert pairs.tidy(" Ştiinţa\u00a0 e\u200b „bună” ,\tda ") == 'Știința e "bună" , da'
    assert pairs.tidy("s\u0327i Cafe\u0301") == "și Café"


def test_lines_of_the_test_files_are_not_trained_on():
    tests = [
        "Der Hund schläft heute sehr lange!",
        "The cat sat on the mat.",
        "Thank you.",
        "Danke!",
    ]
    kept, dropped = cleaned(
        ("der Hund schläft heute, sehr lange", "The dog sleeps long today."),  # the source
        ("Die Katze saß da.", '"The cat sat on the mat"'),  # the target
        ("Danke!", "Thank you."),  # both, though short
        ("Vielen Dank!", "Thank you."),  # short, and one side alone
        ("Die Katze saß dort.", "The cat sat on the mat again."),
        tests=tests,
    )
    assert [target for _, target in kept] == ["Thank you.", "The cat sat on the mat again."]
    assert dropped == {"in a test file": 3}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder laid out like the real data, and what `pairs` and `vocabulary` make of it."""
    data = tmp_path_factory.mktemp("data")
    out = tmp_path_factory.mktemp("out")
    subjects = [f"Der {who} {does}" for who in ("Hund", "Bär", "Fuß") for does in ("geht", "ist")]
    places = [f"im {place}, Nr. {n}!" for place in ("Haus", "Wald") for n in range(120)]
    german = [f"{subject} {place}" for subject in subjects for place in places]
    romanian = [
        f"Câinele {n} (ăla) știe, ține și „doarme” în ‚casă’. Ști Ține!" for n in range(700)
    ]
    texts = {
        "deen/europarl": (german, "de"),
        "deen/tatoeba": ([f"Guten Tag, Frau {n}." for n in range(50)], "de"),
        "deen/multi30k": (["Dieses Bild darf nicht dabei sein."], "de"),
        "roen/train": (romanian, "ro"),
    }
    for stem, (lines, language) in texts.items():
        (data / stem).parent.mkdir(exist_ok=True)
        for end, text in ((language, lines), ("en", [f"English: {line}" for line in lines])):
            with lzma.open(data / f"{stem}.{end}.xz", "wt", encoding="utf-8") as file:
                file.write("".join(line + "\n" for line in text))
    (data / "test").mkdir()
    (data / "test" / "dev.de").write_text("Unbekannt.\n" + german[7].upper() + "\n", "utf-8")
    (data / "test" / "dev.en").write_text("Unknown.\n" + f"English: {german[9]}\n", "utf-8")
    pairs.main([str(data), str(out / "pairs")])
    vocabulary.main([str(out / "pairs"), str(out / "tokenizer"), "--size", "400"])
    return data, out, german


def test_files_are_aligned_and_held_out_pairs_are_apart(folders):
    _, out, german = folders
    report = json.loads((out / "pairs" / "pairs.json").read_text())
    assert report["de-en"]["read"] == {"europarl": len(german), "tatoeba": 50}
    for name, count in (("de-en", 1000), ("ro-en", 500)):
        read = {}
        for part, end in (("train", ".xz"), ("valid", "")):
            stem = out / "pairs" / f"{name}.{part}"
            sides = [list(read_sentences(stem.with_name(f"{stem.name}.{side}{end}")))
                     for side in ("src", "tgt")]  # fmt: skip
            read[part] = list(zip(*sides, strict=True))
            assert all(target == f"English: {source}" for source, target in read[part])
            assert report[name][part] == len(read[part])
        assert len(read["valid"]) == count
        assert not set(read["train"]) & set(read["valid"])
        everything = {source for source, _ in read["train"] + read["valid"]}
        assert len(everything) == len(read["train"]) + len(read["valid"])
        facts = report[name]
        assert sum(facts["read"].values()) == len(everything) + sum(facts["dropped"].values())
        if name == "de-en":
            # All but the two that a test file has; none of Multi30k.
            assert everything >= set(german) - {german[7], german[9]}
            assert not everything & {german[7], german[9], "Dieses Bild darf nicht dabei sein."}
            # The held-out ones are drawn from everywhere, not from one end.
            assert read["valid"][0][0] in german[:50]
            assert [s for s, _ in read["valid"]] != german[:1000]


@pytest.fixture(scope="module")
def tokenizer(folders):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folders[1] / "tokenizer")


@pytest.mark.parametrize(
    "text",
    [
        "Der Hund, Nr. 12, geht!",
        " Der  Hund ,, ( Nr. 12 ) geht ! ",
        "„Ştie” ţine\u00a0s\u0327i ’doarme‘",
    ],
)
def test_decoding_gives_back_the_tidied_text(tokenizer, text):
    names = ["<pad>", "<s>", "</s>", "<unk>", "<mask>", "<length>"]
    assert tokenizer.convert_tokens_to_ids(names) == list(range(6))
    assert not set(tokenizer(text)["input_ids"]) & set(range(6))
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == pairs.tidy(text)
