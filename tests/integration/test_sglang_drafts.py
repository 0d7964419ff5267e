"""A real SGLang server that drafts: every token is what it is without, whatever happens to request or server."""

import dataclasses

import numpy as np
import psutil
import pytest

from sestina.core.ids import RequestId
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.desk import DraftDesk
from tests.integration.sglang_bench import CONFIG, CONTEXT_TOKENS, SEED, SHAPE, STOP, start, weights, write
from tests.unit.rollout.helpers import finish, finish_in_chunks, make_engine, make_requests, outputs

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(240)]
CLOSE = 1e-4
EAGER = DraftConfig(
    source="grouped", length="fixed", toggle="always", guard=False, max_tokens=8, paths=3, min_token_prob=0.0
)
GUARDED = dataclasses.replace(EAGER, source="self", length="mba", guard=True)


def dull(seed=0):
    """Weights whose responses at low temperatures repeat themselves, and so can be drafted."""
    return {name: tensor * 0.7 for name, tensor in weights(seed).items()}


@pytest.fixture(scope="module")
def desk():
    return DraftDesk()


@pytest.fixture(scope="module")
def server(tmp_path_factory, desk):
    folder = tmp_path_factory.mktemp("sglang_drafts")
    write(folder / "model")
    engine = start(folder, dataclasses.replace(CONFIG, kv_capacity_tokens=2048), EAGER, desk)
    yield engine
    engine.close()


@pytest.fixture
def engine(server):
    server.load_weights(0, dull())
    return server


def embedded(tensors=None):
    return make_engine(SHAPE, tensors or dull(), stop_token=STOP, seed=SEED, max_context_tokens=CONTEXT_TOKENS)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for id, (tokens, logprobs) in expected.items():
        np.testing.assert_array_equal(found[id][0], tokens, err_msg=str(id))
        np.testing.assert_allclose(found[id][1], logprobs, atol=CLOSE, err_msg=str(id))


def alike(temperature=0.3, groups=4):
    return make_requests(SHAPE, groups=groups, samples=4, max_new_tokens=150, temperature=temperature)


def mixed():
    """Greedy and drawn requests in one batch."""
    return [
        dataclasses.replace(request, temperature=temperature)
        for request, temperature in zip(alike(), [1.0, 0.0, 0.3, 0.7] * 4, strict=True)
    ]


def long_response(tensors=None):
    """A response of all its tokens, which are the same again and again."""
    requests = alike()
    results = finish(embedded(tensors), requests)
    longest = max(requests, key=lambda request: len(results[request.id].tokens))
    assert len(results[longest.id].tokens) == longest.max_new_tokens
    return longest, results[longest.id]


@pytest.mark.parametrize("requests", [alike(1.0), alike(0.3), alike(0.0), mixed()], ids=["1", "0.3", "0", "mixed"])
def test_tokens_are_those_without_drafts(engine, requests):
    results = finish(engine, requests)
    assert_same(outputs(results), outputs(finish(embedded(), requests)))
    assert all(0 <= r.accepted_tokens <= r.drafted_tokens for r in results.values())
    assert all(r.accepted_tokens <= len(r.tokens) for r in results.values())


def test_what_repeats_is_accepted(engine):
    results = finish(engine, alike(0.0)).values()
    assert sum(r.accepted_tokens for r in results) > 0.5 * sum(len(r.tokens) for r in results)


def test_what_became_of_drafts_is_counted_once(engine, desk):
    """By source, by place, by finished siblings and by step; what others ask of the server does not count."""
    desk.tally.take()
    results = finish(engine, alike(0.3)).values()
    taken = desk.tally.take()
    [grouped] = taken.sources.values()
    assert grouped.drafted_tokens == sum(r.drafted_tokens for r in results) == sum(grouped.drafted_by_siblings)
    assert grouped.accepted_tokens == sum(r.accepted_tokens for r in results) == sum(grouped.accepted_by_siblings)
    assert 0 < sum(grouped.accepted) <= grouped.accepted_tokens, "places as far as a line reaches, where paths reach on"
    assert all(tried >= accepted for tried, accepted in zip(grouped.tried, grouped.accepted, strict=True))
    assert sum(grouped.drafted_by_siblings[1:]) > 0, "drafts when siblings had finished"
    assert taken.steps["on"] > 10
    assert 0 < taken.draft_s < taken.step_s
    assert not sum(desk.tally.take().steps.values())


