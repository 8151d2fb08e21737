"""Converted Mask-Predict checkpoints, against a second implementation of fairseq's forward pass."""

import copy
import math
import pickle
import re
import sys
import tempfile
import types
from pathlib import Path

import pytest
import torch
from recipes.translation.fairseq import convert, convert_once, main, read_dictionary

import maskov
from maskov.errors import ModelError
from maskov.models.conditional import checkpoint
from maskov.models.conditional.checkpoint import FILE, Merges
from maskov.models.conditional.model import ConditionalModel
from maskov.models.tokens import forbidden_tokens
from tiny_fairseq import (
    DECODERS,
    ENCODERS,
    HEADS,
    INNER,
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
        return checkpoint.load(Path(out), CPU, dtype)


class Reference:
    """Fairseq's network, one sentence at a time, from its published description."""

    def __init__(self, state, norm_first):
        self.state = {name: value.double() for name, value in state.items()}
        self.norm_first = norm_first

    def norm(self, name, x):
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        unit = (x - mean) / torch.sqrt(variance + 1e-12)
        return self.state[f"{name}.gamma"] * unit + self.state[f"{name}.beta"]

    def linear(self, name, x):
        return x @ self.state[f"{name}.weight"].T + self.state[f"{name}.bias"]

    def projections(self, name):
        if f"{name}.in_proj_weight" in self.state:
            matrices = self.state[f"{name}.in_proj_weight"].chunk(3)
            return list(zip(matrices, self.state[f"{name}.in_proj_bias"].chunk(3), strict=True))
        parts = [f"{name}.{part}_proj" for part in "qkv"]
        return [(self.state[f"{part}.weight"], self.state[f"{part}.bias"]) for part in parts]

    def attention(self, name, asking, memory):
        query, key, value = (
            states @ matrix.T + bias
            for states, (matrix, bias) in zip(
                (asking, memory, memory), self.projections(name), strict=True
            )
        )
        size = WIDTH // HEADS
        read = []
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            scores = (query[:, part] * size**-0.5) @ key[:, part].T
            read.append(scores.softmax(-1) @ value[:, part])
        return self.linear(f"{name}.out_proj", torch.cat(read, -1))

    def part(self, name, x, inside):
        if self.norm_first:
            return x + inside(self.norm(name, x))
        return self.norm(name, x + inside(x))

    def inner(self, name, x):
        x = self.linear(f"{name}.fc1", x)
        return self.linear(f"{name}.fc2", x * 0.5 * (1 + torch.erf(x / math.sqrt(2))))

    def embedded(self, side, tokens):
        rows = [PADDING + 1 + place for place in range(len(tokens))]
        table = self.state[f"{side}.embed_positions.weight"]
        return self.state[f"{side}.embed_tokens.weight"][tokens] + table[rows]

    def encode(self, tokens):
        table = self.state["encoder.embed_lengths.weight"]
        x = torch.cat([table[:1], self.embedded("encoder", tokens)])
        for number in range(ENCODERS):
            name = f"encoder.layers.{number}"
            x = self.part(
                f"{name}.layer_norms.0", x, lambda y, n=name: self.attention(f"{n}.self_attn", y, y)
            )
            x = self.part(f"{name}.layer_norms.1", x, lambda y, n=name: self.inner(n, y))
        if self.norm_first:
            x = self.norm("encoder.layer_norm", x)
        return x[1:], (x[0] @ table.T)[1:]

    def decode(self, tokens, memory):
        x = self.embedded("decoder", tokens)
        for number in range(DECODERS):
            name = f"decoder.layers.{number}"
            x = self.part(
                f"{name}.self_attn_layer_norm",
                x,
                lambda y, n=name: self.attention(f"{n}.self_attn", y, y),
            )
            x = self.part(
                f"{name}.encoder_attn_layer_norm",
                x,
                lambda y, n=name: self.attention(f"{n}.encoder_attn", y, memory),
            )
            x = self.part(f"{name}.final_layer_norm", x, lambda y, n=name: self.inner(n, y))
        if self.norm_first:
            x = self.norm("decoder.layer_norm", x)
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


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_network_agrees_with_fairseq_s_forward_pass(tmp_path, norm_first, apart, dtype, error):
    state = weights(norm_first, apart)
    before = {"encoder_normalize_before": norm_first, "decoder_normalize_before": norm_first}
    write(tmp_path, state, **before)
    network, _ = converted(tmp_path, dtype)
    reference = Reference(state, norm_first)
    source, inside = padded(SOURCES)
    target, within = padded(TARGETS)
    memory, lengths = network.encode(source, inside)
    states = network.decode(target, network.cross_key_values(memory), inside[:, None, None], within)
    scores = network.scores(states)
    # Row 0 asks for the length and is no answer.
    assert lengths.shape == (3, TARGET)
    assert bool((lengths[:, 0] < -1e8).all())
    for row, (tokens, targets) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected, answers = reference.encode(tokens)
        found = [memory[row, : len(tokens)], lengths[row, 1:], scores[row, : len(targets)]]
        for ours, theirs in zip(
            found, [expected, answers, reference.decode(targets, expected)], strict=True
        ):
            assert ours.dtype == dtype
            torch.testing.assert_close(ours.double(), theirs, atol=error, rtol=error)


def test_the_comparison_would_notice_swapped_keys_and_values():
    state = weights()
    reference = Reference(state, False)
    swapped = copy.deepcopy(state)
    name = "decoder.layers.1.encoder_attn.in_proj_weight"
    query, key, value = state[name].chunk(3)
    swapped[name] = torch.cat([query, value, key])
    memory, _ = reference.encode(SOURCES[0])
    same, other = (Reference(x, False).decode(TARGETS[0], memory) for x in (state, swapped))
    assert (same - other).abs().max() > 1e-2


def test_shape_says_what_fairseq_does(tmp_path):
    write(tmp_path)
    network, _ = converted(tmp_path)
    shape = network.shape
    sizes = (shape.vocabulary, shape.width, shape.heads, shape.inner)
    assert sizes == (VOCABULARY, WIDTH, HEADS, INNER)
    assert (shape.encoder_layers, shape.decoder_layers) == (ENCODERS, DECODERS)
    assert (shape.target_end, shape.norm_first, shape.causal) == (True, False, False)
    assert shape.norm_epsilon == 1e-12
    # Length 12 has no row among the lengths 0 to 11.
    assert shape.longest == TARGET - 1
    assert not any(value.requires_grad for value in network.parameters())
    assert not network.training


def test_tables_are_cut_to_the_shortest(tmp_path):
    state = weights()
    state["encoder.embed_positions.weight"] = state["encoder.embed_positions.weight"][: 6 + 2]
    write(tmp_path, state)
    network, _ = converted(tmp_path)
    assert network.shape.longest == 6
    places = state["decoder.embed_positions.weight"][2:8]
    assert torch.equal(network.lengths.weight, state["encoder.embed_lengths.weight"][:7])
    assert torch.equal(network.target_positions.weight, places)


def test_half_precision_and_the_older_file_format_are_read(tmp_path):
    state = {name: value.half() for name, value in weights().items()}
    write(tmp_path, state, old=True)
    network, _ = converted(tmp_path)
    expected = state["encoder.layers.1.fc2.bias"].float()
    torch.testing.assert_close(network.encoder[1].narrow.bias, expected, rtol=0, atol=0)


def test_statistics_of_training_are_dropped_without_fairseq(tmp_path, monkeypatch):
    meters = types.ModuleType("fairseq.meters")
    meters.AverageMeter = type("AverageMeter", (), {"__module__": "fairseq.meters"})
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "fairseq", types.ModuleType("fairseq"))
        patch.setitem(sys.modules, "fairseq.meters", meters)
        meter = meters.AverageMeter()
        meter.avg = 3.5
        write(tmp_path, extra={"train_meters": {"loss": meter}})
    converted(tmp_path)


