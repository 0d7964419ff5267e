import dataclasses

import numpy as np
import pytest
import torch
from transformers import Qwen2ForCausalLM

from sestina.core.errors import EngineError, ModelError
from sestina.core.ids import RequestId
from sestina.models.weights import write_model
from sestina.rollout.pages import PAGE_TOKENS, PagePool
from tests.conftest import lively_weights, make_shape
from tests.unit.rollout.helpers import NOTHING, finish, finish_in_chunks, make_engine, make_requests, outputs, same

SHAPES = {
    "grouped-query": {},
    "one-kv-head": {"num_kv_heads": 1},
    "seven-heads-per-kv": {"num_heads": 7, "num_kv_heads": 1, "hidden_size": 112},
    "wide-heads": {"head_size": 48, "num_heads": 2, "num_kv_heads": 2},
    "untied": {"tied": False},
}


def reference_logprobs(model, result, prompt, temperature=1.0):
    ids = torch.from_numpy(np.concatenate([prompt, result.tokens])).long()[None]
    with torch.inference_mode():
        logprobs = torch.log_softmax(model(ids).logits[0, len(prompt) - 1 : -1] / temperature, -1)
    return logprobs.gather(-1, ids[0, len(prompt) :, None])[:, 0].numpy()


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES.keys())
def test_logprobs_equal_transformers(changes, tmp_path):
    shape = make_shape(**changes)
    weights = lively_weights(shape)
    write_model(tmp_path, shape, weights.items())
    model = Qwen2ForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    requests = make_requests(shape, temperature=0.7)
    results = finish(make_engine(shape, weights), requests)
    for request in requests:
        result = results[request.id]
        expected = reference_logprobs(model, result, request.prompt, 0.7)
        np.testing.assert_allclose(result.logprobs, expected, atol=1e-4)


def test_torch_kernels_agree_with_native_ones(shape, weights, monkeypatch):
    requests = make_requests(shape)
    native = finish(make_engine(shape, weights), requests)
    portable = make_engine(shape, weights, dtype="float32")
    portable._ops = portable._model._ops = _torch_ops(shape)
    for id, result in finish(portable, requests).items():
        assert np.array_equal(result.tokens, native[id].tokens)
        np.testing.assert_allclose(result.logprobs, native[id].logprobs, atol=1e-5)


def _torch_ops(shape):
    from sestina.rollout.ops_torch import TorchOps  # noqa: PLC0415

    return TorchOps(shape, max_positions=256, device=torch.device("cpu"))


def test_bfloat16_runs_and_is_close(shape, weights):
    requests = make_requests(shape, max_new_tokens=8, temperature=0.0)
    exact = finish(make_engine(shape, weights), requests)
    rough = finish(make_engine(shape, weights, dtype="bfloat16"), requests)
    first = [abs(rough[id].logprobs[0] - exact[id].logprobs[0]) for id in exact]
    assert np.median(first) < 0.1


def test_tokens_and_logprobs_do_not_depend_on_batch_chunk_engine_or_preemption(shape, weights):
    requests = make_requests(shape)
    whole = outputs(finish(make_engine(shape, weights), requests))
    assert {len(tokens) for tokens, _ in whole.values()} != {60}, "some responses should stop early"
    alone = {}
    for request in requests:
        alone |= outputs(finish(make_engine(shape, weights), [request]))
    assert same(whole, alone)
    assert same(whole, outputs(finish(make_engine(shape, weights, max_step_tokens=17), requests[::-1])))
    for chunk in (1, 7, 16, 33):
        engines = [make_engine(shape, weights) for _ in range(3)]
        assert same(whole, finish_in_chunks(engines, requests, chunk))
    crowded = finish(make_engine(shape, weights, kv_capacity_tokens=272), requests)
    assert sum(r.preemptions for r in crowded.values()) > 0
    assert same(whole, outputs(crowded))


