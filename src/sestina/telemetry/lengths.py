"""Recorded response lengths, strictly read: of a run directory, or of one Parquet file (docs/traces.md).

Both have the columns of a run's `traces/requests`; a file needs those of COLUMNS alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sestina.core.errors import DataError
from sestina.telemetry.beginnings import Beginning
from sestina.telemetry.traces import read_requests

LEAST = {"step": 0, "group": 0, "sample": 0, "prompt_tokens": 1, "response_tokens": 1}
"""Whole-number columns, and what their values are at least."""

FINISHES = ("stop", "length", "turn")
"""Values of column `finish`: the end of sequence was drawn, the limit reached, or a turn ended that nobody answered."""

COLUMNS = (*LEAST, "finish")
_KEY = ("step", "group", "sample")


def read_lengths(source: Path) -> pa.Table:
    """Return COLUMNS of every recorded response, in the order of the recording.

    Raises DataError naming the source, the column and the row when it cannot be read, lacks a column, or holds a value
    that no run leaves, or two rows of one response.
    """
    table = _read(source)
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise DataError(f"{source}: lacks column {', '.join(missing)}; a recording has {', '.join(COLUMNS)}")
    if not table.num_rows:
        raise DataError(f"{source}: holds no responses; a run leaves its own in traces/requests")
    table = table.select(COLUMNS)
    for name, least in LEAST.items():
        _check_numbers(source, table.column(name), name, least)
    _check_finishes(source, table.column("finish"))
    _check_unique(source, table)
    return table


def read_spans(source: Path, name: str) -> "pa.ChunkedArray[Any] | None":
    """Return a column of seconds, None when the recording has none of that name; raises DataError for a negative."""
    table = _read(source)
    if name not in table.column_names:
        return None
    column = table.column(name)
    if not pa.types.is_floating(column.type):
        raise DataError(f"{source}: column {name} is of type {column.type}; allowed are numbers")
    _refuse_first(source, column, name, lambda value: not 0 <= value < math.inf, "at least 0")
    return column


def read_prompt_ids(source: Path) -> "pa.ChunkedArray[Any] | None":
    """Return by what each response's prompt is known again, None when the recording does not say."""
    table = _read(source)
    if "prompt_id" not in table.column_names:
        return None
    column = table.column("prompt_id")
    if not pa.types.is_string(column.type):
        raise DataError(f"{source}: column prompt_id is of type {column.type}; allowed is text")
    _refuse_first(source, column, "prompt_id", lambda value: not value, "text that is not empty")
    return column


def read_beginnings(source: Path) -> dict[str, "pa.ChunkedArray[Any]"]:
    """Return both columns of `Beginning`, 0 throughout when a recording lacks one; raises DataError for a negative."""
    table = _read(source)
    if not set(Beginning._fields) <= set(table.column_names):
        nothing = pa.chunked_array([pa.repeat(0, len(table))])
        return dict.fromkeys(Beginning._fields, nothing)
    found = {name: table.column(name) for name in Beginning._fields}
    for name, column in found.items():
        _check_numbers(source, column, name, 0)
    return found


@dataclass(frozen=True, slots=True)
class Answer:
    """One recorded response, as far as it says how long answers to its prompt are."""

    prompt_id: str
    step: int
    prompt_tokens: int
    response_tokens: int


def read_answers(source: Path) -> list[Answer]:
    """Return the recorded responses to training prompts; raises DataError as `read_lengths`, or when they lack ids."""
    read_lengths(source)
    table = _read(source)
    if "prompt_id" not in table.column_names:
        raise DataError(f"{source}: lacks column prompt_id, by which answers are known again")
    columns = [table.column(field.name).to_pylist() for field in fields(Answer)]
    held_out = table.column("evaluation").to_pylist() if "evaluation" in table.column_names else [False] * len(table)
    return [Answer(*row) for row, left_out in zip(zip(*columns, strict=True), held_out, strict=True) if not left_out]


def _read(source: Path) -> pa.Table:
    if source.is_dir():
        return read_requests(source)
    try:
        return pq.ParquetFile(source).read()
    except FileNotFoundError:
        raise DataError(f"{source}: no such run directory or Parquet file") from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{source}: neither a run directory nor a Parquet file: {error}") from None


def _check_numbers(source: Path, column: "pa.ChunkedArray[Any]", name: str, least: int) -> None:
    if not pa.types.is_integer(column.type):
        raise DataError(f"{source}: column {name} is of type {column.type}; allowed are whole numbers")
    _refuse_first(source, column, name, lambda value: value < least, f"at least {least}")


def _check_finishes(source: Path, column: "pa.ChunkedArray[Any]") -> None:
    if not pa.types.is_string(column.type):
        raise DataError(f"{source}: column finish is of type {column.type}; allowed is text")
    _refuse_first(source, column, "finish", lambda value: value not in FINISHES, " or ".join(FINISHES))


def _refuse_first(
    source: Path, column: "pa.ChunkedArray[Any]", name: str, wrong: Callable[[Any], bool], allowed: str
) -> None:
    for row, value in enumerate(column.to_pylist(), start=1):
        if value is None or wrong(value):
            raise DataError(f"{source}: row {row}: {name} is {value}; allowed is {allowed}")


def _check_unique(source: Path, table: pa.Table) -> None:
    seen: set[tuple[int, ...]] = set()
    for row, key in enumerate(zip(*(table.column(name).to_pylist() for name in _KEY), strict=True), start=1):
        if key in seen:
            raise DataError(f"{source}: row {row}: step {key[0]} has group {key[1]}, sample {key[2]} twice")
        seen.add(key)
