"""Brings the recorded runs of analysis/data to this version: python -m tests.unit.analysis.refresh.

Keys that a configuration lacks are those of the quickstart, foreign ones go; columns that a trace lacks have their
default. What has neither is to be recorded again (analysis/README.md).
"""

from dataclasses import MISSING, fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from sestina.config.load import load
from sestina.config.resolved import as_dict, read_resolved
from sestina.telemetry.traces import ChunkRow, RequestRow, schema_of
from tests.unit.config.helpers import composed

DATA = Path(__file__).parents[3] / "analysis" / "data"


def merged(recorded, defaults):
    """Return `recorded` with the keys of `defaults`, as far as both are of one kind."""
    if recorded.get("kind") != defaults.get("kind"):
        return recorded
    return {
        key: merged(recorded[key], value) if isinstance(value, dict) and isinstance(recorded.get(key), dict)
        else recorded.get(key, value)
        for key, value in defaults.items()
    }  # fmt: skip


def widened(table, kind):
    """Return a table with the columns of `kind`, in their order."""
    schema = schema_of(kind)
    for field in fields(kind):
        if field.name not in table.column_names and field.default is not MISSING:
            values = pa.array([field.default] * table.num_rows, schema.field(field.name).type)
            table = table.append_column(schema.field(field.name), values)
    return table.select(schema.names).cast(schema)


def main():
    defaults = as_dict(load(composed("+exp=quickstart")))
    for config in sorted(DATA.glob("*/config.yaml")):
        tree = merged(yaml.safe_load(config.read_text()), defaults)
        config.write_text(yaml.safe_dump(tree, sort_keys=False))
        read_resolved(config)
        for name, kind in (("requests", RequestRow), ("chunks", ChunkRow)):
            for path in (config.parent / "traces" / name).glob("*.parquet"):
                found = pq.ParquetFile(path).read()
                if not found.schema.equals(schema_of(kind)):
                    pq.write_table(widened(found, kind), path, compression="zstd")
        print(config.parent)


if __name__ == "__main__":
    main()
