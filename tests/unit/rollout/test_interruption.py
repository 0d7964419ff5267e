"""New weights in the middle of responses: every token is drawn by the version that its span names, and none is lost."""

import dataclasses
import itertools

import numpy as np
import pytest

from sestina.core.errors import EngineError
from sestina.core.records import KvUse, VersionSpan
from sestina.rollout.speculation.suffix import SuffixSpeculator
from sestina.transport.codec import decode, encode
from sestina.transport.messages import ChunkEnded
from tests.conftest import lively_weights
from tests.unit.rollout.helpers import finish, make_engine, make_requests, outputs, same
from tests.unit.rollout.test_suffix_speculator import EAGER


@pytest.fixture
def versions(shape):
    return [lively_weights(shape, seed=seed) for seed in range(3)]


def interrupted(shape, versions, requests, *, every=13, **changes):
    """Load a version after so many steps each; returns the results."""
    engine = make_engine(shape, versions[0], stop_token=-1, **{"interruption": "recompute", **changes})
    for request in requests:
        engine.submit(request)
    results, steps = {}, 0
    while not engine.idle:
        results |= {result.id: result for result in engine.step()}
        steps += 1
        if steps % every == 0 and steps // every < len(versions) and not engine.idle:
            engine.load_weights(steps // every, versions[steps // every])
    assert engine._pool.check_integrity() is None
    assert engine.load().kv_used_tokens == 0
    return results


def redrawn(shape, versions, request, result):
    """Draw each span again, on an engine that has never had other weights."""
    tokens, logprobs = [], []
    start = 0
    for span in result.spans:
        known = np.concatenate([request.generated, result.tokens[:start]])
        again = dataclasses.replace(request, generated=known, max_tokens=max(1, span.num_tokens))
        engine = make_engine(shape, versions[span.version], stop_token=-1)
        part = finish(engine, [again])[request.id]
        tokens.append(part.tokens[: span.num_tokens])
        logprobs.append(part.logprobs[: span.num_tokens])
        start += span.num_tokens
    return np.concatenate(tokens), np.concatenate(logprobs)


@pytest.mark.parametrize(
    "changes",
    [{}, {"kv_capacity_tokens": 272}, {"max_running": 3, "max_step_tokens": 17}],
    ids=["roomy", "crowded", "few"],
)
def test_every_span_is_of_the_version_it_names_bit_for_bit(shape, versions, changes):
    requests = make_requests(shape, groups=4, samples=2, max_new_tokens=40)
    results = interrupted(shape, versions, requests, **changes)
    mixed = 0
    for request in requests:
        result = results[request.id]
        assert len(result.tokens) == len(result.logprobs) == 40
        assert sum(span.num_tokens for span in result.spans) == 40
        tokens, logprobs = redrawn(shape, versions, request, result)
        assert np.array_equal(result.tokens, tokens)
        assert np.array_equal(result.logprobs, logprobs)
        mixed += len({span.version for span in result.spans}) > 1
        assert result.version == result.spans[-1].version
        assert not any(span.kept_kv for span in result.spans)
    assert mixed > 2


def test_kept_keys_and_values_are_marked_and_the_marked_tokens_are_others(shape, versions):
    requests = make_requests(shape, groups=3, samples=1, max_new_tokens=40)
    kept = interrupted(shape, versions, requests, interruption="keep_kv")
    recomputed = interrupted(shape, versions, requests)
    for request in requests:
        first, *rest = kept[request.id].spans
        assert (first.version, first.kept_kv) == (0, False)
        assert all(span.kept_kv for span in rest)
        assert np.array_equal(
            kept[request.id].tokens[: first.num_tokens], recomputed[request.id].tokens[: first.num_tokens]
        )
    assert not same(outputs(kept), outputs(recomputed))


def test_nobody_shares_pages_that_older_weights_have_begun(shape, versions):
    request = make_requests(shape, groups=1, samples=1, max_new_tokens=60)[0]
    request = dataclasses.replace(request, prompt=np.arange(2, 8, dtype=np.int32))
    engine = make_engine(shape, versions[0], stop_token=-1, interruption="keep_kv")
    engine.submit(request)
    for _ in range(4):
        engine.step()
    engine.load_weights(1, versions[1])
    for _ in range(20):
        engine.step()
    engine.abort([request.id])
    [half] = engine.step()
    rest = dataclasses.replace(request, generated=half.tokens, max_tokens=9)
    again = finish(engine, [rest])[request.id]
    assert again.cached_tokens == 0
    assert same(
        outputs({0: again}), outputs({0: finish(make_engine(shape, versions[1], stop_token=-1), [rest])[rest.id]})
    )
    assert finish(engine, [rest])[request.id].cached_tokens > 0, "pages of the weights that are there are shared"


@pytest.mark.parametrize("interruption", ["recompute", "keep_kv"])
def test_an_interrupted_chunk_can_be_sent(shape, versions, interruption):
    requests = make_requests(shape, groups=2, samples=2, max_new_tokens=40)
    results = interrupted(shape, versions, requests, interruption=interruption).values()
    assert {span.kept_kv for result in results for span in result.spans} == {False, interruption == "keep_kv"}
    kv = KvUse(submitted=0, peak_tokens=0, capacity_tokens=0)
    sent = [ChunkEnded(instance=0, result=result, clock_s=0.0, kv=kv) for result in results]
    assert [message.result.spans for message in decode(encode(sent))] == [result.spans for result in results]


def test_preemption_ends_a_span_over_kept_keys_and_values(shape, versions):
    requests = make_requests(shape, groups=4, samples=2, max_new_tokens=40)
    results = interrupted(shape, versions, requests, interruption="keep_kv", kv_capacity_tokens=272, every=3)
    followed = [pair for result in results.values() for pair in itertools.pairwise(result.spans)]
    assert any(a.version == b.version and a.kept_kv and not b.kept_kv for a, b in followed)


def test_an_aborted_chunk_keeps_its_spans(shape, versions):
    request = make_requests(shape, groups=1, samples=1, max_new_tokens=50)[0]
    engine = make_engine(shape, versions[0], stop_token=-1, interruption="recompute", max_step_tokens=128)
    engine.submit(request)
    for _ in range(5):
        engine.step()
    engine.load_weights(1, versions[1])
    for _ in range(3):
        engine.step()
    engine.abort([request.id])
    [result] = engine.step()
    assert result.spans == (VersionSpan(version=0, num_tokens=5), VersionSpan(version=1, num_tokens=3))


def test_an_engine_that_is_not_built_for_it_refuses(shape, versions):
    engine = make_engine(shape, versions[0])
    engine.submit(make_requests(shape)[0])
    engine.step()
    with pytest.raises(EngineError, match="weights of version 1 arrived with 1 chunks in flight"):
        engine.load_weights(1, versions[1])


@pytest.mark.parametrize("paths", [1, 3])
def test_drafts_change_no_token_of_any_version(shape, versions, paths):
    """What a draft gains moves the interruption to another token, so spans are compared and not whole responses."""
    config = dataclasses.replace(EAGER, paths=paths)
    speculator = SuffixSpeculator(config, vocab_size=shape.vocab_size, num_slots=16)
    requests = make_requests(shape, groups=3, samples=3, max_new_tokens=40)
    results = interrupted(shape, versions, requests, speculator=speculator, every=7)
    assert sum(result.drafted_tokens for result in results.values()) > 0
    for request in requests:
        result = results[request.id]
        tokens, logprobs = redrawn(shape, versions, request, result)
        assert np.array_equal(result.tokens, tokens)
        assert np.array_equal(result.logprobs, logprobs)
