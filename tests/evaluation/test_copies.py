"""Which sentences stand in the training text, and files that cannot be read."""

import gzip
import hashlib
import lzma
import tracemalloc

import pytest

import maskov
from maskov.evaluation.texts import copied

TRAINING = "The cat sat , quietly .\n\nA  dog\tran\r\nthe bird ate"
TEXTS = ["the cat sat, quietly.", "a dog", "a dog ran", "bird ate", "THE BIRD  ATE"]


@pytest.mark.parametrize(
    ("name", "pack"),
    [("t.txt", bytes), ("t.txt.xz", lzma.compress), ("t.gz", gzip.compress)],
    ids=["plain", "xz", "gz"],
)
def test_whole_lines_count_whatever_their_case_and_white_space(tmp_path, name, pack):
    path = tmp_path / name
    path.write_bytes(pack(TRAINING.encode()))
    found, content = copied(TEXTS, path)
    assert found.value == 3 / 5
    # Ones and noughts: variance 5/4 · 0.6 · 0.4, of the mean a fifth of it.
    assert found.standard_error == pytest.approx((0.6 * 0.4 / 4) ** 0.5)
    assert content == hashlib.sha256(TRAINING.encode()).hexdigest()


def test_a_sentence_drawn_twice_counts_twice(tmp_path):
    path = tmp_path / "training"
    path.write_text("\ufeffa dog ran\na dog ran\n")
    assert copied(["a dog ran", "a dog ran", "the cat", "a dogran"], path)[0].value == 3 / 4


def test_the_training_text_is_not_held_in_memory(tmp_path):
    path = tmp_path / "training"
    path.write_text("".join(f"sentence number {i} {'x' * 500}\n" for i in range(10_000)))
    assert path.stat().st_size > 5_000_000
    tracemalloc.start()
    try:
        copied(["a dog ran"], path)
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("t.txt", b"", "is empty"),
        ("t.txt", b"a dog\n\xff\n", r"not UTF-8 text \(line 2\)"),
        ("t.xz", lzma.compress(b"a dog ran" * 99)[:-9], "cannot read"),
        ("t.xz", b"a dog ran", "cannot read"),
        ("t.gz", gzip.compress(b"a dog ran" * 99, mtime=0)[:-9], "cannot read"),
        ("t.gz", gzip.compress(b"", mtime=0)[:10] + b"\xff" * 30, "cannot read"),
        ("t.gz", b"a dog ran", "cannot read"),
    ],
)
def test_a_training_text_that_cannot_be_read_is_refused(tmp_path, name, content, reason):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(maskov.InputError, match=reason) as caught:
        copied(["a dog"], path)
    assert str(caught.value).isprintable()
    assert str(path) in str(caught.value)


def test_a_training_text_that_is_not_there_is_named(tmp_path):
    with pytest.raises(maskov.InputError, match="no such file"):
        copied(["a dog"], tmp_path / "nowhere")
