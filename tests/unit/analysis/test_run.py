import fcntl
import shutil
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sestina.analysis.run import read_run, read_runs
from sestina.controller.plan import planner_of
from sestina.controller.run_dir import RunDir
from sestina.core.errors import DataError, RunDirError
from sestina.telemetry.metrics import series
from sestina.telemetry.replay import replay
from sestina.telemetry.traces import ChunkRow, write_step


@pytest.fixture
def copied(tmp_path, divided):
    """A copy of a run directory, to spoil."""
    return shutil.copytree(divided.path, tmp_path / "run")


def test_a_run_is_read_whole(divided):
    assert divided.name == "divided"
    assert divided.origin == "real"
    assert divided.steps == [1, 2]
    requests, chunks = divided.rows_of(2)
    assert len(requests) == 32
    assert {row.step for row in chunks} == {2}
    assert divided.kv_capacity_tokens == 4096


def test_an_emulated_run_says_so(left):
    assert left("emulated", "sim=emulated").origin == "emulated"


def test_what_was_lost_can_be_told_again_from_the_directory(divided):
    for step in divided.steps:
        logged = next(line.values for line in divided.metrics if line.step == step)
        for name, value in divided.idle(step).metrics().items():
            assert logged[name] == pytest.approx(value), name
    assert len(series(divided.metrics, "perf/idle/lost_s")) == 2


def test_the_journal_replays_with_equal_commands(divided):
    [segment] = divided.journal()
    assert replay(segment, planner_of(divided.config)) is None
    other = replace(divided.config, rollout=replace(divided.config.rollout, chunk_tokens=8))
    assert replay(segment, planner_of(other)) is not None


def test_what_is_no_run_directory_is_named(tmp_path, copied):
    with pytest.raises(RunDirError, match="nowhere: no such directory"):
        read_run(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunDirError, match=r"empty: has no config\.yaml"):
        read_run(tmp_path / "empty")
    shutil.rmtree(copied / "traces")
    with pytest.raises(RunDirError, match="its traces hold no response"):
        read_run(copied)
    (copied / "metrics.jsonl").unlink()
    with pytest.raises(RunDirError, match=r"metrics\.jsonl: No such file"):
        read_run(copied)


def test_runs_of_one_name_are_refused(divided, copied, tmp_path):
    same = shutil.copytree(copied, tmp_path / "other" / "run")
    assert [run.name for run in read_runs([divided.path, copied])] == ["divided", "run"]
    with pytest.raises(RunDirError, match=r"other/run: another directory of the same name is given, .*/run; figures"):
        read_runs([copied, same])


def test_a_run_that_is_being_written_is_not_read(copied):
    live = RunDir(copied)
    live.hold()
    with pytest.raises(RunDirError, match=r"still being written by a live run \(pid \d+ on .*\); wait"):
        read_run(copied)
    live.release()
    assert read_run(copied).steps == [1, 2]


def test_to_look_who_holds_a_run_keeps_nobody_out(copied):
    with (copied / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RunDirError, match=r"live run \(unknown\)"):
            read_run(copied)
    read_run(copied)
    RunDir(copied).hold()


def test_another_version_is_named_by_its_first_key(copied):
    config = copied / "config.yaml"
    config.write_text(config.read_text().replace("affinity_requests", "affinity"))
    with pytest.raises(RunDirError, match=r"of another version: 2 keys of config\.yaml .* rollout\.affinity"):
        read_run(copied)


def test_a_trace_without_a_column_is_named(copied):
    path = copied / "traces" / "chunks" / "step_000002.parquet"
    pq.write_table(pq.ParquetFile(path).read().drop_columns(["version", "tokens"]), path)
    with pytest.raises(
        DataError, match=r"step_000002\.parquet: columns must be those of ChunkRow; missing: tokens, ver"
    ):
        read_run(copied)
    table = pq.ParquetFile(copied / "traces" / "chunks" / "step_000001.parquet").read()
    changed = table.set_column(0, pa.field("step", pa.int32(), nullable=False), table["step"].cast(pa.int32()))
    pq.write_table(changed, path)
    with pytest.raises(DataError, match="step is int32 instead of int64"):
        read_run(copied)


def test_times_that_run_backwards_are_named(copied, divided):
    requests, chunks = divided.rows_of(2)
    spoilt = replace(chunks[0], finished_s=chunks[0].started_s - 0.5)
    write_step(copied, 2, requests, [spoilt, *chunks[1:]])
    where = rf"step 2, group {spoilt.group}, sample {spoilt.sample}"
    with pytest.raises(DataError, match=rf"{where}: finished_s comes -0\.5 s after started_s, allowed is 0 or more"):
        read_run(copied)
    write_step(copied, 2, [replace(requests[0], reward_s=-1.0), *requests[1:]], chunks)
    with pytest.raises(DataError, match=r"reward_s is -1 s, allowed is 0 or more"):
        read_run(copied)
    write_step(copied, 2, requests, [replace(chunks[0], kv_s=float("nan")), *chunks[1:]])
    with pytest.raises(DataError, match="kv_s is nan s"):
        read_run(copied)
    assert isinstance(chunks[0], ChunkRow)
