"""What became of every request and every chunk, as Parquet: run_dir/traces/{requests,chunks}/step_000012.parquet.

All instants are seconds on the controller's monotonic clock.
"""

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import NoneType
from typing import TypeAlias, get_args, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from sestina.core.errors import DataError
from sestina.core.ids import GroupId
from sestina.core.units import InstanceId, Seconds, Version
from sestina.telemetry.aside import written_aside


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One response, from its offer to its reward."""

    step: int
    group: GroupId
    sample: int
    prompt_id: str
    evaluation: bool
    prompt_tokens: int
    response_tokens: int
    num_chunks: int
    finish: str
    reward: float | None
    reward_error: str | None
    """Why there is no reward, or, where the rule says so, why it is what it is."""
    reward_s: Seconds
    """Span: what the reward worker took."""
    first_version: Version
    last_version: Version
    """Weights of its first and its last chunk."""
    offered_s: Seconds
    started_s: Seconds
    finished_s: Seconds
    rewarded_s: Seconds
    preemptions: int
    prefilled_tokens: int
    cached_tokens: int
    text_rank: int = 0
    common_tokens: int = 0
    """As in `Beginning`, among the group's responses of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRow:
    """One chunk of one response."""

    step: int
    group: GroupId
    sample: int
    chunk: int
    """Index within the response."""
    instance: InstanceId
    reason: str
    """Why it ran there: `Dispatch.reason`."""
    budget_tokens: int
    tokens: int
    finish: str
    version: Version
    dispatched_s: Seconds
    submitted_s: Seconds
    started_s: Seconds
    finished_s: Seconds
    received_s: Seconds
    """In order: left the controller, reached the engine, first in a batch, last token known, back at the controller."""
    prefilled_tokens: int
    cached_tokens: int
    preemptions: int
    drafted_tokens: int
    accepted_tokens: int
    """Drafted tokens that were what the model drew."""
    kv_source: str = "none"
    kv_target: str = "none"
    kv_loaded_tokens: int = 0
    kv_moved_bytes: int = 0
    kv_demoted: int = 0
    kv_evicted: int = 0
    kv_s: Seconds = 0.0
    """As in `KvTraffic`; `kv_s` is a span."""
    restored: bool = False
    """Ran in an earlier start of the run, on an instance of that one; instants are as if it had ended as this began."""


Row: TypeAlias = RequestRow | ChunkRow

_COLUMN_TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


def write_step(run_dir: Path, step: int, requests: Sequence[RequestRow], chunks: Sequence[ChunkRow]) -> None:
    """Write both files of a step, in place of those a former attempt at it left.

    Raises ValueError when a row is of another step or lacks a value it must have.
    """
    _write(run_dir / "traces" / "requests", step, RequestRow, requests)
    _write(run_dir / "traces" / "chunks", step, ChunkRow, chunks)


def drop_steps(run_dir: Path, first_step: int) -> None:
    """Remove the files of `first_step` and later, which a resumed run will write again."""
    for path in (run_dir / "traces").glob("*/step_*.parquet"):
        if int(path.stem.removeprefix("step_")) >= first_step:
            path.unlink()


def read_requests(run_dir: Path) -> pa.Table:
    """Return the requests of all steps in order, columns as in RequestRow; no rows when none were written."""
    return _read(run_dir / "traces" / "requests", RequestRow)


def read_chunks(run_dir: Path) -> pa.Table:
    """Return the chunks of all steps in order, columns as in ChunkRow; no rows when none were written."""
    return _read(run_dir / "traces" / "chunks", ChunkRow)


def tail_start(finished_s: Sequence[Seconds]) -> Seconds:
    """Return when 90 % of the responses that finished at these instants had; what follows is the tail."""
    return sorted(finished_s)[-(-9 * len(finished_s) // 10) - 1]


def schema_of(row: type[Row]) -> pa.Schema:
    """Return a row's columns; those that may be None are nullable."""
    columns: list[pa.Field] = []
    for name, hint in get_type_hints(row).items():
        options = get_args(hint) or (hint,)
        (kind,) = (option for option in options if option is not NoneType)
        columns.append(pa.field(name, _COLUMN_TYPES[kind], nullable=NoneType in options))
    return pa.schema(columns)


def _write(folder: Path, step: int, kind: type[Row], rows: Sequence[Row]) -> None:
    other = [row.step for row in rows if row.step != step]
    if other:
        raise ValueError(f"a {kind.__name__} of step {other[0]} among those of step {step}")
    columns = {field.name: [getattr(row, field.name) for row in rows] for field in fields(kind)}
    folder.mkdir(parents=True, exist_ok=True)
    with written_aside(folder / f"step_{step:06d}.parquet") as aside:
        pq.write_table(pa.table(columns, schema=schema_of(kind)), aside, compression="zstd")


def _read(folder: Path, kind: type[Row]) -> pa.Table:
    schema = schema_of(kind)
    tables = [schema.empty_table()]
    for path in sorted(folder.glob("step_*.parquet")):
        try:
            table = pq.ParquetFile(path).read()
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path}: not a Parquet file: {error}") from None
        table = _with_later_columns(table, kind, schema)
        if not table.schema.equals(schema):
            raise DataError(f"{path}: columns must be those of {kind.__name__}; {_differences(table.schema, schema)}")
        tables.append(table)
    return pa.concat_tables(tables)


def _with_later_columns(table: pa.Table, kind: type[Row], schema: pa.Schema) -> pa.Table:
    """Return it with the columns that have a default and were not yet there when it was written."""
    for place, field in enumerate(fields(kind)):
        if field.default is not MISSING and field.name not in table.column_names:
            column = pa.repeat(pa.scalar(field.default, schema.field(place).type), len(table))
            table = table.add_column(min(place, table.num_columns), schema.field(place), column)
    return table


def _differences(found: pa.Schema, wanted: pa.Schema) -> str:
    """Say what sets columns apart, missing ones first."""
    missing = [name for name in wanted.names if name not in found.names]
    foreign = [name for name in found.names if name not in wanted.names]
    other = [
        f"{name} is {found.field(name).type} instead of {wanted.field(name).type}"
        for name in wanted.names
        if name in found.names and not found.field(name).equals(wanted.field(name))
    ]
    parts = [f"missing: {', '.join(missing)}"] * bool(missing) + [f"foreign: {', '.join(foreign)}"] * bool(foreign)
    return "; ".join([*parts, *other]) or f"their order is {', '.join(found.names)}"
