"""Random numbers depend on (seed, chain, step, purpose, index) and on nothing else."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from maskov.random import CounterRng, Purpose, categorical, philox


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    # The known answers published with Random123 (Salmon et al. 2011).
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(counter, key, expected):
    c0, c1, c2, c3 = ([word] for word in counter)
    pairs = (np.array(pair, dtype=np.uint64) for pair in ((c2, c0), (c1, c3)))
    ((c2,), (c0,)), ((c1,), (c3,)) = philox(*pairs, key)
    assert (c0, c1, c2, c3) == expected


@pytest.mark.parametrize("count", [0, 1, 7, 1000, 2**16 + 1])
def test_numbers_are_those_of_philox(count):
    ends, low = (-(2**63), 2**63 - 1), 2**32 - 1
    generator = torch.Generator().manual_seed(0)
    chain, step, index = torch.randint(*ends, (count, 3), generator=generator).unbind(1)
    words = (index & low, chain & low, step & low, (step >> 32) << 8 | int(Purpose.RESAMPLE))
    pairs = torch.stack(words).numpy().view(np.uint64).reshape(2, 2, -1)
    for seed in (0, 2**64 - 1, 0x0123456789ABCDEF):
        (_, high), (rest, _) = philox(*pairs, (seed & low, seed >> 32))
        stated = ((high.astype(np.int64) >> 5 << 26) | (rest.astype(np.int64) >> 6)) * 2.0**-53
        found = CounterRng(seed).uniform(chain, step, Purpose.RESAMPLE, index)
        assert found.tolist() == stated.tolist()


def test_every_part_of_the_key_matters():
    base = {"seed": 3, "chain": 5, "step": 2**33 + 1, "purpose": Purpose.TOKEN, "index": 4}
    changes = {"seed": 3 + 2**32, "chain": 6, "step": 1, "purpose": Purpose.ACCEPT, "index": 5}

    def number(seed, chain, step, purpose, index) -> float:
        one = [torch.tensor([value]) for value in (chain, step, index)]
        return float(CounterRng(seed).uniform(one[0], one[1], purpose, one[2]))

    numbers = {number(**base)} | {number(**base | {key: new}) for key, new in changes.items()}
    assert len(numbers) == 6


def test_numbers_are_uniform_and_neighbours_uncorrelated():
    """Failure rate below 1e-6 for a perfect generator: five standard errors twice."""
    count = 100_000
    chain = torch.arange(count)
    u = CounterRng(0).uniform(chain, torch.zeros_like(chain), Purpose.ACCEPT)
    assert float(u.min()) >= 0
    assert float(u.max()) < 1
    assert abs(float(u.mean()) - 0.5) < 5 * (1 / 12 / count) ** 0.5
    centred = u - u.mean()
    correlation = float((centred[1:] * centred[:-1]).mean() / centred.var())
    assert abs(correlation) < 5 / count**0.5


def test_each_token_has_a_stretch_as_long_as_its_probability():
    probabilities = torch.tensor([0.1, 0.0, 0.6, 0.3], dtype=torch.float64)
    grid = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    drawn = categorical(probabilities.expand(1000, -1), grid)
    assert torch.bincount(drawn, minlength=4).tolist() == [100, 0, 600, 300]


@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=8).filter(lambda p: max(p) > 1e-3),
    st.sampled_from([0.0, 1e-300, 0.5, 1 - 2**-53]),
)
def test_an_impossible_token_is_never_drawn(weights, u):
    probabilities = torch.tensor([weights], dtype=torch.float64)
    drawn = int(categorical(probabilities, torch.tensor([u], dtype=torch.float64)))
    assert weights[drawn] > 0
