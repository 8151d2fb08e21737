"""Greedy and beam search against one without caches, and against all translations there are."""

import pytest
import torch
from recipes.translation.corpus import Batch
from recipes.translation.losses import causal_loss
from recipes.translation.train import initialise

from maskov.models import autoregressive as searching
from maskov.models.autoregressive import _Beams, search
from maskov.models.network import SpecialTokens, TranslationNetwork, TranslationShape

PAD, BEGIN, END = 0, 1, 2
MARKS = SpecialTokens(PAD, BEGIN, END, mask=PAD)


@pytest.fixture(scope="module")
def copier() -> TranslationNetwork:
    """A network that has begun to learn to copy, so that it is unsure, and ends here or there."""
    generator = torch.Generator().manual_seed(0)
    place = torch.arange(7)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = TranslationNetwork(TranslationShape(12, 32, 2, 64, 1, 1, 14, causal=True))
        initialise(network)
        optimizer = torch.optim.AdamW(network.parameters(), lr=5e-3)
        for _ in range(250):
            lengths = torch.randint(1, 7, (64,), generator=generator)
            ids = torch.randint(3, 12, (64, 7), generator=generator)
            inside = place < lengths[:, None]
            batch = Batch(ids, inside, ids, inside, 0)
            causal_loss(network, MARKS, 0.1, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
    return network.double().eval()


def _forbidden(vocabulary: int) -> torch.Tensor:
    forbidden = torch.zeros(vocabulary, dtype=torch.bool)
    forbidden[[PAD, BEGIN, END]] = True
    return forbidden


def _sources(count: int, width: int, vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    # Most are short, so that their search is over long before that of the others.
    lengths = torch.randint(2, 4, (count,), generator=generator)
    lengths[::5] = torch.randint(5, width, (len(lengths[::5]),), generator=generator)
    lengths[0] = width
    source = torch.randint(3, vocabulary, (count, width), generator=generator)
    inside = torch.arange(width) < lengths[:, None]
    source[torch.arange(count), lengths - 1] = END
    return source.masked_fill(~inside, PAD), inside


def _log_chances(
    network: TranslationNetwork, source: torch.Tensor, tokens: list[int]
) -> torch.Tensor:
    """Return the log-probability of every token after some, computed from nothing."""
    inside = torch.ones_like(source, dtype=torch.bool)
    with torch.no_grad():
        memory, mask, _ = network.read(source, inside)
        target = torch.tensor([[BEGIN, *tokens]])
        states = network.decode(target, network.cross_key_values(memory), mask)
        return network.scores(states[0, -1]).log_softmax(0)


def _plain(network, source, limit: int, beam: int, power: float):
    """Search for one source as the docstring of `search` says, with lists."""
    hypotheses = [(0.0, [], False)]
    for place in range(limit + 1):
        found = []
        for score, tokens, ended in hypotheses:
            if ended:
                found.append((score, tokens, True))
                continue
            chances = _log_chances(network, source, tokens).tolist()
            words = [] if place == limit else range(3, len(chances))
            for token in (END, *words):
                found.append((score + chances[token], [*tokens, token], token == END))
        found.sort(key=lambda one: one[0] / len(one[1]) ** power, reverse=True)
        hypotheses = found[:beam]
    return hypotheses[0]


@pytest.mark.parametrize(("beam", "power", "every"), [(1, 1.0, 1), (3, 1.0, 4), (3, 0.6, 1)])
def test_search_finds_what_a_plain_one_finds(copier, beam, power, every, monkeypatch):
    monkeypatch.setattr(searching, "_CHECK_EVERY", every)
    left, report = [], _Beams.report

    def spy(self: _Beams, tokens: torch.Tensor, score: torch.Tensor, kept: torch.Tensor) -> None:
        left.append(len(kept))
        report(self, tokens, score, kept)

    monkeypatch.setattr(_Beams, "report", spy)
    source, inside = _sources(16, 7, 12)
    limit = 13  # the places of this network, the end's included
    texts, scores = search(copier, source, inside, MARKS, _forbidden(12), beam, power)
    for row, (text, score) in enumerate(zip(texts, scores.tolist(), strict=True)):
        alone = source[row : row + 1, : int(inside[row].sum())]
        wanted, tokens, _ = _plain(copier, alone, limit, beam, power)
        assert [*text, END] == tokens
        assert score == pytest.approx(wanted, abs=1e-4)
    # Some were dropped on the way, and the others went on.
    assert every > 1 or 0 < left[0] < 12
    assert len(set(map(len, texts))) > 2


def test_nothing_forbidden_is_written_and_no_source_disturbs_another(copier):
    source, inside = _sources(20, 7, 12)
    texts, scores = search(copier, source, inside, MARKS, _forbidden(12), beam=3)
    assert all(min(text, default=3) >= 3 for text in texts)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    again, others = search(copier, source[order], inside[order], MARKS, _forbidden(12), beam=3)
    assert [texts[row] for row in order] == again
    torch.testing.assert_close(scores[order], others, atol=1e-5, rtol=0)
