"""What chunks cost on an SGLang server: responses in chunks of 64 tokens against the same responses whole.

One server, both ways in turns; what a chunk adds is a call, and the tokens of its last page computed again. A call
takes the server's CPU the same time whatever the model, so how much it matters is taken with two models.
"""

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from sestina.bench.asked import at_least, stated
from sestina.bench.speculation.race import NO_TOKEN
from sestina.bench.speculation.subjects import BUILT_IN, CHAIN, Subject
from sestina.bench.turns import Say
from sestina.core.errors import UserError
from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest
from sestina.models.shape import read_shape
from sestina.models.weights import read_weights
from sestina.rollout.config import SGLangEngineConfig
from sestina.rollout.sglang.engine import SGLangEngine
from sestina.telemetry.measurements import Figure

PYTHON = Path(".venv-sglang/bin/python")
REQUESTS, PROMPT_TOKENS, RESPONSE_TOKENS, CHUNK_TOKENS = 64, 64, 512, 64
VOCAB = 64
"""Prompts are of the tokens that both models have."""
TURNS = {BUILT_IN.name: 5, CHAIN.name: 2}
LEAST_RATIO = 0.9


def measure(say: Say) -> list[Figure]:
    """Start a server, take the turns, return the figures; raises UserError when SGLang's environment is missing."""
    if not PYTHON.exists():
        raise UserError(f"{PYTHON} is missing; run `make sglang`")
    return [figure for subject in (BUILT_IN, CHAIN) for figure in _compare(subject, say)]


def _compare(subject: Subject, say: Say) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        model = subject.write(Path(folder)).absolute()
        with closing(_engine(model, Path(folder) / "sglang.log")) as engine:
            engine.load_weights(0, dict(read_weights(model, read_shape(model))))
            _tokens_per_s(engine, 0, CHUNK_TOKENS, of_tokens=CHUNK_TOKENS)  # nobody's first turn
            pairs = list(_turns(engine, subject.name, say))
    whole, chunked = (statistics.median(each) for each in zip(*pairs, strict=True))
    ratios = [chunked / whole for whole, chunked in pairs]
    name = subject.name
    return [
        stated(f"{name}: whole responses", whole, "tokens/s"),
        stated(f"{name}: in chunks of {CHUNK_TOKENS}", chunked, "tokens/s"),
        at_least(f"{name}: chunked / whole, median of the turns", statistics.median(ratios), "x", LEAST_RATIO),
        stated(f"{name}: least of the turns", min(ratios), "x"),
        stated(f"{name}: most of the turns", max(ratios), "x"),
        stated(f"{name}: what a chunk costs", _cost_ms(whole, chunked), "ms"),
    ]


def _cost_ms(whole: float, chunked: float) -> float:
    """Return what a chunk adds to the time of all, of those that end with another to come."""
    tokens, added = REQUESTS * RESPONSE_TOKENS, REQUESTS * (RESPONSE_TOKENS // CHUNK_TOKENS - 1)
    return 1e3 * (tokens / chunked - tokens / whole) / added


def _turns(engine: SGLangEngine, name: str, say: Say) -> Iterator[tuple[float, float]]:
    for turn in range(1, TURNS[name] + 1):
        groups = 2 * turn * REQUESTS
        whole = _tokens_per_s(engine, groups, RESPONSE_TOKENS)
        chunked = _tokens_per_s(engine, groups + REQUESTS, CHUNK_TOKENS)
        say(f"{name}: whole {whole:.0f} tokens/s, chunked {chunked:.0f}, ratio {chunked / whole:.3f}")
        yield whole, chunked


def _tokens_per_s(engine: SGLangEngine, first_group: int, chunk_tokens: int, of_tokens: int = RESPONSE_TOKENS) -> float:
    """Decode REQUESTS responses, none of which ends early or has a prefix in the cache."""
    rng = np.random.default_rng(first_group)
    requests = [_request(first_group + number, rng, chunk_tokens, of_tokens) for number in range(REQUESTS)]
    generated = {request.id: request for request in requests}
    began_s = time.monotonic()
    for request in requests:
        engine.submit(request)
    while not engine.idle:
        for result in engine.step():
            known = np.concatenate([generated[result.id].generated, result.tokens])
            generated[result.id] = dataclasses.replace(generated[result.id], generated=known)
            if result.finish == "chunk":
                engine.submit(generated[result.id])
    elapsed_s = time.monotonic() - began_s
    return sum(len(request.generated) for request in generated.values()) / elapsed_s


def _request(group: int, rng: np.random.Generator, chunk_tokens: int, of_tokens: int) -> ChunkRequest:
    return ChunkRequest(
        id=RequestId(group, 0),
        prompt=rng.integers(3, VOCAB, PROMPT_TOKENS).astype(np.int32),
        generated=np.zeros(0, np.int32),
        max_tokens=chunk_tokens,
        max_new_tokens=of_tokens,
        temperature=1.0,
    )


def _engine(model: Path, log: Path) -> SGLangEngine:
    shape = read_shape(model)
    config = SGLangEngineConfig(
        kind="sglang",
        python=PYTHON,
        device="cpu",
        dtype="float32",
        tensor_parallel=1,
        data_parallel=1,
        expert_parallel=1,
        memory_fraction=0.8,
        kv_capacity_tokens=65536,
        max_running=REQUESTS,
        page_tokens=16,
        deterministic=False,
        weights="broadcast",
        bucket_bytes=1 << 24,
        start_s=240,
        silence_s=60,
        max_restarts=0,
    )
    return SGLangEngine(
        config,
        shape,
        model=model,
        log=log,
        max_context_tokens=PROMPT_TOKENS + RESPONSE_TOKENS,
        seed=1,
        stop_token=NO_TOKEN,
    )