class Payload:
    """Writes a marker file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


@pytest.mark.parametrize("old", [False, True])
def test_pickle_with_code_in_it_is_refused_and_not_run(tmp_path, old):
    marker = tmp_path / "marker"
    write(tmp_path, extra=Payload(marker), old=old)
    assert "nothing in it was run" in refusal(tmp_path)
    assert not marker.exists()
    # The payload is not harmless.
    pickle.loads(pickle.dumps(Payload(marker))).close()
    assert marker.exists()


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_truncated_file_is_refused(tmp_path, old, share):
    file = write(tmp_path, old=old)
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    assert "damaged" in refusal(tmp_path)


def test_other_pickles_are_refused(tmp_path):
    file = write(tmp_path)
    torch.save({"weights": torch.zeros(2)}, file)
    assert "'args'" in refusal(tmp_path)
    torch.save(torch.zeros(2), file)
    assert "'args'" in refusal(tmp_path)


def test_every_weight_that_is_missing_or_of_a_wrong_size_is_named(tmp_path):
    state = weights()
    for name in sorted(name for name in state if "version" not in name):
        write(tmp_path, {other: value for other, value in state.items() if other != name})
        assert f"lacks the weight {name}" in refusal(tmp_path)
        if "layers.1" in name:
            wrong = torch.cat([state[name], state[name][:1]])
            write(tmp_path, state | {name: wrong})
            size = " x ".join(map(str, wrong.shape))
            assert re.search(f"the weight {name} of .* is {size}, not ", refusal(tmp_path))


def test_weights_with_no_place_and_final_norms_that_are_missing_are_named(tmp_path):
    write(tmp_path, encoder_normalize_before=True, decoder_normalize_before=True)
    assert "encoder.layer_norm.gamma" in refusal(tmp_path)
    write(tmp_path, weights(norm_first=True))
    assert "decoder.layer_norm.beta" in refusal(tmp_path)
    write(tmp_path, encoder_layers=1)
    assert "encoder.layers.1." in refusal(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arch": "transformer"}, "transformer"),
        ({"dynamic_length": True}, "--dynamic-length"),
        ({"decoder_normalize_before": True}, "differ"),
        ({"decoder_attention_heads": 2}, "differ"),
        ({"encoder_attention_heads": 5}, "do not divide"),
        ({"encoder_attention_heads": 0}, "invalid numbers"),
        ({"encoder_layers": "6"}, "invalid numbers"),
        ({"encoder_layers": 10**12}, "encoder.layers.2."),
    ],
)
def test_settings_of_another_network_are_refused(tmp_path, changes, said):
    write(tmp_path, **changes)
    assert said in refusal(tmp_path)


def test_embeddings_must_be_shared(tmp_path):
    state = weights()
    write(tmp_path, state | {"decoder.embed_out": state["decoder.embed_tokens.weight"].clone()})
    converted(tmp_path)
    for name in ("decoder.embed_out", "decoder.embed_tokens.weight"):
        write(tmp_path, state | {name: state["decoder.embed_tokens.weight"] + 1})
        assert "--share-all-embeddings" in refusal(tmp_path)


def test_folder_or_file_may_be_named(tmp_path):
    file = write(tmp_path)
    converted(file)
    # With a best one the choice is clear, without it is not.
    other = tmp_path / "checkpoint_last.pt"
    other.write_bytes(b"")
    converted(tmp_path)
    file.rename(tmp_path / "checkpoint_3.pt")
    assert "name one" in refusal(tmp_path)
    converted(tmp_path / "checkpoint_3.pt")
    assert "no checkpoint" in refusal(tmp_path / "nothing")


def test_dictionary_must_be_the_model_s_own(tmp_path):
    write(tmp_path, words=WORDS[:-1])
    assert f"{VOCABULARY} tokens and its dictionary {VOCABULARY - 1}" in refusal(tmp_path)
    write(tmp_path)
    (tmp_path / "dict.de.txt").write_text("other 3\n")
    assert "differ" in refusal(tmp_path)
    (tmp_path / "dict.de.txt").unlink()
    converted(tmp_path)
    (tmp_path / "dict.en.txt").unlink()
    assert "no dictionary" in refusal(tmp_path)


@pytest.mark.parametrize("line", ["word", "word many", "lo@@ 3", "<mask> 3", ""])
def test_lines_that_no_dictionary_has_are_refused(tmp_path, line):
    path = tmp_path / "dict.en.txt"
    path.write_text(f"lo@@ 7\n{line}\n")
    with pytest.raises(ModelError, match="line 2"):
        read_dictionary(path)


def test_ids_are_fairseq_s(tmp_path):
    write(tmp_path)
    _, tokenizer = converted(tmp_path)
    vocabulary = tokenizer.get_vocab()
    special = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4}
    assert vocabulary == special | {word: 5 + number for number, word in enumerate(WORDS)}
    ids = [getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "pad", "eos", "unk", "mask")]
    assert ids == [0, 1, 2, 3, 4]
    assert sorted(tokenizer.all_special_ids) == [0, 1, 2, 3, 4]
    forbidden = forbidden_tokens(tokenizer, VOCABULARY).nonzero().flatten().tolist()
    assert forbidden == [0, 1, 2, 3, 4, VOCABULARY - 1]


def test_text_in_pieces_needs_no_codes(tmp_path):
    write(tmp_path)
    _, tokenizer = converted(tmp_path)
    ids = tokenizer("lo@@ w@@ er <mask> xyz .", add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["lo@@", "w@@", "er", "<mask>", "<unk>", "."]
    assert tokenizer.decode(ids) == "lower <mask> <unk> ."
    # A piece that nothing follows is ended all the same.
    assert tokenizer.decode(ids[:2]) == "low"
    assert tokenizer.decode([]) == ""


CODES = [("l", "o"), ("e", "s"), ("es", "t</w>"), ("lo", "w</w>"), ("e", "r</w>"), ("w", "er</w>")]
NEWER = "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in CODES)


@pytest.mark.parametrize(
    ("word", "pieces"),
    [
        ("low", ["low"]),
        # "w" that ends no word is another symbol than the one that does.
        ("lowest", ["lo@@", "w@@", "est"]),
        ("lower", ["lo@@", "wer"]),
        ("er", ["er"]),
        ("ere", ["e@@", "r@@", "e"]),
        ("o", ["o"]),
        ("lolo", ["lo@@", "l@@", "o"]),
        ("ololo", ["o@@", "lo@@", "l@@", "o"]),
    ],
)
def test_words_are_cut_as_by_hand(tmp_path, word, pieces):
    (tmp_path / "codes").write_text(NEWER)
    assert Merges.read(tmp_path / "codes").split(word) == pieces
    # fastBPE's file has counts and no version.
    (tmp_path / "codes").write_text("".join(f"{a} {b} 7\n" for a, b in CODES))
    assert Merges.read(tmp_path / "codes").split(word) == pieces


def test_the_earliest_merge_comes_first_not_the_leftmost():
    merges = Merges([("b", "c"), ("a", "b"), ("b", "c")])
    assert merges.split("abcx") == ["a@@", "bc@@", "x"]
    assert merges.split("abx") == ["ab@@", "x"]
    assert Merges([("a", "a")]).split("aaaax") == ["aa@@", "aa@@", "x"]


def test_older_codes_keep_the_end_apart(tmp_path):
    (tmp_path / "codes").write_text("l o\nlo w\nr </w>\ne r</w>\n")
    merges = Merges.read(tmp_path / "codes")
    assert merges.split("low") == ["low"]
    assert merges.split("lower") == ["low@@", "er"]
    assert merges.split("erl") == ["e@@", "r@@", "l"]


def test_files_of_no_codes_and_two_files_are_refused(tmp_path):
    for codes in ("", "one\n", "a b\nc\n", "a b c d\n", "a b\nc d 3\n"):
        write(tmp_path, codes=codes)
        assert "ende.code" in refusal(tmp_path)
    write(tmp_path, codes=NEWER)
    (tmp_path / "codes").write_text(NEWER)
    assert "2 files" in refusal(tmp_path)


def test_text_is_cut_and_joined_again(tmp_path):
    write(tmp_path, codes=NEWER)
    _, tokenizer = converted(tmp_path)
    text = "low lowest <mask> . silent ringing <unk>"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids)[:6] == ["low", "lo@@", "w@@", "est", "<mask>", "."]
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode(text, add_special_tokens=False) == ids
    assert tokenizer([text, "low"])["input_ids"] == [ids, ids[:1]]
    # The merge exists, its result is not in the dictionary.
    assert tokenizer.encode("lower") == [tokenizer.get_vocab()["lo@@"], tokenizer.unk_token_id]
    # A mask is found where it touches a word, too.
    assert tokenizer.encode("low<mask>.") == tokenizer.encode("low <mask> .")
    assert tokenizer.mask_token == "<mask>"
    assert len(tokenizer) == VOCABULARY
    assert copy.deepcopy(tokenizer).encode(text) == ids
    assert pickle.loads(pickle.dumps(tokenizer)).encode(text) == ids


def test_merges_of_either_kind_are_saved_with_the_model(tmp_path):
    older = "l o\nlo w\nr </w>\ne r</w>\n"
    for codes in (NEWER, older):
        write(tmp_path, codes=codes)
        convert(tmp_path, tmp_path / "out")
        saved = Merges.read(tmp_path / "out" / FILE)
        original = Merges.read(tmp_path / "ende.code")
        for word in ("low", "lower", "lowest", "erl", "o"):
            assert saved.split(word) == original.split(word)


def test_the_command_writes_a_model_that_maskov_loads(tmp_path, capsys):
    fairseq, out = tmp_path / "fairseq", tmp_path / "out"
    fairseq.mkdir()
    write(fairseq, codes=NEWER)
    main([str(fairseq), "--out", str(out)])
    assert str(out) in capsys.readouterr().out
    model = maskov.load(out, "cpu")
    assert isinstance(model, ConditionalModel)
    assert model.decode(model.encode("low lowest .")) == "low lowest ."
    with pytest.raises(SystemExit, match="no checkpoint"):
        main([str(out), "--out", str(out)])
    # The package itself knows nothing of fairseq's files.
    with pytest.raises(ModelError, match="no config"):
        maskov.load(fairseq, "cpu")


def test_a_model_is_converted_again_only_when_a_file_has_changed(tmp_path):
    fairseq, cache = tmp_path / "fairseq", tmp_path / "cache"
    fairseq.mkdir()
    write(fairseq)
    first = convert_once(fairseq, cache)
    assert first.name == "fairseq"
    written = (first / "config.json").stat().st_mtime_ns
    assert convert_once(fairseq, cache) == first
    assert (first / "config.json").stat().st_mtime_ns == written
    write(fairseq, codes=NEWER)
    second = convert_once(fairseq, cache)
    assert second != first
    assert (second / FILE).exists()
    (fairseq / "dict.en.txt").write_text("a 1\n")
    with pytest.raises(ModelError):
        convert_once(fairseq, cache)
    # A failed conversion leaves nothing behind.
    assert {path for path in cache.glob("*/*") if path.is_dir()} == {first, second}
