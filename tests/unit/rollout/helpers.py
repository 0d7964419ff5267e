"""Drive an engine to the end of a list of requests, whole or in chunks."""

import dataclasses

import numpy as np

from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest
from sestina.rollout.config import TorchEngineConfig
from sestina.rollout.torch_engine import TorchEngine

NOTHING = np.zeros(0, np.int32)


def make_engine(
    shape,
    weights=None,
    *,
    stop_token=1,
    seed=5,
    max_context_tokens=256,
    speculator=None,
    drafter=None,
    cost=None,
    kv_pool=None,
    interruption="refuse",
    common=None,
    on_step=None,
    **changes,
):
    config = TorchEngineConfig(
        kind="torch",
        device="cpu",
        dtype="float32",
        kv_capacity_tokens=4096,
        max_running=16,
        max_step_tokens=64,
    )
    engine = TorchEngine(
        dataclasses.replace(config, **changes),
        shape,
        max_context_tokens=max_context_tokens,
        seed=seed,
        stop_token=stop_token,
        speculator=speculator,
        drafter=drafter,
        kv_pool=kv_pool,
        interruption=interruption,
        cost=cost,
        common=common,
        on_step=on_step,
    )
    if weights is not None:
        engine.load_weights(0, weights)
    return engine


def make_requests(shape, *, groups=6, samples=3, max_new_tokens=60, temperature=1.0):
    rng = np.random.default_rng(3)
    requests = []
    for group in range(groups):
        prompt = rng.integers(2, shape.vocab_size, rng.integers(1, 70)).astype(np.int32)
        requests += [
            ChunkRequest(
                id=RequestId(group, sample),
                prompt=prompt,
                generated=NOTHING,
                max_tokens=max_new_tokens,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
            )
            for sample in range(samples)
        ]
    return requests


def finish(engine, requests):
    for request in requests:
        engine.submit(request)
    results = {}
    while not engine.idle:
        for result in engine.step():
            assert result.id not in results
            results[result.id] = result
    return results


def finish_in_chunks(engines, requests, chunk_tokens):
    """Every chunk on another engine; returns (tokens, logprobs) per request."""
    open_requests = {r.id: r for r in requests}
    logprobs = {r.id: np.zeros(0, np.float32) for r in requests}
    turn, done = 0, {}
    while open_requests:
        engine = engines[turn % len(engines)]
        turn += 1
        chunks = [dataclasses.replace(r, max_tokens=chunk_tokens) for r in open_requests.values()]
        for result in finish(engine, chunks).values():
            request = open_requests[result.id]
            tokens = np.concatenate([request.generated, result.tokens])
            logprobs[result.id] = np.concatenate([logprobs[result.id], result.logprobs])
            open_requests[result.id] = dataclasses.replace(request, generated=tokens)
            if result.finish != "chunk":
                done[result.id] = (tokens, logprobs[result.id])
                del open_requests[result.id]
    return done


def same(a, b):
    return a.keys() == b.keys() and all(
        np.array_equal(a[k][0], b[k][0]) and np.array_equal(a[k][1], b[k][1]) for k in a
    )


def outputs(results):
    return {k: (r.tokens, r.logprobs) for k, r in results.items()}
