import json
import os
import signal
import struct
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from wandb.proto import wandb_internal_pb2

from sestina.core.errors import UserError
from sestina.telemetry.metrics import FILE_NAME, MetricsWriter, read_metrics


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user who never used W&B."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    # What the product sets stays away from other tests.
    for name in ("WANDB_CACHE_DIR", "WANDB_ERROR_REPORTING"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(home))
    return home


@pytest.fixture
def run_dir(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    return path


def writer_for(run_dir, config, mode, *, first_step=0):
    changed = replace(config, wandb=mode, wandb_group="sweep")
    return MetricsWriter(run_dir, changed, resolved={"seed": 7}, name="toy", first_step=first_step)


def children():
    """Process ids below this process."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    below = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return below - {os.getpid()}


def records(path):
    """The records of an offline file: after a header of 7 bytes LevelDB's log format, in blocks of 32 KiB."""
    content, position, parts = path.read_bytes(), 7, b""
    assert content.startswith(b":W&B")
    while position + 7 <= len(content):
        if -position % 32768 < 7:
            position += -position % 32768
            continue
        _, size, kind = struct.unpack_from("<IHB", content, position)
        parts += content[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):
            yield wandb_internal_pb2.Record.FromString(parts)
            parts = b""


def logged(path):
    """What was logged, and the record of the run."""
    history, run = [], None
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            items = {(item.key or ".".join(item.nested_key)): item.value_json for item in record.history.item}
            history.append({key: json.loads(value) for key, value in items.items() if not key.startswith("_")})
        if record.WhichOneof("record_type") == "run":
            run = record.run
    return history, run


def test_offline_is_quiet_stays_in_the_run_directory_and_leaves_nothing_running(run_dir, config, home, capfd):
    hooks = sys.exit, sys.excepthook, *(signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM))
    before = children()
    writer = writer_for(run_dir, config, "offline")
    assert (sys.exit, sys.excepthook, *(signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM))) == hooks
    assert children() > before
    writer.log(1, {"rollout/raw_reward": 0.5})
    writer.log(2, {"rollout/raw_reward": 0.75, "eval/accuracy": 0.25})
    writer.close()
    assert children() == before
    assert not [thread.name for thread in threading.enumerate() if "Otel" in thread.name], "nothing phones home"
    assert capfd.readouterr() == ("", "")
    assert not list(home.rglob("*"))
    assert {path.name for path in run_dir.iterdir()} == {FILE_NAME, "wandb", "wandb_id"}

    (path,) = run_dir.glob("wandb/offline-run-*/*.wandb")
    history, run = logged(path)
    assert history == [
        {"step": 1, "rollout/raw_reward": 0.5},
        {"step": 2, "rollout/raw_reward": 0.75, "eval/accuracy": 0.25},
    ]
    assert (run.run_id, run.display_name, run.run_group) == ((run_dir / "wandb_id").read_text().strip(), "toy", "sweep")
    assert {item.key: item.value_json for item in run.config.update}["seed"] == "7"


def test_a_resumed_run_keeps_its_id_and_may_log_steps_again(run_dir, config, home):
    for first_step in (1, 2):
        writer = writer_for(run_dir, config, "offline", first_step=first_step)
        for step in range(first_step, 4):
            writer.log(step, {"rollout/raw_reward": first_step})
        writer.close()
    files = sorted(run_dir.glob("wandb/offline-run-*/*.wandb"))
    assert len({path.name for path in files}) == 1
    assert [line.step for line in read_metrics(run_dir)] == [1, 2, 3]
    assert [entry["step"] for path in files for entry in logged(path)[0]] == [1, 2, 3, 2, 3]


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        ({}, "API key"),
        ({"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_INIT_TIMEOUT": "1"}, ""),
    ],
    ids=["no key", "no server"],
)
def test_w_and_b_that_does_not_start_names_the_way_out(run_dir, config, home, monkeypatch, user, reason):
    for name, value in ({"WANDB_ERROR_REPORTING": "false"} | user).items():
        monkeypatch.setenv(name, value)
    off = MetricsWriter(run_dir, config, resolved={}, name="toy", first_step=0)
    off.log(3, {})
    off.close()
    before = children()
    hooks = sys.exit, sys.excepthook
    with pytest.raises(UserError, match=rf"wandb=online: W&B did not start: .*{reason}(.|\n)*set telemetry\.wandb=off"):
        writer_for(run_dir, config, "online")
    assert (sys.exit, sys.excepthook) == hooks
    assert children() == before
    assert [line.step for line in read_metrics(run_dir)] == [3], "the metrics of the former run are untouched"


def test_off_needs_no_w_and_b(run_dir, config, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    writer = writer_for(run_dir, config, "off")
    writer.log(1, {})
    writer.close()
    with pytest.raises(UserError, match=r"wandb=offline: cannot import wandb: .*set telemetry\.wandb=off"):
        writer_for(run_dir, config, "offline")
