"""What a bound of staleness lets a run gain at most over eta = 0, whatever rollout and scheduling do.

A run at eta = 0 says how long each group takes and how long training on it. The run's own gate and buffer are then let
loose on these: a group ends as long after its admission as it did there, however many others run beside it, nothing is
ever decoded twice, and the trainer takes each batch at the instant at which the buffer has it. What a real run stays
below that is what rolling out more at once costs; what the limit stays below the trainer's own is the bound's: at
eta = 1 the trainer waits for every batch that takes longer than training on the one before.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from sestina.core.units import Seconds, Version
from sestina.policies.staleness import (
    GateEvent,
    GroupEnded,
    GroupsOffered,
    StalenessGate,
    StalenessLimits,
    VersionPublished,
)
from sestina.replay.buffer import ReplayBuffer
from sestina.telemetry.metrics import StepMetrics
from sestina.telemetry.traces import read_requests

Row: TypeAlias = dict[str, Any]
"""Columns of a `RequestRow`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpans:
    """What one group took."""

    rollout_s: Seconds
    """From its admission to its last reward."""
    train_s: Seconds
    """Its part, by tokens, of training on its batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpans:
    """What a run at eta = 0 took."""

    groups: tuple[GroupSpans, ...]
    """In order of admission."""
    batch_groups: int
    rest_s: Seconds
    """Of a step, in which the trainer has nothing to train on: weights, and the controller's work."""


def spans_of(run_dir: Path, lines: Sequence[StepMetrics]) -> RunSpans:
    """Read what a run at eta = 0, whose metrics are `lines`, took; raises DataError when its traces cannot be read."""
    rows = read_requests(run_dir).to_pylist()
    groups: list[GroupSpans] = []
    rest_s: Seconds = 0.0
    for line in lines:
        own = _groups_of([row for row in rows if row["step"] == line.step], line.values["perf/train_s"])
        rest_s += line.values["perf/step_s"] - line.values["perf/train_s"] - max(group.rollout_s for group in own)
        groups += own
    return RunSpans(groups=tuple(groups), batch_groups=len(groups) // len(lines), rest_s=rest_s / len(lines))


def _groups_of(rows: Sequence[Row], train_s: Seconds) -> list[GroupSpans]:
    """Return the groups of one batch, which began together."""
    began_s, all_tokens = min(row["offered_s"] for row in rows), sum(map(_tokens, rows))
    spans: list[GroupSpans] = []
    for number in sorted({row["group"] for row in rows}):
        own = [row for row in rows if row["group"] == number]
        rollout_s = max(row["rewarded_s"] for row in own) - began_s
        spans.append(GroupSpans(rollout_s=rollout_s, train_s=train_s * sum(map(_tokens, own)) / all_tokens))
    return spans


def gain_within(spans: RunSpans, max_staleness: int) -> float:
    """Return how many times as fast as at eta = 0 such a run can be at most under a bound, in versions."""
    return _Ideal(spans, 0).run() / _Ideal(spans, max_staleness).run()


def gain_of_trainer(spans: RunSpans) -> float:
    """Return the same of a trainer that never waits for rollout."""
    steps = len(spans.groups) // spans.batch_groups
    return _Ideal(spans, 0).run() / (sum(group.train_s for group in spans.groups) + steps * spans.rest_s)


class _Ideal:
    """A run whose groups take what they took, under a bound."""

    def __init__(self, spans: RunSpans, max_staleness: int) -> None:
        size = spans.batch_groups
        limits = StalenessLimits(max_staleness=max_staleness, batch_groups=size, max_running=(max_staleness + 1) * size)
        self._spans = spans
        self._gate = StalenessGate(limits)
        self._buffer = ReplayBuffer(batch_groups=size, max_staleness=max_staleness, overdue="wait")
        self._now: Seconds = 0.0
        self._version: Version = 0
        self._admitted = 0
        self._ends: list[tuple[Seconds, int]] = []
        """Heap of when which running group ends."""

    def run(self) -> Seconds:
        """Take every step; returns when the last weights are published."""
        groups = self._spans.groups
        self._tell(GroupsOffered(count=len(groups)))
        for _ in range(len(groups) // self._spans.batch_groups):
            batch = self._wait()
            over = self._now + sum(groups[group].train_s for group in batch) + self._spans.rest_s
            while self._ends and self._ends[0][0] <= over:
                self._end_next()
            self._now, self._version = over, self._version + 1
            self._tell(VersionPublished(version=self._version))
        return self._now

    def _wait(self) -> list[int]:
        while (batch := self._buffer.take(self._version)) is None:
            self._end_next()
        return batch

    def _end_next(self) -> None:
        self._now, group = heapq.heappop(self._ends)
        self._buffer.end(group)
        self._tell(GroupEnded(accepted=True))

    def _tell(self, event: GateEvent) -> None:
        for admit in self._gate.handle(event, self._now):
            for group in range(self._admitted, self._admitted + admit.count):
                self._buffer.admit(group, admit.version)
                heapq.heappush(self._ends, (self._now + self._spans.groups[group].rollout_s, group))
            self._admitted += admit.count


def _tokens(row: Row) -> int:
    return row["prompt_tokens"] + row["response_tokens"]
