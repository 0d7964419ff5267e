import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from sestina.cluster.split import take_split_from, with_split
from sestina.config.load import load
from sestina.config.resolved import read_resolved
from sestina.core.errors import ConfigError, DataError, RunDirError
from sestina.simulator.run import simulate
from tests.unit.config.helpers import CONF, changed

SEER = ("+exp=seer_qwen72b",)
SMALL = ("algorithm.batch_size=192", "run.steps=1", "telemetry.wandb='off'", "rollout.expected_tokens=2000")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A simulated run, whose training takes four times its rollout."""
    folder = tmp_path_factory.mktemp("run") / "seer"
    config = load(changed(*SMALL, f"dir={folder}", "sim.hardware.train_share=0.02", argv=("sim=simulated", *SEER)))
    simulate(config, Console(quiet=True))
    return folder


def split_of(source, *changes, argv=SEER):
    console = Console(file=io.StringIO(), width=400)
    (config,) = with_split([load(changed(*changes, argv=argv))], source, console)
    return config, console.file.getvalue()


def test_a_split_is_taken_from_what_a_run_took(source):
    config, said = split_of(source)
    assert (config.cluster.rollout_gpus, config.cluster.trainer_gpus) == (32, 96)
    assert (config.rollout.num_instances, config.trainer.num_ranks) == (4, 96)
    assert f"cluster.split=auto, from {source}: cluster.split.rollout=1 cluster.split.trainer=3" in said


def test_other_gpus_are_shared_by_the_same_times(source):
    config, _ = split_of(source, "cluster.gpus=256", "rollout.num_instances=24", "trainer.num_ranks=64")
    assert config.cluster.rollout_gpus + config.cluster.trainer_gpus == 256
    assert config.cluster.trainer_gpus > 128
    assert config.rollout.num_instances * 8 == config.cluster.rollout_gpus


@pytest.mark.parametrize(("mode", "trainer_gpus"), [("sync", 64), ("async", 32)])
def test_the_mode_decides_whether_times_add_up(mode, trainer_gpus, source, tmp_path):
    other = shutil.copytree(source, tmp_path / "other")
    line = '{"step": 1, "time": 0.0, "perf/rollout_s": 100.0, "perf/train_s": 120.0, "perf/weights_s": 1.0}\n'
    (other / "metrics.jsonl").write_text(line)
    assert split_of(other, f"run.mode={mode}")[0].cluster.trainer_gpus == trainer_gpus


def test_the_command_takes_it(source, tmp_path):
    words = [f"dir={tmp_path / 'run'}", "cluster.split=auto", f"cluster.split_from={source}", "--dry-run"]
    command = [sys.executable, "launch/submit.py", *SEER, *SMALL, *words]
    done = subprocess.run(command, cwd=CONF.parent, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert "128 GPUs, 1:3: 32 roll out, 96 train" in done.stdout
    written = read_resolved(tmp_path / "run/slurm/dry-run/config.yaml")
    assert (written.cluster.split.rollout, written.cluster.split.trainer) == (1, 3)


def test_one_key_without_the_other_is_refused():
    assert take_split_from(["+exp=x", "a.b=c"]) == (["+exp=x", "a.b=c"], None)
    both = ["+exp=x", "cluster.split=auto", "cluster.split_from=runs/a"]
    assert take_split_from(both) == (["+exp=x"], Path("runs/a"))
    with pytest.raises(ConfigError, match="cluster.split: 'auto' needs cluster.split_from; the directory of a sync"):
        take_split_from(["cluster.split=auto"])
    with pytest.raises(ConfigError, match="cluster.split: 'auto' needs cluster.split_from"):
        take_split_from(["cluster.split=auto", "cluster.split_from="])
    with pytest.raises(ConfigError, match="cluster.split_from: 'runs/a' is read for cluster.split=auto alone"):
        take_split_from(["cluster.split_from=runs/a"])


def test_a_source_that_says_nothing_is_refused(source, tmp_path):
    with pytest.raises(RunDirError, match="no such directory"):
        split_of(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="cluster: null leaves no GPUs to share"):
        split_of(source, argv=("+exp=quickstart",))
    untrained = shutil.copytree(source, tmp_path / "untrained")
    text = (source / "metrics.jsonl").read_text()
    (untrained / "metrics.jsonl").write_text(text.replace("perf/train_s", "perf/trained_s"))
    with pytest.raises(DataError, match="no step has perf/train_s"):
        split_of(untrained)
