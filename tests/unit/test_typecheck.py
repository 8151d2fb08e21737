"""With `CHECK_TYPES=1`, which one job of every night sets, calls of the package are checked."""

import os

import pytest
import torch

from maskov.config import Schedule
from maskov.types import inside


@pytest.mark.skipif(not os.environ.get("CHECK_TYPES"), reason="CHECK_TYPES=1 checks types")
@pytest.mark.parametrize(
    "wrong",
    [
        lambda: inside(torch.zeros(2), 3),  # a dtype
        lambda: inside(torch.zeros(2, 1, dtype=torch.long), 3),  # a shape
        lambda: Schedule(epochs="6"),  # the field of a dataclass
    ],
)
def test_wrong_types_are_found(wrong):
    with pytest.raises(TypeError):
        wrong()