def test_seed_group_and_sample_each_change_the_tokens(shape, weights):
    request = make_requests(shape, groups=1, samples=1, max_new_tokens=40)[0]
    texts = set()
    for seed, id in [(5, RequestId(0, 0)), (6, RequestId(0, 0)), (5, RequestId(1, 0)), (5, RequestId(0, 1))]:
        result = finish(make_engine(shape, weights, seed=seed), [dataclasses.replace(request, id=id)])[id]
        texts.add(result.tokens.tobytes())
    assert len(texts) == 4


def test_samples_of_a_group_share_their_prompt(shape, weights):
    prompt = np.arange(2, 52, dtype=np.int32)
    requests = [
        dataclasses.replace(r, prompt=prompt) for r in make_requests(shape, groups=1, samples=8, max_new_tokens=5)
    ]
    engine = make_engine(shape, weights, max_step_tokens=256)
    results = finish(engine, requests)
    assert sorted(r.cached_tokens for r in results.values()) == [0] + [48] * 7
    assert engine.load().cached_tokens == 7 * 48
    fresh = outputs(finish(make_engine(shape, weights), requests[:1]))
    assert same(fresh, {RequestId(0, 0): outputs(results)[RequestId(0, 0)]})


def test_a_chunk_resumed_on_its_engine_finds_its_cache(shape, weights):
    request = make_requests(shape, groups=1, samples=1, max_new_tokens=100)[0]
    engine = make_engine(shape, weights, stop_token=-1)
    first = finish(engine, [dataclasses.replace(request, max_tokens=50)])[request.id]
    assert first.finish == "chunk"
    second = finish(engine, [dataclasses.replace(request, generated=first.tokens, max_tokens=50)])[request.id]
    assert second.finish == "length"
    known = len(request.prompt) + 50
    assert second.cached_tokens == (known - 1) // 16 * 16
    assert second.prefilled_tokens == known - second.cached_tokens


def test_chunks_of_responses_that_have_begun_alike_find_their_cache(shape, weights):
    """The last page of a prompt that fills it is computed by each: the token after it is drawn from there."""
    prompt = np.arange(2, 34, dtype=np.int32)
    requests = [
        dataclasses.replace(r, prompt=prompt) for r in make_requests(shape, groups=1, samples=4, max_new_tokens=90)
    ]
    whole = outputs(finish(make_engine(shape, weights, stop_token=-1), requests))
    engine = make_engine(shape, weights, stop_token=-1)
    said = dict.fromkeys(whole, NOTHING)
    for start in range(0, 90, 30):
        chunks = [dataclasses.replace(r, generated=said[r.id], max_tokens=30) for r in requests]
        for id, result in finish(engine, chunks).items():
            said[id] = np.concatenate([said[id], result.tokens])
            assert result.prefilled_tokens <= PAGE_TOKENS or not start
    assert len({tokens.tobytes() for tokens in said.values()}) == 4
    assert all(np.array_equal(said[id], tokens) for id, (tokens, _) in whole.items())


def test_a_page_is_exchanged_for_one_of_the_same_bits(shape, weights, monkeypatch):
    """One response comes with half of what the others decode beside it, and computes that a few tokens at a time."""
    first, *others = make_requests(shape, groups=1, samples=3, max_new_tokens=90, temperature=0.0)
    begun = finish(make_engine(shape, weights, stop_token=-1), [dataclasses.replace(first, max_tokens=40)])[first.id]
    engine, same_bits = make_engine(shape, weights, stop_token=-1, max_step_tokens=7), []

    def exchange(copy, standing):
        same_bits.append(np.array_equal(*engine._model.read_pages([copy, standing])))
        PagePool.exchange(engine._pool, copy, standing)

    monkeypatch.setattr(engine._pool, "exchange", exchange)
    finish(engine, [dataclasses.replace(first, generated=begun.tokens), *others])
    assert len(same_bits) > 5
    assert all(same_bits)


