"""A run as a timeline for Perfetto and chrome://tracing, in the Trace Event Format of Chrome (JSON object form).

Process 1 + N is instance N, whose threads are the lanes of chunks that run at once, with a counter of those running;
process 0 is the controller: steps and their phases, as far as steps follow each other. Times are microseconds since the
first offer.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from sestina.analysis.curves import lanes_of, origin_of, running
from sestina.analysis.run import Run
from sestina.core.units import InstanceId, Seconds
from sestina.telemetry.aside import written_aside
from sestina.telemetry.idle import Spans
from sestina.telemetry.traces import ChunkRow

CONTROLLER = 0


def write_timeline(run: Run, path: Path) -> int:
    """Write a run's timeline; returns how many events it has."""
    events = list(events_of(run))
    document = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"run": run.name, "origin": run.origin}}
    with written_aside(path) as aside:
        aside.write_bytes(msgspec.json.encode(document))
    return len(events)


def events_of(run: Run) -> Iterator[dict[str, Any]]:
    """Yield names, then what happened."""
    tables = (run.requests, run.evaluation[0])
    zero_s = min(at for table in tables for at in table["offered_s"].to_pylist() if at is not None)
    yield _named("process_name", CONTROLLER, 0, "controller")
    yield _named("thread_name", CONTROLLER, 0, "steps")
    if not run.config.overlaps:
        for step in run.steps:
            yield from _phases(run, step, zero_s)
    chunks = [ChunkRow(**row) for table in (run.chunks, run.evaluation[1]) for row in table.to_pylist()]
    for instance in sorted({row.instance for row in chunks}):
        yield from _instance(instance, [row for row in chunks if row.instance == instance], zero_s)


def _phases(run: Run, step: int, zero_s: Seconds) -> Iterator[dict[str, Any]]:
    values = next((line.values for line in run.metrics if line.step == step), {})
    if "perf/step_s" not in values:
        return
    begin_s = origin_of(run.rows_of(step)[0], "sync") - zero_s
    spans = Spans.of(values)
    yield _span(f"step {step}", "step", CONTROLLER, 0, begin_s, spans.step_s, {"step": step})
    starts = (0.0, *spans.ends_s[:3])
    for name, start, end in zip(("rollout", "train", "weights", "rest"), starts, spans.ends_s, strict=True):
        if end > start:
            yield _span(name, "phase", CONTROLLER, 0, begin_s + start, end - start, {"step": step})


def _instance(instance: InstanceId, chunks: list[ChunkRow], zero_s: Seconds) -> Iterator[dict[str, Any]]:
    process, lanes = 1 + instance, lanes_of(chunks)
    yield _named("process_name", process, 0, f"instance {instance}")
    for lane in range(max(lanes) + 1):
        yield _named("thread_name", process, lane, f"lane {lane}")
    for row, lane in zip(chunks, lanes, strict=True):
        start_s, span_s = row.started_s - zero_s, row.finished_s - row.started_s
        yield _span(f"g{row.group}/s{row.sample}", row.finish, process, lane, start_s, span_s, _told(row))
    for at, count in zip(*running(chunks, zero_s), strict=True):
        yield {"name": "running", "ph": "C", "ts": _us(at), "pid": process, "args": {"chunks": int(count)}}


def _told(row: ChunkRow) -> dict[str, Any]:
    names = ("step", "chunk", "reason", "tokens", "prefilled_tokens", "cached_tokens", "preemptions", "accepted_tokens")
    return {name: getattr(row, name) for name in names} | {"queued_s": row.started_s - row.dispatched_s}


def _span(
    name: str, category: str, process: int, lane: int, start_s: Seconds, span_s: Seconds, told: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": _us(start_s),
        "dur": _us(span_s),
        "pid": process,
        "tid": lane,
        "args": told,
    }


def _named(what: str, process: int, lane: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "ts": 0, "pid": process, "tid": lane, "args": {"name": name}}


def _us(seconds: Seconds) -> float:
    return round(1e6 * float(seconds), 3)
