"""A real SGLang server behind the Engine Protocol: the same tokens as the embedded engine, whatever happens to it."""

import dataclasses
import os
import sys
import time
from pathlib import Path
from statistics import NormalDist

import numpy as np
import psutil
import pytest
import torch
from transformers import Qwen2ForCausalLM

from sestina.core.errors import EngineError
from sestina.core.ids import RequestId
from tests.integration.sglang_bench import CONFIG, CONTEXT_TOKENS, SEED, SHAPE, STOP, start, weights, write
from tests.unit.rollout.helpers import (
    finish,
    finish_in_chunks,
    make_engine,
    make_requests,
    outputs,
)

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(240)]
CLOSE = 1e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("sglang")
    write(path / "model")
    return path


@pytest.fixture(scope="module")
def server(folder):
    engine = start(folder)
    yield engine
    engine.close()


@pytest.fixture
def engine(server):
    server.load_weights(0, weights())
    return server


def embedded(version_weights=None):
    return make_engine(
        SHAPE, version_weights or weights(), stop_token=STOP, seed=SEED, max_context_tokens=CONTEXT_TOKENS
    )


def assert_same(found, expected):
    """Equal tokens, logprobs as close as two orders of floating-point sums are."""
    assert found.keys() == expected.keys()
    for id, (tokens, logprobs) in expected.items():
        np.testing.assert_array_equal(found[id][0], tokens, err_msg=str(id))
        np.testing.assert_allclose(found[id][1], logprobs, atol=CLOSE, err_msg=str(id))


def long_response():
    """A request whose response takes a second or so, and what the embedded engine makes of it."""
    requests = make_requests(SHAPE, max_new_tokens=180)
    results = finish(embedded(), requests)
    longest = max(requests, key=lambda request: len(results[request.id].tokens))
    assert len(results[longest.id].tokens) == 180
    return longest, results[longest.id]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_tokens_are_those_of_the_embedded_engine(engine, temperature):
    requests = make_requests(SHAPE, temperature=temperature)
    assert_same(outputs(finish(engine, requests)), outputs(finish(embedded(), requests)))


def test_greedy_and_drawn_requests_do_not_disturb_each_other(engine):
    """As where a run evaluates while training responses are under way."""
    requests = [dataclasses.replace(r, temperature=(0.0, 0.7, 1.0)[r.id.sample]) for r in make_requests(SHAPE)]
    assert_same(outputs(finish(engine, requests)), outputs(finish(embedded(), requests)))


@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_responses_end_where_they_are_told(engine, temperature):
    lengths = (1, 7, 16, 40, 90, 91)
    requests = [
        dataclasses.replace(request, stop_at=lengths[i % 6], temperature=temperature)
        for i, request in enumerate(make_requests(SHAPE, max_new_tokens=90))
    ]
    results = finish(engine, requests)
    assert [len(results[request.id].tokens) for request in requests] == [min(r.stop_at, 90) for r in requests]
    assert_same(outputs(results), outputs(finish(embedded(), requests)))
    assert_same(finish_in_chunks([engine], requests, 23), outputs(results))


def test_greedy_tokens_are_those_of_transformers(engine, folder):
    requests = make_requests(SHAPE, groups=4, samples=1, temperature=0.0)
    model = Qwen2ForCausalLM.from_pretrained(folder / "model")
    for id, result in finish(engine, requests).items():
        request = next(each for each in requests if each.id == id)
        whole = torch.as_tensor(np.concatenate([request.prompt, result.tokens]), dtype=torch.long)
        with torch.no_grad():
            logprobs = model(whole[None]).logits[0, len(request.prompt) - 1 : -1].log_softmax(-1)
        np.testing.assert_array_equal(result.tokens, logprobs.argmax(-1))
        np.testing.assert_allclose(result.logprobs, logprobs.max(-1).values, atol=CLOSE)


def test_chunks_continue_where_the_last_one_ended_and_find_its_cache(engine):
    requests = make_requests(SHAPE, groups=4)
    assert_same(finish_in_chunks([engine], requests, 16), outputs(finish(embedded(), requests)))
    request = dataclasses.replace(requests[0], id=RequestId(99, 0), max_tokens=32)
    first = finish(engine, [request])[request.id]
    assert first.finish == "chunk"
    second = finish(engine, [dataclasses.replace(request, generated=first.tokens)])[request.id]
    known = len(request.prompt) + len(first.tokens)
    assert known - second.cached_tokens <= CONFIG.page_tokens
    assert second.prefilled_tokens == known - second.cached_tokens


