"""How fast a planner decides with a million requests buffered.

A decision is one chunk that ended and the next one placed, as the controller has it done: event in, command out.
"""

import statistics
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sestina.bench.asked import at_least, stated
from sestina.bench.turns import Say, Span
from sestina.policies.events import BatchOffered, ChunkFinished, Dispatch, GroupSpec, InstanceUp
from sestina.policies.planner import SchedulerKind, build_planner
from sestina.telemetry.measurements import Figure

GROUP_SIZE = 16
LIMIT = 32768
CHUNK_TOKENS = 2048
DECISIONS_PER_S = 50_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a planner has before it, and what is measured."""

    num_groups: int
    num_instances: int
    max_running: int
    """On each instance; its KV holds them all at their longest."""
    num_decisions: int
    """In one turn."""
    num_turns: int


MILLION = Load(num_groups=62_500, num_instances=16, max_running=64, num_decisions=30_000, num_turns=7)

ASKED: dict[SchedulerKind, float | None] = {"divided": None, "context": DECISIONS_PER_S, "oracle": None}


def measure(say: Say, load: Load = MILLION) -> list[Figure]:
    """Let each scheduler decide; the probes of `context` last for about half of its turns."""
    figures: list[Figure] = []
    for kind, asked in ASKED.items():
        rollout = Rollout(kind, load)
        spans = [rollout.decide(load.num_decisions) for _ in range(load.num_turns)]
        by_cpu = [load.num_decisions / span.cpu_s for span in spans]
        by_wall = [load.num_decisions / span.wall_s for span in spans]
        name = f"{kind}, {load.num_groups * GROUP_SIZE:,} requests buffered"
        say(f"{name}: {', '.join(f'{rate:,.0f}' for rate in by_cpu)} decisions per second of CPU time")
        figures += [
            at_least(
                f"{name}: by CPU time, median of {load.num_turns}", statistics.median(by_cpu), "decisions/s", asked
            ),
            stated(f"{name}: by CPU time, lowest", min(by_cpu), "decisions/s"),
            stated(f"{name}: by CPU time, highest", max(by_cpu), "decisions/s"),
            stated(f"{name}: by wall time, median", statistics.median(by_wall), "decisions/s"),
        ]
    return figures


class Rollout:
    """One planner and the chunks it has dispatched, which end in the order in which they began."""

    def __init__(self, kind: SchedulerKind, load: Load) -> None:
        self._lengths = response_lengths(load.num_groups)
        self._planner = build_planner(kind, chunk_tokens=CHUNK_TOKENS, seed=0)
        for instance in range(load.num_instances):
            capacity = load.max_running * (LIMIT + CHUNK_TOKENS)
            self._planner.handle(
                InstanceUp(
                    instance=instance, kv_capacity_tokens=capacity, page_tokens=16, max_running=load.max_running
                ),
                0.0,
            )
        offer = BatchOffered(batch=0, groups=tuple(_groups(self._lengths)))
        self._running = deque(self._dispatched(offer))

    def decide(self, count: int) -> Span:
        """End `count` chunks, each in answer to the planner; returns what that took."""
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        for _ in range(count):
            chunk = self._running.popleft()
            lengths, sample = self._lengths[chunk.request.group], chunk.request.sample
            produced = min(chunk.max_tokens, lengths[sample])
            lengths[sample] -= produced
            self._running += self._dispatched(
                ChunkFinished(
                    request=chunk.request,
                    instance=chunk.instance,
                    produced_tokens=produced,
                    done=not lengths[sample],
                )
            )
        return Span(wall_s=time.perf_counter() - wall_s, cpu_s=time.process_time() - cpu_s)

    def _dispatched(self, event: BatchOffered | ChunkFinished) -> Iterator[Dispatch]:
        return (command for command in self._planner.handle(event, 0.0) if isinstance(command, Dispatch))


def response_lengths(num_groups: int) -> list[list[int]]:
    """Return tokens by group and sample: Pareto between groups, alike within one, up to LIMIT."""
    rng = np.random.default_rng(0)
    scale = 500 * (1 + rng.pareto(1.2, (num_groups, 1)))
    drawn = scale * rng.lognormal(0.0, 0.3, (num_groups, GROUP_SIZE))
    return np.clip(drawn, 1, LIMIT).astype(np.int64).tolist()


def _groups(lengths: list[list[int]]) -> Iterator[GroupSpec]:
    for group, of_samples in enumerate(lengths):
        yield GroupSpec(
            group=group,
            prompt_tokens=256,
            num_samples=GROUP_SIZE,
            max_new_tokens=LIMIT,
            lengths=tuple(of_samples),
        )
