"""Ways of scheduling one iteration, against the baseline: a group on one instance, preemption by recompute."""

import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from sestina.bench.asked import at_least, at_most, stated
from sestina.bench.rollout.emulation import Outturn, Way, emulate
from sestina.bench.rollout.workload import MODEL, MOONLIGHT, QWEN2_VL, Workload, evenly_bound, offer, prompts
from sestina.bench.turns import Say
from sestina.core.errors import RunError
from sestina.kvpool.config import LocalKvPoolConfig
from sestina.models.shape import read_shape
from sestina.models.tokenizer import Tokenizer
from sestina.rollout.speculation.config import DraftConfig
from sestina.telemetry.measurements import Figure

AFFINITY = 32
"""Seer's threshold: a chunk returns to the instance that may still hold its prefix."""

GROUPED = DraftConfig(
    source="grouped", length="mba", toggle="always", guard=True, max_tokens=8, paths=1, min_token_prob=0.1
)
POOL = LocalKvPoolConfig(kind="local", dram_bytes=1 << 30, ssd_bytes=0, ssd_dir=None, move="always")
BASELINE = "group"
WAYS: Mapping[str, Way] = {
    BASELINE: Way(scheduler="group"),
    "divided": Way(scheduler="divided", affinity_requests=AFFINITY),
    "context": Way(scheduler="context", affinity_requests=AFFINITY),
    "oracle": Way(scheduler="oracle", affinity_requests=AFFINITY),
    "context, grouped drafts": Way(scheduler="context", affinity_requests=AFFINITY, draft=GROUPED),
    "context, KV pool": Way(scheduler="context", affinity_requests=AFFINITY, pool=POOL),
}
LEAST_GAIN: Mapping[str, float] = {"divided": 1.3, "context": 1.45}
"""Over the baseline."""
LEAST_OF_ORACLE = 0.95
MOST_TAIL = -0.8
"""Change of the time on the last 10 % under `context`."""
MOST_MOVING = 0.01
"""Of the instances' time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is emulated."""

    workloads: tuple[Workload, ...] = (QWEN2_VL, MOONLIGHT)
    ways: tuple[str, ...] = tuple(name for name, way in WAYS.items() if way.draft is None)
    """Drafts are compared where they can pay (drafted.py)."""
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    num_instances: int = 16


Outturns = dict[str, dict[str, list[Outturn]]]
"""By workload, way and seed."""


def compare(plan: Plan, say: Say) -> Outturns:
    """Emulate everything, as many at once as there are cores; raises RunError when a way changes a token."""
    context = get_context("spawn")
    jobs = [(workload, seed, way) for workload in plan.workloads for seed in plan.seeds for way in plan.ways]
    found: Outturns = {workload.name: {way: [] for way in plan.ways} for workload in plan.workloads}
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        outturns = pool.map(_one, jobs, [plan.num_instances] * len(jobs))
        for (workload, seed, way), outturn in zip(jobs, outturns, strict=True):
            found[workload.name][way].append(outturn)
            say(_line(f"{workload.name}, seed {seed}, {way}", outturn))
    for name, ways in found.items():
        _check_equal(name, ways)
    return found


def figures_of(outturns: Outturns, least_gain: Mapping[str, float] = LEAST_GAIN) -> Iterator[Figure]:
    """Yield what is asked of each workload; the first is the one that the baseline preempts most.

    `least_gain`: throughput over the baseline's that is asked of ways there.
    """
    for index, (name, ways) in enumerate(outturns.items()):
        base, label = ways[BASELINE], f"{name}: {BASELINE}"
        yield stated(f"{label}, throughput", _median(o.tokens / o.makespan_s for o in base), "tokens/s")
        yield stated(f"{label}, preemptions", _median(o.preemptions for o in base), "times")
        yield stated(f"{label}, share of time after 90 %", _median(o.tail_s / o.makespan_s for o in base), "of all")
        for way, found in ways.items():
            if way != BASELINE:
                yield from _gains(f"{name}: {way}", base, found, least_gain.get(way) if index == 0 else None)
                yield from _costs(f"{name}: {way}", way, base, found)
        if "context" in ways and "oracle" in ways:
            ratio = gain_over(ways["oracle"], ways["context"])
            yield at_least(f"{name}: context over oracle, throughput", ratio, "x", LEAST_OF_ORACLE)