def test_a_server_says_that_a_prompt_lies_there_once(engine):
    first, *others = [
        dataclasses.replace(r, prompt=np.arange(2, 52, dtype=np.int32))
        for r in make_requests(SHAPE, groups=1, samples=4, max_new_tokens=180)
    ]
    whole = 15 * 16  # 50 tokens of the prompt and 180 of the response, in pages
    finish(engine, [first])
    before = engine.load().kv
    assert before.peak_tokens == 0
    for request in others:
        engine.submit(request)
    assert engine.load().kv.peak_tokens == 3 * whole
    said, ended = set(), 0
    while not engine.idle:
        ended += len(engine.step())
        said.add(engine.load().kv.peak_tokens - (3 - ended) * whole)
    assert min(said) == -2 * 48, "all have found what the first had computed"
    assert engine.load().kv == dataclasses.replace(before, submitted=before.submitted + 3)


def test_an_aborted_chunk_leaves_what_it_has(engine):
    """One of many, so that the server takes seconds over them, however busy this machine is."""
    request, whole = long_response()
    others = make_requests(SHAPE, groups=30, max_new_tokens=180)
    for each in [request, *(other for other in others if other.id != request.id)]:
        engine.submit(each)
    before_s = time.monotonic()
    while time.monotonic() - before_s < 0.5:
        engine.step()
    engine.abort([request.id, RequestId(77, 7)])
    result = finish(engine, [])[request.id]
    assert result.finish == "abort"
    assert 0 < len(result.tokens) < len(whole.tokens)
    np.testing.assert_array_equal(result.tokens, whole.tokens[: len(result.tokens)])


def test_an_abort_at_once_ends_that_chunk_alone(engine):
    requests = make_requests(SHAPE, groups=2)
    for request in requests:
        engine.submit(request)
    engine.abort([requests[0].id])
    results = finish(engine, [])
    assert (results[requests[0].id].finish, len(results[requests[0].id].tokens)) == ("abort", 0)
    expected = finish(embedded(), requests[1:])
    assert_same({id: output for id, output in outputs(results).items() if id in expected}, outputs(expected))


def test_a_token_is_drawn_with_its_probability(engine, folder):
    """20,000 first tokens of one prompt against the model's own distribution."""
    draws = 20_000
    [request] = make_requests(SHAPE, groups=1, samples=1, max_new_tokens=1)
    counts = np.zeros(SHAPE.vocab_size)
    for wave in range(0, draws, 500):
        ids = [RequestId(1000 + number, 0) for number in range(wave, wave + 500)]
        results = finish(engine, [dataclasses.replace(request, id=id) for id in ids])
        for result in results.values():
            counts[result.tokens[0]] += 1
    with torch.no_grad():
        prompt = torch.as_tensor(request.prompt[None], dtype=torch.long)
        logits = Qwen2ForCausalLM.from_pretrained(folder / "model").double()(prompt).logits[0, -1]
    expected = draws * torch.softmax(logits, -1).numpy()
    rare = expected < np.quantile(expected, 0.1)  # together, so that each class expects enough
    found, wanted = (np.append(values[~rare], values[rare].sum()) for values in (counts, expected))
    assert wanted.min() > 5
    assert chi_square_p(((found - wanted) ** 2 / wanted).sum(), len(wanted) - 1) > 0.01


