"""The fast kernel makes the same decisions as the paper's algorithm written out plainly."""

import pytest
import torch
from benchmarks.algorithm1 import energy, step

from maskov import DelayedAcceptance, Metropolis, Norm, Raw, Sweep
from maskov.models.scorer import Scorer
from maskov.moves import Site
from maskov.random import CounterRng, Purpose
from small import epoch, random_state, tiny_bert


@pytest.mark.parametrize("kind", ["raw", "norm"])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_same_decisions_step_by_step_under_the_same_numbers(kind, temperature):
    model = tiny_bert("red green blue white black")
    engine, draws = Scorer(model), CounterRng(11)
    # Early tests draw a number each; the algorithm has one test.
    kernel = Metropolis(
        Raw() if kind == "raw" else Norm(), Site(positions=Sweep()), temperature,
        DelayedAcceptance(0),
    )  # fmt: skip
    state = kernel.init(random_state(model, count=3, length=6), engine)
    before, after = model.tokenizer.cls_token_id, model.tokenizer.sep_token_id
    plain = [[before, *tokens, after] for tokens in state.tokens.tolist()]
    accepted_novel = 0
    for _ in range(3):
        for old, after, info in epoch(kernel, state, engine, draws):
            state = after
            place = info.proposal.masked.long().argmax(1)
            numbers = [
                draws.uniform(old.chain, old.step, purpose, index).tolist()
                for purpose, index in ((Purpose.TOKEN, place), (Purpose.ACCEPT, None))
            ]
            for chain in range(len(plain)):
                position = int(place[chain])
                current = plain[chain]
                plain[chain], token, accepted = step(
                    model.network, current, position, model.mask_id, model.forbidden, kind,
                    temperature, numbers[0][chain], numbers[1][chain],
                )  # fmt: skip
                assert int(info.proposal.tokens[chain, position]) == token
                assert bool(info.accepted[chain]) == accepted
                accepted_novel += accepted and token != current[position + 1]
            assert [row[1:-1] for row in plain] == state.tokens.tolist()
    # The comparison means something only if chains really moved and were really turned down.
    assert 0 < accepted_novel < 3 * 3 * 6
    for chain, framed in enumerate(plain):
        expected = energy(model.network, framed, model.mask_id, kind)
        assert float(state.energy[chain]) == pytest.approx(expected, abs=1e-9)


def test_a_block_uses_one_context_for_both_directions():
    model = tiny_bert("red green blue white black")
    engine, draws = Scorer(model), CounterRng(3)
    kernel = Metropolis(Norm(), Site(positions=Sweep(block=3)))
    state = kernel.init(random_state(model, count=4, length=7), engine)
    cls, sep = model.tokenizer.cls_token_id, model.tokenizer.sep_token_id
    for old, _, info in epoch(kernel, state, engine, draws):
        for row, chain in enumerate(info.proposal.rows.tolist()):
            places = info.proposal.masked[row].nonzero().flatten().tolist()
            ids = [cls, *old.tokens[chain].tolist(), sep]
            for place in places:
                ids[place + 1] = model.mask_id
            scores = model.network(input_ids=torch.tensor([ids])).logits[0, 1:-1]
            log_q = scores.masked_fill(model.forbidden, -torch.inf).log_softmax(1)
            forward = sum(float(log_q[p, info.proposal.tokens[row, p]]) for p in places)
            reverse = sum(float(log_q[p, old.tokens[chain, p]]) for p in places)
            assert float(info.proposal.log_q_forward[row]) == pytest.approx(forward, abs=1e-9)
            assert float(info.proposal.log_q_reverse[row]) == pytest.approx(reverse, abs=1e-9)
        break
