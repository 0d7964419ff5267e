"""One iteration under one way of scheduling, on emulated instances."""

import os
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from sestina.bench.rollout.workload import MODEL, PROMPT_TOKENS, Workload
from sestina.controller.kv_metrics import kv_pool_metrics
from sestina.controller.offer import Offer
from sestina.controller.sample import Sample
from sestina.core.units import InstanceId, Seconds
from sestina.kvpool.config import LocalKvPoolConfig
from sestina.kvpool.local import LocalPool
from sestina.models.shape import read_shape
from sestina.models.tokenizer import Tokenizer
from sestina.models.weights import read_weights
from sestina.policies.planner import RolloutPlanner, SchedulerKind, build_planner
from sestina.rewards.messages import Sample as Response
from sestina.rewards.outcome import Outcome
from sestina.rollout.config import TorchEngineConfig
from sestina.rollout.fused import Common
from sestina.rollout.meter import meter_for
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.suffix import SuffixSpeculator
from sestina.rollout.torch_engine import TorchEngine
from sestina.simulator.clock import VirtualClock, nothing_takes_time
from sestina.simulator.emulated import EmulatedDriver
from sestina.simulator.heap import settled_heap
from sestina.simulator.inline import Inline
from sestina.simulator.instance import EmulatedInstance
from sestina.telemetry.journal import Journal
from sestina.telemetry.traces import tail_start

MAX_RUNNING = 64
MAX_STEP_TOKENS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How an iteration is scheduled."""

    scheduler: SchedulerKind
    affinity_requests: int = 0
    draft: DraftConfig | None = None
    pool: LocalKvPoolConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outturn:
    """What an iteration came to, in virtual time."""

    makespan_s: Seconds
    tail_s: Seconds
    """After 90 % of the responses had finished."""
    tokens: int
    preemptions: int
    prefilled_tokens: int
    accepted_tokens: int
    tokens_crc32: int
    kv: Mapping[str, float]
    """`perf/kv_pool_*`; empty without a pool."""
    finished_s: tuple[Seconds, ...]
    """Since the offer, rising."""
    real_s: Seconds
    """What the emulation took."""


def emulate(workload: Workload, way: Way, batch: Offer, *, num_instances: int, seed: int) -> Outturn:
    """Roll an iteration out; the controller's time is not counted (docs/decisions/0023)."""
    torch.set_num_threads(1)
    began_s = time.perf_counter()
    planner = build_planner(
        way.scheduler, chunk_tokens=workload.chunk_tokens, seed=seed, affinity_requests=way.affinity_requests
    )
    with world(planner, workload, way, num_instances=num_instances, seed=seed) as driver:
        samples = driver.roll_out(batch)
    outturn = _outturn(samples, time.perf_counter() - began_s)
    return outturn if way.pool is None else _with_pool(outturn, samples, num_instances)


def _with_pool(outturn: Outturn, samples: list[Sample], num_instances: int) -> Outturn:
    return replace(outturn, kv=kv_pool_metrics(samples, instances_s=outturn.makespan_s * num_instances))


@contextmanager
def world(
    planner: RolloutPlanner, workload: Workload, way: Way, *, num_instances: int, seed: int
) -> Iterator[EmulatedDriver]:
    """Yield a driver of instances that hold what the workload says; the controller's time is not counted."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        weights, common = read_weights(workload.model, read_shape(workload.model)), Common()
        instances = [
            _instance(workload, way, number, num_instances, seed, weights, common) for number in range(num_instances)
        ]
        for instance in instances:
            stack.callback(instance.engine.close)
        stack.enter_context(settled_heap())
        yield EmulatedDriver(
            planner,
            instances,
            clock=VirtualClock(nothing_takes_time),
            journal=stack.enter_context(closing(Journal(folder / "journal.jsonl"))),
            tokenizer=Tokenizer(MODEL, model_vocab_size=read_shape(MODEL).vocab_size),
            score=_nothing,
            num_workers=1,
        )


def _outturn(samples: list[Sample], real_s: Seconds) -> Outturn:
    offered_s = samples[0].offered_s
    finished = sorted(sample.chunks[-1].finished_s - offered_s for sample in samples)
    chunks = [chunk for sample in samples for chunk in sample.chunks]
    return Outturn(
        makespan_s=finished[-1],
        tail_s=finished[-1] - tail_start(finished),
        tokens=sum(chunk.tokens for chunk in chunks),
        preemptions=sum(chunk.preemptions for chunk in chunks),
        prefilled_tokens=sum(chunk.prefilled_tokens for chunk in chunks),
        accepted_tokens=sum(chunk.accepted_tokens for chunk in chunks),
        tokens_crc32=zlib.crc32(np.concatenate([sample.tokens for sample in samples]).tobytes()),
        kv={},
        finished_s=tuple(finished),
        real_s=real_s,
    )


def _instance(
    workload: Workload,
    way: Way,
    number: InstanceId,
    num_instances: int,
    seed: int,
    weights: Mapping[str, torch.Tensor],
    common: Common,
) -> EmulatedInstance:
    shape, clock = read_shape(workload.model), VirtualClock(meter_for("cpu"))
    config = TorchEngineConfig(
        kind="torch",
        device="cpu",
        dtype="float32",
        kv_capacity_tokens=workload.kv_capacity_tokens(num_instances),
        max_running=MAX_RUNNING,
        max_step_tokens=MAX_STEP_TOKENS,
    )
    draft = way.draft and SuffixSpeculator(way.draft, vocab_size=shape.vocab_size, num_slots=MAX_RUNNING)
    engine = TorchEngine(
        config,
        shape,
        max_context_tokens=PROMPT_TOKENS + workload.max_tokens,
        seed=seed,
        stop_token=Tokenizer(MODEL, model_vocab_size=shape.vocab_size).eos_id,
        speculator=draft,
        clock=clock,
        kv_pool=way.pool and LocalPool(way.pool, f"bench-{os.getpid()}"),
        kv_thread=Inline(),
        common=common,
    )
    engine.load_weights(0, weights)
    return EmulatedInstance(number, engine, clock, weights)


def _nothing(_: Response) -> Outcome:
    """Score at once: rewards come while others decode, and are not what is compared."""
    return Outcome(reward=0.0, kind="ok", error=None, elapsed_s=0.0)
