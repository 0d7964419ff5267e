"""Ten steps one ahead of a trainer, on 16 emulated instances: HistoPipe against the baseline, a group on one instance.

The baseline begins a batch when the last is rolled out. Between it and HistoPipe stands what streaming alone is worth:
sub-batches dealt out evenly, an instance going on to its next when it is done.

An epoch has more prompts than ten steps ask, and all have been asked once. What they came to then is lognormal between
prompts and within one; by now a prompt's answers are longer by GROWTH, and off that by DRIFT. With 8 ranking groups a
seventh of the prompts has then moved up, as in the paper (table 2: 14 to 21 %). The shape of lengths is not published.
"""

import os
import statistics
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

import numpy as np
import torch

from sestina.bench.asked import at_least, at_most, stated
from sestina.bench.rollout.emulation import Way, world
from sestina.bench.rollout.workload import MODEL, Workload, evenly_bound, offer, prompts
from sestina.bench.turns import Say
from sestina.controller.offer import Offer
from sestina.controller.pipeline import pipeline_metrics
from sestina.core.errors import RunError
from sestina.core.units import Seconds, Version
from sestina.models.shape import read_shape
from sestina.models.tokenizer import Tokenizer
from sestina.policies.histopipe.migration import growth_bound
from sestina.policies.planner import build_planner
from sestina.simulator.pipeline import PipelinedWorld
from sestina.telemetry.measurements import Figure

WORKLOAD = Workload(
    name="pipelined",
    num_groups=32,
    group_size=8,
    mean_tokens=64,
    max_tokens=192,
    between=0.7,
    kv_share=4.0,
    chunk_tokens=96,
)
"""One step's batch. Of the paper's 64 responses to a worker there are 16; KV is no constraint.

A chunk is half of the longest response, as in conf/exp/rhymerl_8b: responses migrate where chunks end, and the paper
does not divide them otherwise.
"""

GROWTH, DRIFT = 1.03, 0.12
TRAIN_SHARE = 0.09 / 0.91
"""Of the time that rolling a batch out takes the baseline: it is 91 % of a step (RhymeRL, figure 2)."""

PLAIN, DEALT, HISTOPIPE = "group", "dealt out, streaming", "HistoPipe, two-tier"
WAYS: Mapping[str, Way] = {
    PLAIN: Way(scheduler="group"),
    DEALT: Way(scheduler="histopipe"),
    HISTOPIPE: Way(scheduler="histopipe"),
}
LEAST_GAIN, MOST_MIGRATED = 1.3, 0.06


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is emulated."""

    workload: Workload = WORKLOAD
    ways: tuple[str, ...] = tuple(WAYS)
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    steps: int = 10
    num_instances: int = 16
    ranking_groups: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What the steps of one way came to, in virtual time."""

    seconds: Seconds
    """Until the last step was trained on."""
    waited_s: Seconds
    """The trainer, after the first batch."""
    tokens: int
    tokens_crc32: int
    migrated: float
    """Share of responses."""
    inter_step: float
    oldest: int
    """Versions between a token and the trainer."""


def figures(say: Say, plan: Plan | None = None) -> Iterator[Figure]:
    """Yield what is asked; raises RunError when a way changes a token."""
    plan = plan or Plan()
    jobs = [(seed, way) for seed in plan.seeds for way in plan.ways]
    found: dict[str, list[Taken]] = {way: [] for way in plan.ways}
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        rolled_out = pool.submit(take, plan, 0.0, plan.seeds[0], PLAIN).result()
        train_s = TRAIN_SHARE * rolled_out.seconds / plan.steps
        some = [plan] * len(jobs), [train_s] * len(jobs)
        for (seed, way), taken in zip(jobs, pool.map(take, *some, *zip(*jobs, strict=True)), strict=True):
            found[way].append(taken)
            say(f"pipelined, seed {seed}, {way}: {taken.seconds:.2f} s, {taken.migrated:.1%} migrated")
    for turn in zip(*found.values(), strict=True):
        if len({taken.tokens_crc32 for taken in turn}) > 1:
            raise RunError("pipelined: tokens differ between ways of scheduling")
    yield stated("pipelined: training of a step", train_s, "s")
    yield from _compared(found, plan.steps)


