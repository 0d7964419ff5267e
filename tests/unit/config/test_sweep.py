from pathlib import Path

import pytest

from sestina.config.sweep import names_of, runs_of
from sestina.core.errors import ConfigError
from tests.unit.config.helpers import CONF


def refused(*argv):
    with pytest.raises(ConfigError) as error:
        runs_of(argv, CONF)
    return error.value.violations


def test_one_run_is_a_sweep_of_one():
    (run,) = runs_of(["+exp=quickstart", "seed=3"], CONF)
    assert (run.seed, run.dir, run.telemetry.wandb_group) == (3, Path("runs/quickstart"), None)


def test_a_sweep_has_a_run_for_every_combination_with_a_directory_each_and_one_group():
    runs = runs_of(["--multirun", "+exp=quickstart", "name=x", "rollout.chunk_tokens=16,64", "seed=range(1,3)"], CONF)
    assert [(run.rollout.chunk_tokens, run.seed) for run in runs] == [(16, 1), (16, 2), (64, 1), (64, 2)]
    assert [str(run.dir) for run in runs] == ["runs/x/0", "runs/x/1", "runs/x/2", "runs/x/3"]
    assert {run.telemetry.wandb_group for run in runs} == {"x"}


def test_files_of_a_sweep_are_told_apart():
    assert names_of(runs_of(["+exp=quickstart"], CONF)) == ["quickstart"]
    assert names_of(runs_of(["-m", "+exp=quickstart", "seed=1,2"], CONF)) == ["quickstart_0", "quickstart_1"]


def test_a_sweep_goes_where_it_is_told():
    runs = runs_of(["-m", "+exp=quickstart", "dir=/scratch/s", "rollout=group,divided"], CONF)
    assert [str(run.dir) for run in runs] == ["/scratch/s/0", "/scratch/s/1"]
    assert [run.rollout.scheduler for run in runs] == ["group", "divided"]


def test_every_violation_of_every_run_is_said():
    assert refused("-m", "+exp=quickstart", "rollout.chunk_tokens=0,64", "algorithm.batch_size=256,100") == [
        "run 0: rollout.chunk_tokens: 0 is not allowed; a whole number of at least 1",
        "run 1: rollout.chunk_tokens: 0 is not allowed; a whole number of at least 1",
        "run 1: algorithm.batch_size: 100 is not allowed with algorithm.group_size 8; a multiple of 8",
        "run 3: algorithm.batch_size: 100 is not allowed with algorithm.group_size 8; a multiple of 8",
    ]


def test_flags_of_hydra_are_refused():
    assert refused("--cfg", "job", "+exp=quickstart") == ["'--cfg' is Hydra's, and not known here"]
    assert "several values; add --multirun" in refused("+exp=quickstart", "seed=1,2")[0]