def chi_square_p(statistic, freedom):
    """Probability of a larger statistic, by Wilson and Hilferty's cube root (1931)."""
    spread = 2 / (9 * freedom)
    return 1 - NormalDist().cdf(((statistic / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5)


def test_new_weights_change_the_tokens_and_no_old_cache_is_found(engine):
    requests = make_requests(SHAPE, groups=3, samples=1, temperature=0.0)
    before = outputs(finish(engine, requests))
    engine.load_weights(1, weights(seed=3))
    results = finish(engine, requests)
    assert {result.cached_tokens for result in results.values()} == {0}
    assert {result.version for result in results.values()} == {1}
    assert_same(outputs(results), outputs(finish(embedded(weights(seed=3)), requests)))
    assert not any(np.array_equal(before[id][0], results[id].tokens) for id in before)


def test_what_can_never_run_is_refused(engine):
    [request] = make_requests(SHAPE, groups=1, samples=1)
    with pytest.raises(EngineError, match="exceed the engine's context"):
        engine.submit(dataclasses.replace(request, max_tokens=CONTEXT_TOKENS, max_new_tokens=CONTEXT_TOKENS))
    engine.submit(request)
    with pytest.raises(EngineError, match="is already in the engine"):
        engine.submit(request)
    with pytest.raises(EngineError, match="arrived with 1 chunks in flight"):
        engine.load_weights(1, weights())
    assert finish(engine, [])


def test_a_refused_update_is_an_error_and_no_wait(engine):
    """SGLang takes no bucket outside an update; the broadcast that belongs to the call must not wait for it.

    The last test of this server: its group now counts one broadcast less than this side.
    """
    tensors = dict(weights())
    began_s = time.monotonic()
    with pytest.raises(EngineError, match="must run between begin_weight_update"):
        engine._loop.run_until_complete(
            engine._keeper.life.relay._send_bucket("a bucket", list(tensors)[:2], tensors, {})
        )
    assert time.monotonic() - began_s < CONFIG.start_s / 2


def test_a_lost_server_is_started_again_and_nothing_is_lost_or_doubled(folder, tmp_path):
    """Killed first; then its scheduler is stopped, which only silence tells; the third loss is one too many."""
    os.symlink(folder / "model", tmp_path / "model")
    config = dataclasses.replace(CONFIG, max_restarts=2, silence_s=5)
    engine = start(tmp_path, config)
    everyone = family_of(engine)
    try:
        with pytest.raises(EngineError, match="no verified weights"):
            engine.submit(make_requests(SHAPE, groups=1, samples=1)[0])
        engine.load_weights(4, weights())
        requests = make_requests(SHAPE, max_new_tokens=150)
        expected = outputs(finish(embedded(), requests))
        assert_same(outputs(disturbed(engine, requests, lambda family: family[0].kill())), expected)
        assert engine.load().restarts == 1
        assert_same(outputs(disturbed(engine, requests, lambda family: family[-1].suspend())), expected)
        assert engine.load().restarts == 2
        everyone += family_of(engine)
        with pytest.raises(EngineError, match=r"lost 3 times, rollout.engine.max_restarts is 2: (.|\n)*sglang.log"):
            disturbed(engine, requests, lambda family: family[0].kill())
    finally:
        engine.close()
    _, alive = psutil.wait_procs(everyone, timeout=10)
    assert not alive


def test_a_server_that_takes_no_broadcast_gets_its_weights_by_disk(folder, tmp_path):
    os.symlink(folder / "model", tmp_path / "model")
    engine = start(tmp_path)
    try:
        engine._keeper.life.relay._name = "a group that the server does not know"
        requests = make_requests(SHAPE, groups=3)
        for version in (1, 2):
            engine.load_weights(version, weights(seed=version))
            results = finish(engine, requests)
            assert {result.version for result in results.values()} == {version}
            assert_same(outputs(results), outputs(finish(embedded(weights(seed=version)), requests)))
        assert engine.load().restarts == 1
    finally:
        engine.close()


def family_of(engine):
    first = psutil.Process(engine._keeper.life.process.pid)
    schedulers = [child for child in first.children(recursive=True) if "scheduler" in child.name()]
    return [first, *schedulers]


def disturbed(engine, requests, disturb):
    for request in requests:
        engine.submit(request)
    family, results = family_of(engine), {}
    while not engine.idle:
        for result in engine.step():
            assert result.id not in results
            results[result.id] = result
        if len(results) >= 3 and family:
            disturb(family)
            family = []
    return results


def test_a_python_without_sglang_is_named(folder, tmp_path):
    os.symlink(folder / "model", tmp_path / "model")
    nowhere = dataclasses.replace(CONFIG, python=tmp_path / "python")
    with pytest.raises(EngineError, match="SGLang's Python cannot be run: No such file or directory"):
        start(tmp_path, nowhere)
    plain = dataclasses.replace(CONFIG, python=Path(sys.executable))
    with pytest.raises(EngineError, match=r"SGLang ended with exit code 2(.|\n)*has no SGLang"):
        start(tmp_path, plain)


def test_a_server_that_is_never_ready_is_given_up(folder, tmp_path):
    os.symlink(folder / "model", tmp_path / "model")
    with pytest.raises(
        EngineError, match=r"waited 1 s \(rollout.engine.start_s\) for SGLang to be ready; the end of .*sglang.log"
    ):
        start(tmp_path, dataclasses.replace(CONFIG, start_s=1))
