import dataclasses

import numpy as np
import pytest
import torch

from sestina.core.errors import EngineError
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.suffix import SuffixSpeculator
from tests.unit.rollout.helpers import finish, finish_in_chunks, make_engine, make_requests, outputs, same

STOP = 1
DRAFT = DraftConfig(
    source="grouped", length="fixed", toggle="always", guard=False, max_tokens=6, paths=1, min_token_prob=0.0
)


def recorded(requests, results):
    return [dataclasses.replace(r, stop_at=length_of(r, results[r.id])) for r in requests]


def length_of(request, result):
    return len(result.tokens) if result.finish == "stop" else request.max_new_tokens + 1


def forced(shape, lengths):
    requests = make_requests(shape, samples=3, max_new_tokens=90)
    return [dataclasses.replace(r, stop_at=lengths[i % len(lengths)]) for i, r in enumerate(requests)]


def test_a_replay_of_what_was_drawn_is_the_same_bit_for_bit(shape, weights):
    requests = make_requests(shape)
    drawn = finish(make_engine(shape, weights), requests)
    again = finish(make_engine(shape, weights), recorded(requests, drawn))
    assert same(outputs(drawn), outputs(again))
    assert {r.finish for r in again.values()} == {"stop", "length"}
    assert all(again[id].finish == result.finish for id, result in drawn.items())


def test_responses_end_where_they_are_told_and_hold_no_end_before(shape, weights):
    requests = forced(shape, (1, 7, 16, 40, 90, 91))
    results = finish(make_engine(shape, weights), requests)
    for request in requests:
        tokens, finish_ = results[request.id].tokens, results[request.id].finish
        assert len(tokens) == min(request.stop_at, 90)
        assert finish_ == ("length" if request.stop_at == 91 else "stop")
        assert (tokens[-1] == STOP) == (finish_ == "stop")
        assert STOP not in tokens[:-1]
    natural = finish(make_engine(shape, weights), make_requests(shape, max_new_tokens=90))
    assert any(len(natural[r.id].tokens) < len(results[r.id].tokens) for r in requests), "nothing was held back"


def test_chunks_preemption_and_drafts_change_nothing(shape, weights):
    requests = forced(shape, (3, 25, 64, 91))
    whole = outputs(finish(make_engine(shape, weights), requests))
    assert same(whole, finish_in_chunks([make_engine(shape, weights) for _ in range(3)], requests, 7))
    crowded = finish(make_engine(shape, weights, kv_capacity_tokens=272), requests)
    assert sum(r.preemptions for r in crowded.values()) > 0
    assert same(whole, outputs(crowded))
    speculator = SuffixSpeculator(DRAFT, vocab_size=shape.vocab_size, num_slots=16)
    drafted = finish(make_engine(shape, weights, speculator=speculator), requests)
    assert sum(r.accepted_tokens for r in drafted.values()) > 0
    assert same(whole, outputs(drafted))


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_logprobs_are_those_of_the_model(shape, weights, temperature):
    """Told the same tokens one by one, an engine that is free to end gives each the same logprob."""
    requests = [dataclasses.replace(r, temperature=temperature) for r in forced(shape, (12, 30))]
    results = finish(make_engine(shape, weights), requests)
    engine = make_engine(shape, weights)
    inputs, logits = [], []
    forward = engine._model.forward

    def watched(step):
        found = forward(step)
        inputs.append(step.sampled_positions.numpy().copy())
        logits.append(found.clone())
        return found

    engine._model.forward = watched
    request = next(r for r in requests if r.stop_at == 30)
    result = finish(engine, [request])[request.id]
    scores = torch.cat(logits).double() / (temperature or 1.0)
    expected = torch.log_softmax(scores, -1).gather(-1, torch.from_numpy(result.tokens).long()[:, None])[:, 0]
    np.testing.assert_allclose(results[request.id].logprobs, expected.numpy(), atol=1e-5)


def test_an_end_that_has_passed_is_refused(shape, weights):
    request = dataclasses.replace(forced(shape, (5,))[0], generated=np.full(5, 7, np.int32))
    with pytest.raises(EngineError, match=r"g0/s0: its end is given as token 5, of which it has 5"):
        make_engine(shape, weights).submit(request)
