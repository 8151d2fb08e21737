"""Ways in which a file may be damaged, by chance or by somebody."""

import json
import os
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings, strategies as st

# `make test-fuzz` runs so many times the examples, with other ones each time.
FUZZ = int(os.environ.get("FUZZ", "0"))
# For all tests of random input: the same examples on any machine, however busy. Files and models
# are made once for all examples. An example that fails is told as it is: with runs in it, to look
# for a smaller one takes many minutes.
settings.register_profile(
    "maskov",
    phases=(Phase.explicit, Phase.generate),
    deadline=None,
    derandomize=not FUZZ,
    print_blob=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("maskov")


def examples(count: int):
    """Return the settings of a test of so many examples; a quarter in the fast suite."""
    return settings(max_examples=count * FUZZ or -(-count // 4))


@contextmanager
def or_refused(*kinds: type[Exception], naming: Collection[object]) -> Iterator[None]:
    """Let errors of these kinds pass if they are one line that names one of these things.

    What is not refused is accepted: the block itself has to check that it was read correctly.
    """
    try:
        yield
    except kinds as error:
        message = str(error)
        assert "\n" not in message
        assert any(str(name) in message for name in naming), message


def unix_socket(path: Path) -> None:
    """Make a socket where a file should be."""
    with socket.socket(socket.AF_UNIX) as opened:
        # The path of a socket must be short.
        folder = os.open(path.parent, os.O_DIRECTORY)
        try:
            opened.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)


@st.composite
def damaged(draw, content: bytes) -> bytes:
    """Flip, cut, insert, repeat or replace parts of some bytes."""
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(len(content) - 1, 0)))
        kind = draw(st.sampled_from(["flip", "cut", "insert", "drop", "zero", "other"]))
        if kind == "flip" and content:
            bit = 1 << draw(st.integers(0, 7))
            content = content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]
        elif kind == "cut":
            content = content[:place]
        elif kind == "insert":
            content = content[:place] + draw(st.binary(min_size=1, max_size=9)) + content[place:]
        elif kind == "drop":
            content = content[:place] + content[place + draw(st.integers(1, 40)) :]
        elif kind == "zero":
            size = draw(st.integers(1, 64))
            content = (
                content[:place] + bytes(min(size, len(content) - place)) + content[place + size :]
            )
        else:
            content = draw(st.binary(max_size=40))
    return content


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 10**9, 2**63, 2**70, -(2**64), 10**30]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["../../etc", "/", "\x00", "a" * 5000, "__import__('os')"]),
    st.lists(st.integers(-2, 2), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@st.composite
def changed(draw, found: dict) -> dict:
    """Replace, remove or add entries of plain data, at any depth."""
    found = json.loads(json.dumps(found))
    for _ in range(draw(st.integers(1, 2))):
        inner = found
        while True:
            key = draw(st.sampled_from(sorted(inner)))
            if not (isinstance(inner[key], dict) and inner[key] and draw(st.booleans())):
                break
            inner = inner[key]
        act = draw(st.sampled_from(["odd", "odd", "odd", "gone", "new"]))
        if act == "gone" and len(inner) > 1:
            del inner[key]
        elif act == "new":
            inner[draw(st.text(max_size=5))] = draw(ODD)
        else:
            inner[key] = draw(ODD)
    return found


DEEP = "[" * 100_000
HUGE = ["9" * 5000, "1e999", "-1e999", "NaN", "Infinity", "9" * 400]
STRANGE = [DEEP, '{"a":' * 50_000, "", "null", "0", '""', "[]", "{}", "\ufeff{}", *HUGE]


def anything(content: bytes) -> st.SearchStrategy[bytes]:
    """Return a strategy of files: damaged, random, odd JSON, or other entries if it is JSON."""
    kinds = [
        damaged(content),
        damaged(content),
        st.binary(max_size=60),
        st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.sampled_from(STRANGE).map(str.encode),
    ]
    try:
        found = {"": json.loads(content)}  # the root may be a list
    except ValueError:
        return st.one_of(kinds)
    other = changed(found).map(lambda one: json.dumps(one.get("")).encode())
    return st.one_of(other, *kinds, other)
