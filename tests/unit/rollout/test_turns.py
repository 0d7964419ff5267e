"""Responses with something observed in between: the same tokens however they are cut up, placed and drafted."""

import dataclasses

import numpy as np
import pytest

from sestina.core.errors import EngineError
from sestina.kvpool.config import LocalKvPoolConfig
from sestina.kvpool.local import LocalPool
from sestina.policies.kv_pool.cost import MoveCost
from sestina.rollout.speculation.suffix import SuffixSpeculator
from tests.unit.rollout.helpers import finish, make_engine, make_requests, same
from tests.unit.rollout.test_suffix_speculator import EAGER, SHAPE, dull_weights

TURN = 15
OBSERVED = {4: 0, 5: 3, 6: 40}
"""By the length of a response so far, modulo 7: tokens observed; others observe one."""


def observed(known):
    """What a deterministic environment answers to a text."""
    count = OBSERVED.get(len(known) % 7, 1)
    return (2 + (known.sum() + np.arange(count)) % 50).astype(np.int32)


def played(engines, requests, chunk_tokens):
    """Chunk after chunk, each on the next engine; returns tokens and logprobs by request, and how many turns ended."""
    open_requests = {request.id: request for request in requests}
    done, logprobs = {}, {request.id: [] for request in requests}
    cycle = turns = 0
    while open_requests:
        engine = engines[cycle % len(engines)]
        cycle += 1
        chunks = [dataclasses.replace(request, max_tokens=chunk_tokens) for request in open_requests.values()]
        for result in finish(engine, chunks).values():
            request = open_requests.pop(result.id)
            known = np.concatenate([request.generated, result.tokens])
            logprobs[result.id] += result.logprobs.tolist()
            if result.finish == "turn":
                assert result.tokens[-1] == TURN
                turns += 1
                known = np.concatenate([known, observed(known)])
            assert TURN not in result.tokens[:-1]
            if result.finish in ("stop", "length") or len(known) >= request.max_new_tokens:
                done[result.id] = known, np.array(logprobs[result.id])
            else:
                open_requests[result.id] = dataclasses.replace(request, generated=known)
    return done, turns


@pytest.fixture(scope="module")
def requests():
    requests = make_requests(SHAPE, groups=4, samples=3, max_new_tokens=120)
    return [dataclasses.replace(request, turn_token=TURN) for request in requests]


@pytest.fixture(scope="module")
def plain(requests):
    done, turns = played([make_engine(SHAPE, dull_weights())], requests, 120)
    assert turns > 20, "the weights seldom draw the token that ends a turn"
    return done


@pytest.mark.parametrize(("chunk", "engines"), [(120, 2), (33, 1), (16, 3), (5, 2)])
def test_chunks_and_instances_change_no_token(requests, plain, chunk, engines):
    done, _ = played([make_engine(SHAPE, dull_weights()) for _ in range(engines)], requests, chunk)
    assert same(done, plain)


@pytest.mark.parametrize(("source", "paths"), [("self", 1), ("grouped", 1), ("grouped", 3)])
def test_drafts_change_no_token(requests, plain, source, paths):
    config = dataclasses.replace(EAGER, source=source, paths=paths)
    speculator = SuffixSpeculator(config, vocab_size=SHAPE.vocab_size, num_slots=16)
    engine = make_engine(SHAPE, dull_weights(), speculator=speculator)
    done, _ = played([engine], requests, 33)
    assert same(done, plain)


def test_keys_and_values_come_along_and_only_what_was_observed_is_computed(requests, plain, tmp_path):
    config = LocalKvPoolConfig(kind="local", move="always", dram_bytes=1 << 30, ssd_bytes=0, ssd_dir=None)
    engines = [make_engine(SHAPE, dull_weights(), kv_pool=LocalPool(config, "test", shared=tmp_path)) for _ in range(2)]
    for engine in engines:
        engine._kv._cost = MoveCost(10.0)
    done, _ = played(engines, requests, 120)
    assert same(done, plain)
    prompts = sum(len(request.prompt) for request in requests)
    drawn = sum(len(logprobs) for _, logprobs in done.values())
    known = prompts + sum(len(tokens) for tokens, _ in done.values())
    computed = sum(engine.load().prefilled_tokens for engine in engines)
    assert computed <= known - drawn, "prompts and observations"
    for engine in engines:
        engine.close()


def test_a_prefix_is_found_again_where_the_turn_ended(requests):
    engine = make_engine(SHAPE, dull_weights())
    request = dataclasses.replace(requests[0], max_tokens=120)
    ended = finish(engine, [request])[request.id]
    assert ended.finish == "turn"
    known = np.concatenate([ended.tokens, observed(ended.tokens)])
    again = finish(engine, [dataclasses.replace(request, generated=known)])[request.id]
    assert again.cached_tokens == (len(request.prompt) + len(ended.tokens) - 1) // 16 * 16


def test_a_turn_that_ends_at_the_limit_ends_the_response(requests):
    engine = make_engine(SHAPE, dull_weights())
    ended = finish(engine, [requests[0]])[requests[0].id]
    short = dataclasses.replace(requests[0], max_new_tokens=len(ended.tokens), max_tokens=len(ended.tokens))
    assert finish(engine, [short])[short.id].finish == "length"


def test_a_turn_that_ends_with_its_chunk_is_a_turn(requests):
    engine = make_engine(SHAPE, dull_weights())
    ended = finish(engine, [requests[0]])[requests[0].id]
    chunk = dataclasses.replace(requests[0], max_tokens=len(ended.tokens))
    assert finish(engine, [chunk])[chunk.id].finish == "turn"


def test_turns_end_with_a_token_of_the_vocabulary(requests):
    engine = make_engine(SHAPE, dull_weights())
    with pytest.raises(EngineError, match="turns end with token 60, of a vocabulary of 60"):
        engine.submit(dataclasses.replace(requests[0], turn_token=60))
