"""One reader of run directories, whichever kind of run has left them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from sestina.config.resolved import read_resolved
from sestina.config.run import RunConfig
from sestina.controller.run_dir import CONFIG, JOURNAL, holder
from sestina.core.errors import ConfigError, DataError, RunDirError
from sestina.core.ids import EVAL_GROUPS
from sestina.policies.events import InstanceUp
from sestina.telemetry.idle import Idle, Spans, idle_of
from sestina.telemetry.journal import Segment, read_journal
from sestina.telemetry.metrics import StepMetrics, read_metrics
from sestina.telemetry.traces import ChunkRow, RequestRow, read_chunks, read_requests

Origin: TypeAlias = Literal["real", "emulated", "simulated"]
_ORDER = ("dispatched_s", "submitted_s", "started_s", "finished_s", "received_s")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """What a run has left, read once."""

    path: Path
    config: RunConfig
    metrics: list[StepMetrics]
    requests: pa.Table
    """Columns of RequestRow, evaluation left out."""
    chunks: pa.Table
    """Columns of ChunkRow, evaluation left out."""
    evaluation: tuple[pa.Table, pa.Table]
    """The same of held-out prompts."""

    @property
    def name(self) -> str:
        """Return what figures call it."""
        return self.path.resolve().name

    @property
    def origin(self) -> Origin:
        """Return which kind of run it was."""
        if self.config.sim is None:
            return "real"
        return "emulated" if self.config.sim.world == "emulated" else "simulated"

    @property
    def kv_capacity_tokens(self) -> int:
        """Return what one instance said it can hold when it came up; raises DataError when the journal lacks it."""
        for segment in self.journal():
            for entry in segment.entries:
                if isinstance(entry.event, InstanceUp):
                    return entry.event.kv_capacity_tokens
        raise DataError(f"{self.path / JOURNAL}: no instance came up in it")

    @property
    def steps(self) -> list[int]:
        """Return the steps that have traces of training responses, in order."""
        return sorted({row["step"] for row in self.requests.select(["step"]).to_pylist()})

    def rows_of(self, step: int) -> tuple[list[RequestRow], list[ChunkRow]]:
        """Return a step's training responses and their chunks."""
        return _rows(RequestRow, self.requests, step), _rows(ChunkRow, self.chunks, step)

    def idle(self, step: int) -> Idle | None:
        """Return what became of a step's area; None for one that does not stand alone, or has no metrics."""
        values = next((line.values for line in self.metrics if line.step == step), {})
        if self.config.overlaps or "perf/step_s" not in values:
            return None
        requests, chunks = self.rows_of(step)
        held_out = _rows(RequestRow, self.evaluation[0], step), _rows(ChunkRow, self.evaluation[1], step)
        count = self.config.rollout.num_instances
        return idle_of(requests + held_out[0], chunks + held_out[1], num_instances=count, spans=Spans.of(values))

    def journal(self) -> list[Segment]:
        """Read the journal; raises DataError when it is none."""
        return list(read_journal(self.path / JOURNAL))


def read_run(path: Path) -> Run:
    """Read a run directory.

    Raises RunDirError when there is none, it is empty, a live run holds it, or it is of another version of the
    configuration; DataError when metrics or traces are damaged, lack a column, or have times that run backwards.
    """
    if not path.is_dir():
        raise RunDirError(
            f"{path}: no such directory; a run directory is one that launch/train.py or simulate.py wrote"
        )
    if (held_by := holder(path)) is not None:
        raise RunDirError(f"{path}: still being written by a live run ({held_by}); wait until it has ended, or stop it")
    if not (path / CONFIG).exists():
        raise RunDirError(f"{path}: has no {CONFIG}; a run directory has one, with metrics.jsonl and traces/ beside it")
    try:
        config = read_resolved(path / CONFIG)
    except ConfigError as error:
        raise RunDirError(
            f"{path}: of another version: {len(error.violations)} keys of {CONFIG} are not those of this version, the "
            f"first: {error.violations[0]}"
        ) from None
    metrics = read_metrics(path)
    requests, chunks = read_requests(path), read_chunks(path)
    if not requests.num_rows:
        raise RunDirError(f"{path}: its traces hold no response; a run leaves some after its first step")
    _check_times(path, requests, chunks)
    held_out = pc.field("group") >= pc.scalar(EVAL_GROUPS)
    split = [table.filter(held_out) for table in (requests, chunks)]
    kept = [table.filter(pc.invert(held_out)) for table in (requests, chunks)]
    return Run(
        path=path, config=config, metrics=metrics, requests=kept[0], chunks=kept[1], evaluation=(split[0], split[1])
    )


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Read several, as `read_run`; raises RunDirError also for two of one name, by which figures tell them apart."""
    named: dict[str, Path] = {}
    for path in map(Path, paths):
        other = named.setdefault(path.resolve().name, path)
        if other is not path:
            raise RunDirError(
                f"{path}: another directory of the same name is given, {other}; figures tell runs apart by the names "
                "of their directories, so that each needs its own"
            )
    return [read_run(path) for path in named.values()]


def _rows(kind: type[Any], table: pa.Table, step: int) -> list[Any]:
    return [kind(**row) for row in table.filter(pc.field("step") == pc.scalar(step)).to_pylist()]


def _check_times(path: Path, requests: pa.Table, chunks: pa.Table) -> None:
    for name, table in (("reward_s", requests), ("kv_s", chunks)):
        _refuse(path, table, table[name].to_pylist(), f"{name} is %g s, allowed is 0 or more")
    for table, order in ((chunks, _ORDER), (requests, ("started_s", "finished_s"))):
        for before, after in pairwise(order):
            spans = pc.subtract(table[after], table[before]).to_pylist()
            _refuse(path, table, spans, f"{after} comes %g s after {before}, allowed is 0 or more")


def _refuse(path: Path, table: pa.Table, spans: Sequence[Any], reason: str) -> None:
    for row, span in enumerate(spans):
        if not (math.isfinite(span) and span >= 0):
            step, group, sample = (table[name][row].as_py() for name in ("step", "group", "sample"))
            raise DataError(f"{path}: traces: step {step}, group {group}, sample {sample}: {reason % span}")
