import dataclasses
import subprocess
import sys

import pytest

from sestina.config.load import load
from sestina.config.resolved import write_resolved
from sestina.controller.run_dir import CONFIG, RunDir
from sestina.controller.start import Start, plan
from sestina.core.errors import RunDirError
from tests.unit.config.helpers import composed


@pytest.fixture
def config(tmp_path):
    return load(composed(f"dir={tmp_path / 'run'}"))


def checkpoint(config, step):
    run_dir = RunDir(config.dir)
    run_dir.checkpoint(step).mkdir(parents=True)
    write_resolved(config, run_dir.checkpoint(step) / CONFIG)


def test_a_directory_that_does_not_exist_is_a_fresh_start_and_planning_writes_nothing(config):
    assert plan(RunDir(config.dir), config) == Start(step=0, checkpoint=None)
    assert not config.dir.exists()


def test_the_newest_complete_checkpoint_is_continued(config):
    for step in (2, 10):
        checkpoint(config, step)
    (config.dir / "checkpoints/step_000012.partial").mkdir()
    start = plan(RunDir(config.dir), config)
    assert start == Start(step=10, checkpoint=config.dir / "checkpoints/step_000010")


def test_another_configuration_is_refused_with_the_keys_that_differ(config):
    checkpoint(config, 2)
    other = dataclasses.replace(config, seed=9)
    with pytest.raises(RunDirError, match=f"seed: {config.seed} -> 9"):
        plan(RunDir(config.dir), other)


def test_resume_never_refuses_what_is_there(config):
    checkpoint(config, 2)
    with pytest.raises(RunDirError, match="holds a run; resume=auto continues it"):
        plan(RunDir(config.dir), dataclasses.replace(config, resume="never"))


def test_a_file_in_the_way_is_named(config):
    config.dir.write_text("")
    with pytest.raises(RunDirError, match="is not a directory"):
        plan(RunDir(config.dir), config)


HOLD = """
import sys
from pathlib import Path
from sestina.controller.run_dir import RunDir
RunDir(Path(sys.argv[1])).hold()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_directory_is_held_by_one_process_until_it_ends(config):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(config.dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunDirError, match=rf"held by a live run \(pid {holder.pid} on "):
            RunDir(config.dir).hold()
    finally:
        holder.communicate("")
    free = RunDir(config.dir)
    free.hold()
    free.release()
