"""Where the instances' time went in a step, by cause.

The area of a step is its seconds times the instances. What is not spent on computing a token for the first time is
lost, and every instance-second lost has one cause. An instance is busy while a chunk is in a batch there; before the
batch is rolled out, a time in which it is not busy counts as

    last_request  one response is left, wherever it is
    queueing      chunks are on their way to it or wait in it, or responses wait to be placed
    imbalance     all that is left runs elsewhere
    reward        no response is left, rewards are

and after that as `train`, `weights` or `rest` (evaluation). `recompute` is the part of its busy time in which keys and
values were computed again, after a preemption or in a resumed chunk: at every moment the share that tokens computed
again have of all tokens in flight there, each spread evenly over its chunk. That is exact where every token costs the
same, and an upper bound where a token prefilled is cheaper than one decoded, as with most engines.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sestina.core.units import InstanceId, Seconds
from sestina.telemetry.sweep import CAUSES, Cause, Change, Sweep
from sestina.telemetry.traces import ChunkRow, RequestRow

PREFIX = "perf/idle/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """A synchronous step, whose parts follow each other; an evaluation is part of the rest."""

    step_s: Seconds
    rollout_s: Seconds
    train_s: Seconds = 0.0
    weights_s: Seconds = 0.0

    @classmethod
    def of(cls, values: Mapping[str, float]) -> "Spans":
        """Pick from the metrics of a step; a simulated one has neither training nor weights."""
        later = {name: values.get(f"perf/{name}", 0.0) for name in ("train_s", "weights_s")}
        return cls(step_s=values["perf/step_s"], rollout_s=values["perf/rollout_s"], **later)

    @property
    def ends_s(self) -> tuple[Seconds, Seconds, Seconds, Seconds]:
        """Since the step began: end of rollout, of training, of the weight update, of the step."""
        trained_s = self.rollout_s + self.train_s
        first, second, third = (
            min(end, self.step_s) for end in (self.rollout_s, trained_s, trained_s + self.weights_s)
        )
        return first, second, third, self.step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """The area of one step, in instance-seconds."""

    area_s: Seconds
    useful_s: Seconds
    """Instances computed tokens for the first time."""
    lost_s: dict[Cause, Seconds]
    """By cause; together with `useful_s` it is `area_s`."""

    def metrics(self) -> dict[str, float]:
        """Return `perf/idle/area_s`, `perf/idle/lost_s` and one for each cause."""
        values = {"area_s": self.area_s, "lost_s": math.fsum(self.lost_s.values())}
        values |= {f"{cause}_s": self.lost_s[cause] for cause in CAUSES}
        return {PREFIX + name: value for name, value in values.items()}


def idle_of(requests: Sequence[RequestRow], chunks: Sequence[ChunkRow], *, num_instances: int, spans: Spans) -> Idle:
    """Return what became of a step's area, given all of its rows, those of its evaluation included.

    The step begins when its batch is offered. Raises AssertionError when the parts are not the whole.
    """
    trained = [row for row in requests if not row.evaluation]
    begin_s = _begin_s(trained, [row for row in chunks if row.restored], spans)
    # The others ran in an earlier start, on whatever instances there were; older traces tell by their instants alone.
    here = [row for row in chunks if not row.restored and row.dispatched_s >= begin_s]
    prompts = {(row.group, row.sample): row.prompt_tokens for row in requests}
    sweep = Sweep(num_instances, spans.ends_s)
    changes = (*_of_requests(trained, begin_s, spans), *_of_chunks(here, trained, prompts, begin_s, spans))
    for at_s, change in sorted(changes, key=lambda each: each[0]):
        sweep.advance(at_s)
        sweep.take(change)
    sweep.advance(spans.step_s)
    area_s = num_instances * spans.step_s
    useful_s = _busy_s(here, begin_s, spans) - sweep.lost_s["recompute"]
    gap_s = math.fsum([area_s, -useful_s, *(-lost for lost in sweep.lost_s.values())])
    assert abs(gap_s) <= 1e-6 * max(1.0, area_s), f"{gap_s} of {area_s} instance-seconds have no cause, or two"
    return Idle(area_s=area_s, useful_s=useful_s, lost_s=sweep.lost_s)


def _begin_s(trained: Sequence[RequestRow], restored: Sequence[ChunkRow], spans: Spans) -> Seconds:
    """Return when the batch was offered; responses that an earlier start began, maybe all, were offered before."""
    ends_s = max(max(row.finished_s, row.rewarded_s) for row in trained)
    before_s = [*(row.offered_s for row in trained), *(row.finished_s for row in restored)]
    return max(ends_s - spans.rollout_s, *before_s)


def _of_requests(trained: Sequence[RequestRow], begin_s: Seconds, spans: Spans) -> Iterator[tuple[Seconds, Change]]:
    for row in trained:
        yield 0.0, Change(open=1)
        yield _within(row.finished_s, begin_s, spans), Change(open=-1)


def _of_chunks(
    chunks: Sequence[ChunkRow],
    trained: Sequence[RequestRow],
    prompts: Mapping[tuple[int, int], int],
    begin_s: Seconds,
    spans: Spans,
) -> Iterator[tuple[Seconds, Change]]:
    counted = {(row.group, row.sample) for row in trained}
    for row in chunks:
        key, instance = (row.group, row.sample), row.instance
        placed = int(key in counted)
        started, finished = (_within(at, begin_s, spans) for at in (row.started_s, row.finished_s))
        pace, again = _paces(row, prompts[key], finished - started)
        arrives = min(_within(row.dispatched_s, begin_s, spans), started)
        yield arrives, Change(instance=instance, placed=placed, queued=1)
        yield started, Change(instance=instance, queued=-1, running=1, pace=pace, again_pace=again)
        yield finished, Change(instance=instance, placed=-placed, running=-1, pace=-pace, again_pace=-again)


def _paces(row: ChunkRow, prompt_tokens: int, span_s: Seconds) -> tuple[float, float]:
    """Return tokens per second that a chunk had computed, and those of them that were computed again."""
    if span_s <= 0:
        return 0.0, 0.0
    again = row.prefilled_tokens if row.chunk else max(0, row.prefilled_tokens - prompt_tokens)
    return (row.tokens + row.prefilled_tokens) / span_s, again / span_s


def _within(at_s: Seconds, begin_s: Seconds, spans: Spans) -> Seconds:
    return min(max(at_s - begin_s, 0.0), spans.step_s)


def _busy_s(chunks: Sequence[ChunkRow], begin_s: Seconds, spans: Spans) -> Seconds:
    """Return instance-seconds with a chunk in a batch, by joining spans: the sweep is held against it."""
    total_s: Seconds = 0.0
    until: dict[InstanceId, Seconds] = {}
    for row in sorted(chunks, key=lambda row: row.started_s):
        start = max(_within(row.started_s, begin_s, spans), until.get(row.instance, 0.0))
        end = _within(row.finished_s, begin_s, spans)
        if end > start:
            total_s += end - start
            until[row.instance] = end
    return total_s