def _compared(found: dict[str, list[Taken]], steps: int) -> Iterator[Figure]:
    plain = found[PLAIN]
    yield stated(f"pipelined, {PLAIN}, throughput", _median(t.tokens / t.seconds for t in plain), "tokens/s")
    for way, takes in found.items():
        name, waited = f"pipelined, {steps} steps: {way}", _median(t.waited_s / t.seconds for t in takes)
        yield stated(f"{name}, share of time that the trainer waits", waited, "of all")
        yield at_most(f"{name}, versions behind", max(t.oldest for t in takes), "versions", 1)
        if way == PLAIN:
            continue
        gains = [one.seconds / other.seconds for one, other in zip(plain, takes, strict=True)]
        bound = LEAST_GAIN if way == HISTOPIPE else None
        median, name = statistics.median(gains), f"{name} over {PLAIN}, throughput"
        yield at_least(f"{name}, median of {len(gains)} seeds", median, "x", bound)
        yield stated(f"{name}, lowest", min(gains), "x")
        yield stated(f"{name}, highest", max(gains), "x")
    ranked = found[HISTOPIPE]
    yield at_most(f"pipelined: {HISTOPIPE}, migrated", _median(t.migrated for t in ranked), "of all", MOST_MIGRATED)
    yield stated(f"pipelined: {HISTOPIPE}, migrated between steps", _median(t.inter_step for t in ranked), "of all")


def take(plan: Plan, train_s: Seconds, seed: int, way: str) -> Taken:
    """Take the steps of a plan in one way, the trainer taking so long for each."""
    torch.set_num_threads(1)
    batches, beta = offers(plan, seed)
    chosen = WAYS[way]
    planner = build_planner(
        chosen.scheduler,
        chunk_tokens=plan.workload.chunk_tokens,
        seed=seed,
        affinity_requests=chosen.affinity_requests,
        ranking_groups=plan.ranking_groups,
    )

    def offer_of(step: int, version: Version, train_s: Seconds) -> Offer:
        batch = replace(batches[step - 1], version=version, train_s=train_s, beta=beta)
        return batch if way == HISTOPIPE else replace(batch, histories=())

    with world(planner, plan.workload, chosen, num_instances=plan.num_instances, seed=seed) as driver:
        pipeline = PipelinedWorld(
            driver, offer_of, steps=plan.steps, streaming=chosen.scheduler == "histopipe", train_s=lambda _: train_s
        )
        steps = list(pipeline.run())
    samples = [sample for step in steps for sample in step.samples]
    values = [pipeline_metrics(step.samples, step.step - 1) for step in steps]
    return Taken(
        seconds=steps[-1].trained_s,
        waited_s=sum(step.waited_s for step in steps[1:]),
        tokens=sum(sample.num_tokens for sample in samples),
        tokens_crc32=zlib.crc32(np.concatenate([sample.tokens for sample in samples]).tobytes()),
        migrated=statistics.fmean(each["rollout/migrated_ratio"] for each in values),
        inter_step=sum(each["rollout/migrated_inter_step"] for each in values) / len(samples),
        oldest=int(max(each["async/staleness_max"] for each in values)),
    )


def offers(plan: Plan, seed: int) -> tuple[list[Offer], float]:
    """Return each step's batch, with what its prompts came to an epoch ago, and the growth bound."""
    count = plan.workload.num_groups
    before, lengths = lengths_of(plan, seed)
    growths = [statistics.fmean(now) / statistics.fmean(then) for now, then in zip(lengths, before, strict=True)]
    numbers = evenly_bound(count * plan.steps, plan.num_instances, seed, of=count)
    given = prompts(count * plan.steps, seed, Tokenizer(MODEL, model_vocab_size=read_shape(MODEL).vocab_size))
    batches: list[Offer] = []
    for step in range(plan.steps):
        part = slice(step * count, (step + 1) * count)
        batch = offer(plan.workload, numbers[part], given[part], lengths[part])
        batches.append(replace(batch, step=step + 1, histories=tuple(map(tuple, before[part]))))
    return batches, growth_bound(growths)


def lengths_of(plan: Plan, seed: int) -> tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]:
    """Return tokens by prompt and sample, an epoch ago and by now."""
    workload = replace(plan.workload, num_groups=plan.workload.num_groups * plan.steps)
    before = workload.lengths(seed)
    rng = np.random.default_rng([seed, 1])
    moved = rng.lognormal(np.log(GROWTH), DRIFT, (len(before), 1)) * np.array(before)
    again = moved * rng.lognormal(0.0, WITHIN_AGAIN, moved.shape)
    return before, np.clip(again, 1, workload.max_tokens).astype(np.int64).tolist()


WITHIN_AGAIN = 0.1
"""By which a response differs from the one an epoch ago, beside its prompt's drift."""


def _median(values: Iterable[float]) -> float:
    return float(statistics.median(values))