def gain_over(base: Sequence[Outturn], found: Sequence[Outturn]) -> float:
    """Return the median over seeds of a way's throughput over another's."""
    return statistics.median(_ratios(base, found))


def _gains(label: str, base: Sequence[Outturn], found: Sequence[Outturn], bound: float | None) -> Iterator[Figure]:
    gains = _ratios(base, found)
    name = f"{label} over {BASELINE}, throughput"
    yield at_least(f"{name}, median of {len(gains)} seeds", statistics.median(gains), "x", bound)
    yield stated(f"{name}, lowest", min(gains), "x")
    yield stated(f"{name}, highest", max(gains), "x")


def _costs(label: str, way: str, base: Sequence[Outturn], found: Sequence[Outturn]) -> Iterator[Figure]:
    change = _median(after.tail_s / before.tail_s - 1 for before, after in zip(base, found, strict=True))
    tail = f"{label}, time on the last 10 % against {BASELINE}"
    yield at_most(tail, change, "of it", MOST_TAIL) if way == "context" else stated(tail, change, "of it")
    yield at_most(f"{label}, preemptions", sum(each.preemptions for each in found), "times", 0)
    yield stated(f"{label}, prefilled for a token", _median(o.prefilled_tokens / o.tokens for o in found), "tokens")
    if WAYS[way].draft is not None:
        accepted = _median(o.tokens / (o.tokens - o.accepted_tokens) for o in found)
        yield stated(f"{label}, acceptance length", accepted, "tokens")
    if WAYS[way].pool is not None:
        yield from _moves(label, [outturn.kv for outturn in found])


def _moves(label: str, found: Sequence[Mapping[str, float]]) -> Iterator[Figure]:
    def values(name: str) -> list[float]:
        return [of_seed[f"perf/kv_pool_{name}"] for of_seed in found]

    yield stated(f"{label}, resumed chunks", _median(values("resumed")), "chunks")
    yield at_most(
        f"{label}, resumed chunks that prefilled again, all seeds", sum(values("prefilled_again")), "chunks", 0
    )
    yield stated(f"{label}, moved", _median(values("moved_bytes")), "bytes")
    yield at_most(
        f"{label}, share of the instances' time that moving took", _median(values("time_share")), "of all", MOST_MOVING
    )


def _one(job: tuple[Workload, int, str], num_instances: int) -> Outturn:
    workload, seed, way = job
    tokenizer = Tokenizer(MODEL, model_vocab_size=read_shape(MODEL).vocab_size)
    numbers = evenly_bound(workload.num_groups, num_instances, seed)
    batch = offer(workload, numbers, prompts(workload.num_groups, seed, tokenizer), workload.lengths(seed))
    return emulate(workload, WAYS[way], batch, num_instances=num_instances, seed=seed)


def _check_equal(name: str, ways: Mapping[str, Sequence[Outturn]]) -> None:
    for turn in zip(*ways.values(), strict=True):
        hashes = dict(zip(ways, (outturn.tokens_crc32 for outturn in turn), strict=True))
        if len(set(hashes.values())) > 1:
            raise RunError(f"{name}: tokens differ between ways of scheduling: {hashes}")


def _ratios(before: Sequence[Outturn], after: Sequence[Outturn]) -> list[float]:
    return [one.makespan_s / other.makespan_s for one, other in zip(before, after, strict=True)]


def _median(values: Iterable[float]) -> float:
    return float(statistics.median(values))


def _line(label: str, outturn: Outturn) -> str:
    return (
        f"{label}: {outturn.makespan_s:.2f} s, last 10 % {outturn.tail_s:.2f} s, {outturn.preemptions} preemptions, "
        f"{outturn.prefilled_tokens / outturn.tokens:.2f} prefilled per token ({outturn.real_s:.0f} s here)"
    )