def test_finish_reasons_and_limits(shape, weights):
    request = make_requests(shape, groups=1, samples=1, max_new_tokens=30)[0]
    run = finish(make_engine(shape, weights, stop_token=-1), [request])[request.id]
    assert (run.finish, len(run.tokens)) == ("length", 30)
    stop = int(run.tokens[10])
    stopped = finish(make_engine(shape, weights, stop_token=stop), [request])[request.id]
    first = int(np.flatnonzero(run.tokens == stop)[0])
    assert stopped.finish == "stop"
    assert np.array_equal(stopped.tokens, run.tokens[: first + 1])
    assert run.submitted_s <= run.started_s <= run.finished_s


def test_abort_returns_what_was_produced(shape, weights):
    requests = make_requests(shape, groups=4, samples=1, max_new_tokens=50)
    whole = outputs(finish(make_engine(shape, weights, stop_token=-1), requests))
    engine = make_engine(shape, weights, stop_token=-1, max_running=3)
    for request in requests:
        engine.submit(request)
    for _ in range(20):
        assert not engine.step()
    engine.abort([r.id for r in requests] + [RequestId(99, 0)])
    aborted = {r.id: r for r in engine.step()}
    assert engine.idle
    assert engine.load().kv_used_tokens == 0
    assert [len(aborted[r.id].tokens) > 0 for r in requests] == [True, True, True, False]
    for id, result in aborted.items():
        assert result.finish == "abort"
        assert np.array_equal(result.tokens, whole[id][0][: len(result.tokens)])
        assert np.array_equal(result.logprobs, whole[id][1][: len(result.tokens)])


def test_new_weights_forget_the_cache_and_change_the_version(shape, weights):
    request = make_requests(shape, groups=1, samples=1, max_new_tokens=20)[0]
    engine = make_engine(shape, weights)
    finish(engine, [request])
    other = lively_weights(shape, seed=9)
    engine.load_weights(4, other)
    again = finish(engine, [request])[request.id]
    assert (again.version, again.cached_tokens) == (4, 0)
    assert same({request.id: (again.tokens, again.logprobs)}, outputs(finish(make_engine(shape, other), [request])))


def test_refuses_to_decode_without_verified_weights(shape, weights):
    engine = make_engine(shape)
    request = make_requests(shape, groups=1, samples=1)[0]
    with pytest.raises(EngineError, match="no verified weights"):
        engine.submit(request)
    engine.load_weights(0, weights)
    incomplete = {k: v for k, v in weights.items() if k != "model.norm.weight"}
    with pytest.raises(ModelError, match="model.norm.weight is missing"):
        engine.load_weights(1, incomplete)
    with pytest.raises(EngineError, match="no verified weights"):
        engine.submit(request)


def test_refuses_new_weights_while_busy(shape, weights):
    engine = make_engine(shape, weights)
    engine.submit(make_requests(shape, groups=1, samples=1)[0])
    with pytest.raises(EngineError, match="1 chunks in flight"):
        engine.load_weights(1, weights)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": NOTHING}, "prompt of 0 tokens"),
        ({"max_tokens": 0}, "chunk of 0"),
        ({"prompt": np.array([3, 61], np.int32)}, "outside the vocabulary of 61"),
        ({"prompt": np.array([-1], np.int32)}, "outside the vocabulary"),
        ({"max_tokens": 300, "max_new_tokens": 300}, "exceed the engine's context of 256"),
        ({"max_tokens": 200, "max_new_tokens": 200}, "exceed the KV capacity of 128"),
    ],
)
def test_bad_requests_are_named(shape, weights, changes, message):
    engine = make_engine(shape, weights, kv_capacity_tokens=128)
    request = make_requests(shape, groups=1, samples=1)[0]
    with pytest.raises(EngineError, match=message):
        engine.submit(dataclasses.replace(request, **changes))


def test_an_id_cannot_be_in_the_engine_twice(shape, weights):
    engine = make_engine(shape, weights)
    request = make_requests(shape, groups=1, samples=1)[0]
    engine.submit(request)
    with pytest.raises(EngineError, match="already in the engine"):
        engine.submit(request)
