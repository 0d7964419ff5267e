"""Prompt sets as verl writes them: Parquet with `data_source`, `prompt` (chat messages), `reward_model.ground_truth`.

`extra_info` and every other column are kept in `meta`; `extra_info.index` is the id when present, else the row.
"""

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from sestina.core.errors import DataError
from sestina.data.jsonl import check_prompt
from sestina.data.problems import collect
from sestina.data.prompt import RawPrompt

COLUMNS = ("data_source", "prompt", "reward_model")


def read_parquet(path: Path) -> list[RawPrompt]:
    """Read a file; raises DataError naming the file's or every bad row's fault (rows count from 1)."""
    return collect(path, enumerate(_rows(path), start=1), _parse)


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a Parquet file: {error}") from None
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise DataError(f"{path}: column '{missing[0]}' is missing; the file has {sorted(table.column_names)}")
    return table.to_pylist()


def _parse(row: dict[str, Any], where: str, number: int) -> RawPrompt:
    reward_model = row["reward_model"]
    if not isinstance(reward_model, dict) or reward_model.get("ground_truth") is None:
        raise ValueError("'reward_model' has no 'ground_truth'")
    if not isinstance(row["data_source"], str):
        raise ValueError(f"'data_source' must be text, found {type(row['data_source']).__name__}")
    extra_info = cast("dict[str, Any]", row.get("extra_info") or {})
    name = extra_info.get("index")
    return RawPrompt(
        id=str(number if name is None else name),
        prompt=check_prompt(row["prompt"]),
        label=cast("Any", reward_model["ground_truth"]),
        meta={key: value for key, value in row.items() if key not in ("prompt", "reward_model")},
        where=where,
    )
