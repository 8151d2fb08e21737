"""Converted Mask-Predict checkpoints, against a second implementation of fairseq's forward pass."""

import pickle
import tempfile
from pathlib import Path

import pytest
import torch
from recipes.translation.fairseq import convert, convert_once, main
from torch.nn import functional

import maskov
from maskov.errors import ModelError
from maskov.models.conditional import ConditionalModel
from maskov.models.network import load_translation
from maskov.models.tokens import MERGES_FILE, Merges, forbidden_tokens
from tiny_fairseq import (
    DECODERS,
    ENCODERS,
    HEADS,
    PADDING,
    TARGET,
    VOCABULARY,
    WIDTH,
    WORDS,
    weights,
    write,
)

CPU = torch.device("cpu")


def converted(path, dtype=torch.float32):
    """Convert a model and load what was written."""
    with tempfile.TemporaryDirectory() as out:
        convert(path, Path(out))
        return load_translation(Path(out), CPU, dtype)


class Reference:
    """Fairseq's network, one sentence at a time, from its published description."""

    def __init__(self, state, norm_first):
        self.state = {name: value.double() for name, value in state.items()}
        self.norm_first = norm_first

    def norm(self, name, x):
        gamma, beta = self.state[f"{name}.gamma"], self.state[f"{name}.beta"]
        return functional.layer_norm(x, (WIDTH,), gamma, beta, 1e-12)

    def linear(self, name, x):
        return functional.linear(x, self.state[f"{name}.weight"], self.state[f"{name}.bias"])

    def attention(self, name, asking, memory):
        if f"{name}.in_proj_weight" in self.state:
            matrices = self.state[f"{name}.in_proj_weight"].chunk(3)
            parts = zip(matrices, self.state[f"{name}.in_proj_bias"].chunk(3), strict=True)
        else:
            names = [f"{name}.{part}_proj" for part in "qkv"]
            parts = [(self.state[f"{one}.weight"], self.state[f"{one}.bias"]) for one in names]
        asked = zip((asking, memory, memory), parts, strict=True)
        read = [functional.linear(states, *part) for states, part in asked]
        heads = (one.view(len(one), HEADS, -1).transpose(0, 1) for one in read)
        mixed = functional.scaled_dot_product_attention(*heads).transpose(0, 1)
        return self.linear(f"{name}.out_proj", mixed.reshape(len(asking), WIDTH))

    def part(self, name, x, inside):
        if self.norm_first:
            return x + inside(self.norm(name, x))
        return self.norm(name, x + inside(x))

    def inner(self, name, x):
        return self.linear(f"{name}.fc2", functional.gelu(self.linear(f"{name}.fc1", x)))

    def embedded(self, side, tokens):
        table = self.state[f"{side}.embed_positions.weight"][PADDING + 1 :]
        return self.state[f"{side}.embed_tokens.weight"][tokens] + table[: len(tokens)]

    def run(self, side, layers, x, norms, memory=None):
        """Run the layers of a side; `norms` are those of its attentions and of its inner part."""
        for number in range(layers):
            name = f"{side}.layers.{number}"
            first, *cross, last = (f"{name}.{norm}" for norm in norms)
            own, other = (f"{name}.{kind}_attn" for kind in ("self", "encoder"))
            x = self.part(first, x, lambda y, n=own: self.attention(n, y, y))
            for norm in cross:
                x = self.part(norm, x, lambda y, n=other: self.attention(n, y, memory))
            x = self.part(last, x, lambda y, n=name: self.inner(n, y))
        return self.norm(f"{side}.layer_norm", x) if self.norm_first else x

    def encode(self, tokens):
        table = self.state["encoder.embed_lengths.weight"]
        x = torch.cat([table[:1], self.embedded("encoder", tokens)])
        x = self.run("encoder", ENCODERS, x, ["layer_norms.0", "layer_norms.1"])
        return x[1:], (x[0] @ table.T)[1:]

    def decode(self, tokens, memory):
        norms = [f"{part}_layer_norm" for part in ("self_attn", "encoder_attn", "final")]
        x = self.run("decoder", DECODERS, self.embedded("decoder", tokens), norms, memory)
        return x @ self.state["decoder.embed_tokens.weight"].T


