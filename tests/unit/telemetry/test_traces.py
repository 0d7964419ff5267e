from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sestina.core.errors import DataError
from sestina.telemetry.traces import (
    ChunkRow,
    RequestRow,
    drop_steps,
    read_chunks,
    read_requests,
    schema_of,
    tail_start,
    write_step,
)

from .helpers import Rollouts


@pytest.fixture(scope="module")
def rows():
    rollouts = Rollouts()
    return {step: rollouts.step(step, num_groups=3) for step in (9, 10, 11)}


def test_every_row_comes_back_in_order_of_steps(tmp_path, rows):
    for step in (10, 9, 11):
        write_step(tmp_path, step, *rows[step])
    requests = [RequestRow(**row) for row in read_requests(tmp_path).to_pylist()]
    chunks = [ChunkRow(**row) for row in read_chunks(tmp_path).to_pylist()]
    assert requests == [row for step in (9, 10, 11) for row in rows[step][0]]
    assert chunks == [row for step in (9, 10, 11) for row in rows[step][1]]
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")}
    assert names == {f"traces/{k}/step_{s:06d}.parquet" for k in ("requests", "chunks") for s in (9, 10, 11)}


def test_columns_are_those_of_the_dataclass():
    schema = schema_of(RequestRow)
    assert schema.field("step") == pa.field("step", pa.int64(), nullable=False)
    assert schema.field("evaluation") == pa.field("evaluation", pa.bool_(), nullable=False)
    assert schema.field("reward") == pa.field("reward", pa.float64(), nullable=True)
    assert schema.field("reward_error") == pa.field("reward_error", pa.string(), nullable=True)
    assert schema.field("first_version").type == pa.int64()
    assert schema_of(ChunkRow).names == list(ChunkRow.__dataclass_fields__)


def test_a_failed_reward_is_null(tmp_path, rows):
    failed = replace(rows[9][0][0], reward=None, reward_error="ran 5 s")
    write_step(tmp_path, 9, [failed], [])
    assert read_requests(tmp_path).select(["reward", "reward_error"]).to_pylist() == [
        {"reward": None, "reward_error": "ran 5 s"}
    ]


def test_a_value_that_must_be_there_is_demanded_and_the_former_file_stays(tmp_path, rows):
    write_step(tmp_path, 9, *rows[9])
    with pytest.raises(ValueError, match="non-nullable"):
        write_step(tmp_path, 9, [replace(rows[9][0][0], finished_s=None)], [])
    assert read_requests(tmp_path).num_rows == len(rows[9][0])
    assert not list(tmp_path.rglob(".*")), "nothing is left aside"


def test_a_row_of_another_step_is_refused(tmp_path, rows):
    with pytest.raises(ValueError, match="a ChunkRow of step 10 among those of step 9"):
        write_step(tmp_path, 9, rows[9][0], rows[10][1])


def test_a_step_taken_again_replaces_its_rows(tmp_path, rows):
    write_step(tmp_path, 9, *rows[9])
    write_step(tmp_path, 9, rows[9][0][:1], rows[9][1][:2])
    assert (read_requests(tmp_path).num_rows, read_chunks(tmp_path).num_rows) == (1, 2)


def test_steps_that_will_be_taken_again_can_be_dropped(tmp_path, rows):
    for step, (requests, chunks) in rows.items():
        write_step(tmp_path, step, requests, chunks)
    drop_steps(tmp_path, 10)
    assert set(read_requests(tmp_path)["step"].to_pylist()) == {9}
    assert set(read_chunks(tmp_path)["step"].to_pylist()) == {9}


def test_without_traces_there_are_columns_and_no_rows(tmp_path):
    assert (read_requests(tmp_path).num_rows, read_requests(tmp_path).schema) == (0, schema_of(RequestRow))
    drop_steps(tmp_path, 0)


def test_a_file_that_is_no_trace_is_named(tmp_path, rows):
    write_step(tmp_path, 9, *rows[9])
    path = tmp_path / "traces" / "chunks" / "step_000010.parquet"
    path.write_bytes(b"no parquet")
    with pytest.raises(DataError, match=r"step_000010\.parquet: not a Parquet file"):
        read_chunks(tmp_path)
    pq.write_table(pa.table({"step": [10]}), path)
    with pytest.raises(
        DataError, match=r"step_000010\.parquet: columns must be those of ChunkRow; missing: group, sample, chunk"
    ):
        read_chunks(tmp_path)


def test_a_file_of_before_a_column_has_its_default(tmp_path, rows):
    write_step(tmp_path, 9, *rows[9])
    written = read_chunks(tmp_path)
    path = tmp_path / "traces" / "chunks" / "step_000009.parquet"
    pq.write_table(written.drop_columns(["kv_source", "restored"]), path)
    assert read_chunks(tmp_path).equals(written)


def test_a_directory_named_like_a_partition_adds_no_column(tmp_path, rows):
    run_dir = tmp_path / "lr=1"
    write_step(run_dir, 9, *rows[9])
    assert read_requests(run_dir).schema == schema_of(RequestRow)


@pytest.mark.parametrize(("count", "finished_before"), [(1, 1), (2, 2), (9, 9), (10, 9), (11, 10), (16, 15), (100, 90)])
def test_the_tail_starts_when_nine_in_ten_are_finished(count, finished_before):
    assert tail_start([float(i) for i in reversed(range(1, count + 1))]) == finished_before


def test_every_column_is_documented():
    text = (Path(__file__).parents[3] / "docs" / "traces.md").read_text()
    requests, chunks = text.split("\n## ")[1:3]
    for section, kind in ((requests, RequestRow), (chunks, ChunkRow)):
        first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
        assert {name for cell in first_cells for name in cell.split("`")[1::2]} == set(schema_of(kind).names)
