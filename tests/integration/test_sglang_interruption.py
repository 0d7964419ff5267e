"""New weights while a real SGLang server has responses under way: what each token is of, and over which cache."""

import dataclasses
import itertools
import time

import numpy as np
import pytest

from sestina.core.errors import EngineError
from sestina.core.ids import RequestId
from sestina.rollout.speculation.config import DraftConfig
from tests.integration.sglang_bench import CONFIG, CONTEXT_TOKENS, SEED, SHAPE, STOP, start, weights, write
from tests.unit.rollout.helpers import finish, make_engine, make_requests

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(240)]
CLOSE = 1e-4
NEW_TOKENS = 180
VERSIONS = [weights(seed) for seed in (0, 3, 4)]
DRAFT = DraftConfig(
    source="grouped", length="fixed", toggle="always", guard=False, max_tokens=4, paths=2, min_token_prob=0.0
)


@pytest.fixture(scope="module", params=[None, DRAFT], ids=["plain", "drafting"])
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sglang")
    write(folder / "model")
    engine = start(folder, dataclasses.replace(CONFIG, max_running=16), request.param)
    yield engine
    engine.close()


@pytest.fixture
def engine(server, monkeypatch):
    server.load_weights(0, VERSIONS[0])
    monkeypatch.setattr(server, "_interruption", "recompute")
    return server


def embedded(version, **changes):
    return make_engine(
        SHAPE, VERSIONS[version], stop_token=STOP, seed=SEED, max_context_tokens=CONTEXT_TOKENS, **changes
    )


def many(groups=8):
    """More than run at once, so that some wait when the weights come; none ends before its limit."""
    requests = make_requests(SHAPE, groups=groups, max_new_tokens=NEW_TOKENS)
    return [dataclasses.replace(request, stop_at=NEW_TOKENS + 1) for request in requests]


def interrupted(engine, requests):
    """Give the server version 1, then 2, when some responses are under way; returns the results."""
    for request in requests:
        engine.submit(request)
    results = {}
    for version in (1, 2):
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < 0.15 or not any(f.started_s for f in engine._flights.values()):
            results |= {result.id: result for result in engine.step()}
        assert not engine.idle
        engine.load_weights(version, VERSIONS[version])
    while not engine.idle:
        for result in engine.step():
            assert result.id not in results
            results[result.id] = result
    assert all(len(result.tokens) == len(result.logprobs) == NEW_TOKENS for result in results.values())
    return results


def mixed(results):
    return [id for id, result in results.items() if len({span.version for span in result.spans}) > 1]


def redrawn(version, request, known, count):
    """What an embedded engine, which has never had other weights, makes of the tokens behind `known`."""
    part = dataclasses.replace(request, generated=known, max_tokens=count)
    return finish(embedded(version), [part])[request.id]


def test_every_span_is_of_the_version_that_it_names(engine):
    requests = many()
    results = interrupted(engine, requests)
    assert len(mixed(results)) > 2
    for request in requests:
        result, at = results[request.id], 0
        for span in result.spans:
            again = redrawn(span.version, request, result.tokens[:at], span.num_tokens)
            np.testing.assert_array_equal(again.tokens, result.tokens[at : at + span.num_tokens])
            np.testing.assert_allclose(again.logprobs, result.logprobs[at : at + span.num_tokens], atol=CLOSE)
            assert not span.kept_kv
            at += span.num_tokens
    assert sum(result.preemptions for result in results.values()) == 0


def test_no_span_is_a_token_too_long_or_too_short(engine):
    """On both sides of a change the other version gives another token, or another logprob."""
    requests = {request.id: request for request in many(4)}
    results = interrupted(engine, list(requests.values()))
    for id in mixed(results):
        result, at = results[id], 0
        for old, new in itertools.pairwise(result.spans):
            at += old.num_tokens
            for version, place in ((new.version, at - 1), (old.version, at)):
                other = redrawn(version, requests[id], result.tokens[:place], 1)
                same = other.tokens[0] == result.tokens[place]
                assert not same or abs(other.logprobs[0] - result.logprobs[place]) > CLOSE


def kept_in_place(request, result):
    """What the embedded engine makes of a response that is interrupted at the same tokens, keys and values kept."""
    first = result.spans[0].version
    engine = embedded(first, interruption="keep_kv")
    engine.load_weights(first, VERSIONS[first])
    engine.submit(request)
    ends = np.cumsum([span.num_tokens for span in result.spans])[:-1].tolist()
    for end, span in zip(ends, result.spans[1:], strict=True):
        while engine._batcher.slots.length[0] < len(request.prompt) + end:
            engine.step()
        engine.load_weights(span.version, VERSIONS[span.version])
    return finish(engine, [])[request.id]


def test_kept_keys_and_values_are_those_of_the_embedded_engine_and_marked(engine, monkeypatch):
    monkeypatch.setattr(engine, "_interruption", "keep_kv")
    requests = many()
    results = interrupted(engine, requests)
    assert len(mixed(results)) > 2
    for request in requests:
        result = results[request.id]
        first, *rest = result.spans
        assert not first.kept_kv, "one that waited finds nothing of the old weights"
        assert all(span.kept_kv for span in rest)
        again = kept_in_place(request, result)
        assert again.spans == result.spans
        np.testing.assert_array_equal(again.tokens, result.tokens)
        np.testing.assert_allclose(again.logprobs, result.logprobs, atol=CLOSE)


def test_what_is_asked_after_kept_responses_finds_no_cache_of_theirs(engine, monkeypatch):
    monkeypatch.setattr(engine, "_interruption", "keep_kv")
    requests = many(2)
    interrupted(engine, requests)
    again = [dataclasses.replace(request, id=RequestId(90 + n, 0)) for n, request in enumerate(requests[::3])]
    results = finish(engine, again)
    assert {result.cached_tokens for result in results.values()} == {0}
    expected = finish(embedded(2), again)
    for id, result in results.items():
        np.testing.assert_array_equal(result.tokens, expected[id].tokens)


def test_an_aborted_chunk_is_of_the_latest_weights(engine):
    request, *others = many()
    for each in (request, *others):
        engine.submit(each)
    while engine._flights[request.id].started_s is None:
        engine.step()
    engine.load_weights(1, VERSIONS[1])
    engine.abort([request.id])
    result = finish(engine, [])[request.id]
    assert (result.finish, result.version) == ("abort", 1)
    assert len(result.tokens) == sum(span.num_tokens for span in result.spans)
    assert 0 < len(result.tokens) < NEW_TOKENS
    first = result.spans[0].num_tokens
    whole = redrawn(0, request, request.generated, first)
    np.testing.assert_array_equal(result.tokens[:first], whole.tokens)


def test_an_engine_that_is_not_built_for_it_refuses(engine, monkeypatch):
    monkeypatch.setattr(engine, "_interruption", "refuse")
    engine.submit(many(1)[0])
    with pytest.raises(EngineError, match="weights of version 1 arrived with 1 chunks in flight"):
        engine.load_weights(1, VERSIONS[1])
    assert finish(engine, [])


def test_weights_come_by_disk_to_responses_under_way(engine, monkeypatch):
    monkeypatch.setattr(engine._keeper, "_refused", True)
    requests = {request.id: request for request in many(4)}
    results = interrupted(engine, list(requests.values()))
    assert mixed(results)
    for id in mixed(results):
        old, new, *_ = results[id].spans
        at = old.num_tokens
        again = redrawn(new.version, requests[id], results[id].tokens[:at], new.num_tokens)
        np.testing.assert_array_equal(again.tokens, results[id].tokens[at : at + new.num_tokens])
