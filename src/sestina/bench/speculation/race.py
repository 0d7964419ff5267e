"""All ways of drafting decode the same at once, in slices of time, so that what else the machine does falls on all.

Who goes on after whom is drawn anew for each slice: an engine that follows one of its kind finds in the caches what
it needs, which is some hundredth of a slice. By CPU time they are compared without what others take from the cores:
what an engine decodes with is one thread.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sestina.core.errors import RunError
from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest, ChunkResult
from sestina.core.units import Seconds
from sestina.models.shape import read_shape
from sestina.models.weights import read_weights
from sestina.rollout.build import InstanceConfig, build_engine
from sestina.rollout.config import TorchEngineConfig
from sestina.rollout.engine import Engine
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.desk import DraftDesk

SLICE_S: Seconds = 0.01
MAX_CONTEXT_TOKENS = 512
SEED, SEED_BEFORE = 1, 2
"""Of the noise: in what is raced, and in the epoch before."""
NO_TOKEN = -1
"""A stop token that is never drawn."""


@dataclass(slots=True)
class Rollout:
    """What one way has come to."""

    results: dict[RequestId, ChunkResult] = field(default_factory=dict)
    wall_s: Seconds = 0.0
    cpu_s: Seconds = 0.0

    @property
    def num_tokens(self) -> int:
        """Of all responses."""
        return sum(len(result.tokens) for result in self.results.values())

    @property
    def acceptance_length(self) -> float:
        """Tokens of a response in one step."""
        accepted = sum(result.accepted_tokens for result in self.results.values())
        return self.num_tokens / (self.num_tokens - accepted)


def race(engines: Mapping[str, Engine], requests: Sequence[ChunkRequest]) -> dict[str, Rollout]:
    """Decode all requests with every engine; raises RunError when one draws other tokens than "none"."""
    for engine in engines.values():
        for request in requests:
            engine.submit(request)
    taken = {way: Rollout() for way in engines}
    order, random = list(engines), np.random.default_rng(0)
    while any(not engine.idle for engine in engines.values()):
        random.shuffle(order)
        for way in order:
            _slice(engines[way], taken[way])
    for way, rollout in taken.items():
        for id, result in rollout.results.items():
            if not np.array_equal(result.tokens, taken["none"].results[id].tokens):
                raise RunError(f"{way}: response {id} has other tokens than without drafts")
    return taken


def _slice(engine: Engine, rollout: Rollout) -> None:
    wall_s, cpu_s = time.perf_counter(), time.thread_time()
    while not engine.idle and time.perf_counter() - wall_s < SLICE_S:
        rollout.results |= {result.id: result for result in engine.step()}
    rollout.wall_s += time.perf_counter() - wall_s
    rollout.cpu_s += time.thread_time() - cpu_s


def engine_of(model: Path, draft: DraftConfig, batch: int, desk: DraftDesk | None = None, seed: int = SEED) -> Engine:
    """Return an engine of so many requests, with weights, its drafter at this desk."""
    shape = read_shape(model)
    config = TorchEngineConfig(
        kind="torch",
        device="cpu",
        dtype="float32",
        kv_capacity_tokens=MAX_CONTEXT_TOKENS * max(batch, 8) // 2,
        max_running=batch,
        max_step_tokens=max(256, 9 * batch),
    )
    engine = build_engine(InstanceConfig(
        instance=0, engine=config, draft=draft, model=model, log=model / "engine.log", shape=shape,
        max_context_tokens=MAX_CONTEXT_TOKENS, seed=seed, stop_token=NO_TOKEN, weights_timeout_s=60.0, stop_s=10.0,
    ), desk)  # fmt: skip
    engine.load_weights(0, read_weights(model, shape))
    return engine
