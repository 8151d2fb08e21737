"""The checks that every test runs under do find what is wrong."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

pytest.importorskip("beartype")
import torch

from typecheck import CheckedImports, WrongTypeError

SOURCE = """
from __future__ import annotations
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from jaxtyping import Float, Int
from torch import Tensor

def both(one: Float[Tensor, " n"], other: Int[Tensor, " n"]) -> int:
    return len(one)

def doubled(one: Float[Tensor, " n"], more: int = 0) -> Float[Tensor, " n"]:
    return one.repeat(1 + more)

def plain(count: int) -> float:
    return count if count else "nothing"

def adder(step: int) -> Callable[[int], int]:
    def add(number: int) -> int:
        return number + step
    return add

def outer(one: Float[Tensor, " n"], other: Float[Tensor, " n m"]) -> Later:
    return Later(doubled(other[0]), 3)

def counted(one: Float[Tensor, " n"]) -> Iterator[int]:
    yield from range(len(one))

def asks(one: Float[Tensor, " n"], other: Float[Tensor, " m"]) -> int:
    return sum(1 for _ in counted(other))

@dataclass(frozen=True)
class Later:
    row: Float[Tensor, " n"]
    count: int

@dataclass
class Alike:
    row: Int[Tensor, " n"]
    count: int

    @property
    def size(self) -> str:
        return self.count

    @classmethod
    def of(cls, count: int) -> Alike:
        return None if count < 0 else cls(Alike.zeros(count), count)

    @staticmethod
    def zeros(count: int) -> Int[Tensor, " n"]:
        import torch
        return torch.zeros(count, dtype=torch.long)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> ModuleType:
    """A module that is imported with checks."""
    folder = tmp_path_factory.mktemp("checked")
    (folder / "shaped_by_tests.py").write_text(SOURCE)
    sys.path.insert(0, str(folder))
    try:
        with CheckedImports("shaped_by_tests"):
            return importlib.import_module("shaped_by_tests")
    finally:
        sys.path.remove(str(folder))


def test_what_is_right_passes(made):
    three = torch.zeros(3)
    assert made.both(three, torch.zeros(3, dtype=torch.long)) == 3
    assert made.doubled(three).shape == (3,)
    assert made.plain(2) == 2  # an int where a float is stated
    assert made.adder(1)(2) == 3
    # The n of a call is no other call's.
    assert made.outer(three, torch.zeros(3, 5)).row.shape == (5,)
    assert made.Alike.of(2).row.shape == (2,)
    # Nor is that of a generator its caller's.
    assert made.asks(three, torch.zeros(5)) == 5


@pytest.mark.parametrize(
    "wrong",
    [
        lambda made: made.both(torch.zeros(3), torch.zeros(2, dtype=torch.long)),
        lambda made: made.both(torch.zeros(3), torch.zeros(3)),
        lambda made: made.both(torch.zeros(3, 1), torch.zeros(3, dtype=torch.long)),
        lambda made: made.doubled(torch.zeros(3), more=1),
        lambda made: made.doubled(torch.zeros(3), more="1"),
        lambda made: made.plain(0),
        lambda made: made.counted(torch.zeros(3, 1)),
        lambda made: made.adder(1)("2"),
        lambda made: made.outer(torch.zeros(2), torch.zeros(3, 5)),
        lambda made: made.Later(torch.zeros(3), "3"),
        lambda made: made.Later(torch.zeros(3, dtype=torch.long), 3),
        lambda made: made.Alike(torch.zeros(3), 3),
        lambda made: made.Alike.of(2).size,
        lambda made: made.Alike.of("2"),
        lambda made: made.Alike.of(-1),
        lambda made: made.Alike.zeros("2"),
    ],
)
def test_what_is_wrong_is_found(made, wrong):
    with pytest.raises(WrongTypeError):
        wrong(made)


def test_functions_of_the_same_code_are_not_taken_for_each_other(made):
    one, ten = made.adder(1), made.adder(10)
    assert [one(1), ten(1), one(ten(one(1)))] == [2, 11, 13]


def test_the_package_is_checked():
    from maskov.schedules import Schedule
    from maskov.types import inside

    with pytest.raises(WrongTypeError):
        inside(torch.zeros(2), 3)
    with pytest.raises(WrongTypeError):
        Schedule(epochs="6")


def test_what_was_right_before_is_checked_again(made):
    """Dtypes that were taken once are remembered; sizes and names of dimensions are not."""
    three, counts = torch.zeros(3), torch.zeros(3, dtype=torch.long)
    for _ in range(2):
        assert made.both(three, counts) == 3
        for wrong in (counts[:2], counts[None], three, None):
            with pytest.raises(WrongTypeError):
                made.both(three, wrong)
        assert made.both(three[:2], counts[:2]) == 2