def refusal(path):
    """Return the one sentence with which a path is refused."""
    with pytest.raises(ModelError) as caught:
        converted(path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


SOURCES = [[7, 20, 9, 30, 2], [11, 12, 13, 14, 15, 16, 17, 2], [25, 2]]
# The mask is 4, and the end is a token like any other, seen or masked.
TARGETS = [[4, 8, 4], [9, 4, 10, 4, 19, 2], [4, 4, 4, 4]]


def padded(rows):
    width = max(map(len, rows))
    tokens = torch.tensor([row + [PADDING] * (width - len(row)) for row in rows])
    return tokens, tokens != PADDING


@pytest.mark.parametrize(
    ("norm_first", "apart", "dtype", "error"),
    [
        (False, False, torch.float64, 1e-10),
        (True, True, torch.float64, 1e-10),
        (False, True, torch.float32, 1e-5),
    ],
)
def test_network_agrees_with_fairseq_s_forward_pass(tmp_path, norm_first, apart, dtype, error):
    state = weights(norm_first, apart)
    before = {"encoder_normalize_before": norm_first, "decoder_normalize_before": norm_first}
    write(tmp_path, state, **before)
    network, _ = converted(tmp_path, dtype)
    reference = Reference(state, norm_first)
    source, inside = padded(SOURCES)
    target, within = padded(TARGETS)
    memory, mask, lengths = network.read(source, inside)
    states = network.decode(target, network.cross_key_values(memory), mask, within)
    scores = network.scores(states)
    # Row 0 asks for the length, which is not an answer; length 12 has no row among 0 to 11.
    assert lengths.shape == (3, TARGET)
    assert bool((lengths[:, 0] < -1e8).all())
    assert network.shape.longest == TARGET - 1
    assert not network.training
    for row, (tokens, targets) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected, answers = reference.encode(tokens)
        found = [memory[row, 1 : len(tokens) + 1], lengths[row, 1:], scores[row, : len(targets)]]
        theirs = [expected, answers, reference.decode(targets, expected)]
        for ours, other in zip(found, theirs, strict=True):
            assert ours.dtype == dtype
            torch.testing.assert_close(ours.double(), other, atol=error, rtol=error)


class Payload:
    """Writes a marker file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


@pytest.mark.parametrize("old", [False, True])
def test_damaged_files_and_code_are_refused_and_nothing_is_run(tmp_path, old):
    marker = tmp_path / "marker"
    file = write(tmp_path, extra=Payload(marker), old=old)
    assert "nothing in it was run" in refusal(tmp_path)
    assert not marker.exists()
    # The payload is not harmless.
    pickle.loads(pickle.dumps(Payload(marker))).close()
    assert marker.exists()
    content = write(tmp_path, old=old).read_bytes()
    for share in (0.0, 0.5, 0.99):
        file.write_bytes(content[: int(share * len(content))])
        assert "damaged" in refusal(tmp_path)
    torch.save({"weights": torch.zeros(2)}, file)
    assert "'args'" in refusal(tmp_path)


CODES = [("l", "o"), ("e", "s"), ("es", "t</w>"), ("lo", "w</w>"), ("e", "r</w>"), ("w", "er</w>")]
NEWER = "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in CODES)
FAST = "".join(f"{a} {b} 7\n" for a, b in CODES)  # fastBPE's file has counts and no version
OLDER = "l o\nlo w\nr </w>\ne r</w>\n"  # keeps the end apart


@pytest.mark.parametrize(
    ("codes", "cut"),
    [
        # "w" inside a word is another symbol than "w" at its end.
        (NEWER, "low | lo@@ w@@ est | lo@@ wer | er | e@@ r@@ e | o | lo@@ l@@ o | o@@ lo@@ l@@ o"),
        (FAST, "low | lo@@ w@@ est | lo@@ wer | o@@ lo@@ l@@ o"),
        (OLDER, "low | low@@ er | e@@ r@@ l"),
    ],
)
def test_words_are_cut_as_by_hand(tmp_path, codes, cut):
    write(tmp_path, codes=codes)
    convert(tmp_path, tmp_path / "out")
    for file in (tmp_path / "ende.code", tmp_path / "out" / MERGES_FILE):
        merges = Merges.read(file)
        for pieces in cut.split(" | "):
            assert merges.split(pieces.replace("@@ ", "")) == pieces.split()


@pytest.mark.parametrize("codes", [None, NEWER], ids=["in pieces", "with codes"])
def test_ids_are_fairseq_s_and_text_is_cut_and_joined_again(tmp_path, codes):
    write(tmp_path, codes=codes)
    _, tokenizer = converted(tmp_path)
    special = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4}
    assert tokenizer.get_vocab() == special | {word: 5 + n for n, word in enumerate(WORDS)}
    ids = [getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "pad", "eos", "unk", "mask")]
    assert ids == [0, 1, 2, 3, 4]
    forbidden = forbidden_tokens(tokenizer, VOCABULARY).nonzero().flatten().tolist()
    assert forbidden == [0, 1, 2, 3, 4, VOCABULARY - 1]
    text, pieces = {
        None: ("lo@@ w@@ er <mask> xyz .", ["lo@@", "w@@", "er", "<mask>", "<unk>", "."]),
        NEWER: ("low lowest <mask> .", ["low", "lo@@", "w@@", "est", "<mask>", "."]),
    }[codes]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == pieces
    joined = text.replace("@@ ", "").replace("xyz", "<unk>")
    assert tokenizer.decode(ids) == joined
    assert pickle.loads(pickle.dumps(tokenizer))(text)["input_ids"] == ids
    # A mask is found where it touches a word, too; a piece that nothing follows is ended.
    assert tokenizer("low<mask>.")["input_ids"] == tokenizer("low <mask> .")["input_ids"]
    assert tokenizer.decode([tokenizer.get_vocab()[piece] for piece in ("lo@@", "w@@")]) == "low"


def test_the_command_writes_a_model_and_a_conversion_is_kept_until_a_file_changes(tmp_path, capsys):
    fairseq, out, cache = (tmp_path / name for name in ("fairseq", "out", "cache"))
    fairseq.mkdir()
    write(fairseq, codes=NEWER)
    main([str(fairseq), "--out", str(out)])
    assert str(out) in capsys.readouterr().out
    model = maskov.load(out, "cpu")
    assert isinstance(model, ConditionalModel)
    assert model.decode(model.encode("low lowest .")) == "low lowest ."
    with pytest.raises(SystemExit, match="no checkpoint"):
        main([str(out), "--out", str(out)])
    first = convert_once(fairseq, cache)
    written = (first / "config.json").stat().st_mtime_ns
    assert convert_once(fairseq, cache) == first
    assert (first / "config.json").stat().st_mtime_ns == written
    write(fairseq, codes=FAST)
    assert convert_once(fairseq, cache) != first