def test_chunks_go_on_where_the_index_is(engine):
    requests = mixed()
    assert_same(finish_in_chunks([engine], requests, 23), outputs(finish(embedded(), requests)))


def test_new_weights_draft_from_nothing_of_the_old(engine):
    finish(engine, alike(0.0))
    engine.load_weights(1, dull(seed=3))
    results = finish(engine, alike())
    assert {result.version for result in results.values()} == {1}
    assert_same(outputs(results), outputs(finish(embedded(dull(seed=3)), alike())))


def test_an_aborted_chunk_leaves_what_it_has_and_is_continued(engine):
    request, whole = long_response()
    others = [dataclasses.replace(each, id=RequestId(each.id.group + 50, each.id.sample)) for each in alike(1.0, 12)]
    result = caught(engine, request, others)
    assert result.finish == "abort"
    assert 0 < len(result.tokens) < len(whole.tokens)
    rest = finish(engine, [dataclasses.replace(request, generated=result.tokens)])[request.id]
    np.testing.assert_array_equal(np.concatenate([result.tokens, rest.tokens]), whole.tokens)


def caught(engine, request, others):
    """Abort a request once it has begun; on a busy machine it may end within one step, and is then asked for again."""
    for _ in range(5):
        for each in [request, *others]:
            engine.submit(each)
        results = {}
        while request.id not in results and engine._flights[request.id].started_s is None:
            results |= {result.id: result for result in engine.step()}
        if request.id not in results:
            engine.abort([request.id])
        results |= finish(engine, [])
        if results[request.id].finish == "abort":
            break
    return results[request.id]


def test_retracted_requests_go_on(engine):
    """Their keys and values are computed anew, and the index goes on where it was."""
    requests = alike(0.3, 12)
    for request in requests:
        engine.submit(request)
    client, results = engine._keeper.life.client, {}
    for _ in range(3):
        results |= {result.id: result for result in engine.step()}
        engine._loop.run_until_complete(client.post("/pause_generation", {"mode": "retract"}, 30))
        engine._loop.run_until_complete(client.post("/continue_generation", {}, 30))
    results |= finish(engine, [])
    assert sum(result.preemptions for result in results.values()) > 0
    assert_same(outputs(results), outputs(finish(embedded(), requests)))


def test_responses_end_where_they_are_told(engine):
    lengths = (1, 7, 40, 150, 151)
    requests = [dataclasses.replace(request, stop_at=lengths[n % 5]) for n, request in enumerate(alike())]
    results = finish(engine, requests)
    assert [len(results[request.id].tokens) for request in requests] == [min(r.stop_at, 150) for r in requests]
    assert_same(outputs(results), outputs(finish(embedded(), requests)))


def test_a_lost_server_is_followed_by_one_that_drafts_and_nothing_is_lost_or_doubled(engine):
    """The next one drafts from each response alone, under a guard: one of that kind without one more start."""
    keeper = engine._keeper
    drafts = dataclasses.replace(keeper._setup.drafts, config=GUARDED)
    keeper._setup = dataclasses.replace(keeper._setup, drafts=drafts)
    requests = alike(0.3, 12)
    for request in requests:
        engine.submit(request)
    servers, results = [psutil.Process(keeper.life.process.pid)], {}
    while not engine.idle:
        for result in engine.step():
            assert result.id not in results
            results[result.id] = result
        if len(results) >= 3 and servers:
            servers.pop().kill()
    assert engine.load().restarts == 1
    assert_same(outputs(results), outputs(finish(embedded(), requests)))
    engine.load_weights(1, dull(seed=3))
    assert_same(finish_in_chunks([engine], mixed(), 40), outputs(finish(embedded(dull(seed=3)), mixed())))
