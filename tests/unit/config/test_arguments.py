import subprocess
import sys

import pytest

from sestina.config.arguments import prepare_arguments
from sestina.core.errors import ConfigError
from tests.unit.config.helpers import CONF


@pytest.mark.parametrize(
    ("argument", "prepared"),
    [
        ("seed=2", "++seed=2"),
        ("rollout.chunk_tokns=3", "++rollout.chunk_tokns=3"),
        ("+rollout.chunk_tokens=3", "++rollout.chunk_tokens=3"),
        ("++rollout.chunk_tokens=3", "++rollout.chunk_tokens=3"),
        ("+seed=2", "++seed=2"),
        ("dir='a b'", "++dir='a b'"),
        ("dir=runs/${name}/x", "++dir=runs/${name}/x"),
        ("data=files", "data=files"),
        ("+data=files", "data=files"),
        ('rollout="group"', 'rollout="group"'),
        ("data=[files]", "data=[files]"),
        ("+exp=quickstart", "+exp=quickstart"),
        ("exp=quickstart", "+exp=quickstart"),
        ("rollout/engine=sglang", "rollout/engine=sglang"),
        ("rollout.engine=sglang", "rollout/engine=sglang"),
        ("rollout.engine.device=cuda", "++rollout.engine.device=cuda"),
        ("~trainer.device", "~trainer.device"),
        ("~telemetry", "~telemetry"),
        ("hydra.job.chdir=true", "hydra.job.chdir=true"),
        ("hydra/launcher=basic", "hydra/launcher=basic"),
        ("+hydra.job.name=x", "+hydra.job.name=x"),
    ],
)
def test_each_kind_of_argument(argument, prepared):
    assert prepare_arguments([argument], CONF) == [prepared]


def test_flags_keep_their_values():
    argv = [
        "--cfg",
        "job",
        "-p",
        "trainer",
        "--resolve",
        "--info",
        "defaults",
        "--config-name=train",
        "seed=1",
        "--help",
    ]
    assert prepare_arguments(argv, CONF) == [*argv[:8], "++seed=1", "--help"]


@pytest.mark.parametrize("flag", ["-m", "--multirun"])
def test_runs_of_a_sweep_get_directories_of_their_own_and_a_common_group(flag):
    argv = [
        flag,
        "seed=1,2",
        "rollout=group,divided",
        "data=choice(sums,files)",
        "model=glob(*)",
        "run.steps=range(1,3)",
    ]
    of_each_run = ["++dir=${hydra:sweep.dir}/${hydra:job.num}", "++telemetry.wandb_group=${name}"]
    assert prepare_arguments(argv, CONF) == [flag, "++seed=1,2", *argv[2:5], "++run.steps=range(1,3)", *of_each_run]
    given = ["dir=${seed}", "telemetry.wandb_group=a"]
    assert prepare_arguments([flag, *given], CONF) == [flag, "++dir=${seed}", "++telemetry.wandb_group=a"]


@pytest.mark.parametrize("key", ["dir", "+dir"])
def test_a_sweep_numbers_its_runs_below_the_directory_given(key):
    prepared = prepare_arguments(["-m", f"{key}='a b'", "telemetry.wandb_group=a"], CONF)
    below = "++dir=${hydra:sweep.dir}/${hydra:job.num}"
    assert prepared == ["-m", "hydra.sweep.dir='a b'", below, "++telemetry.wandb_group=a"]
    with pytest.raises(ConfigError) as error:
        prepare_arguments(["-m", f"{key}=a,b"], CONF)
    assert error.value.violations == [f"'{key}=a,b': a sweep has one directory; it numbers its runs below that"]


GROUPS = (
    "one of 'algorithm', 'cluster', 'data', 'draft', 'environment', 'exp', 'model', 'reward', 'rollout', "
    "'rollout/engine', 'rollout/kv_pool', 'sim', 'sim/hardware', 'sim/workload', 'trainer'"
)
_ENGINES = "rollout/engine: 'torhc' is not allowed; one of 'sglang', 'sglang_cuda', 'torch'; did you mean 'torch'?"


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        (
            "rollout=dividd",
            "rollout: 'dividd' is not allowed; one of 'context', 'divided', 'group', 'histopipe', 'oracle'; "
            "did you mean 'divided'?",
        ),
        ("rollout=zzz", "rollout: 'zzz' is not allowed; one of 'context', 'divided', 'group', 'histopipe', 'oracle'"),
        ("data=null", "data: 'null' is not allowed; one of 'files', 'sums'"),
        ("data={kind: files}", "data: \"{'kind': 'files'}\" is not allowed; one of 'files', 'sums'"),
        ("data=[sums,filez]", "data: 'filez' is not allowed; one of 'files', 'sums'; did you mean 'files'?"),
        ("+experiment=quickstart", f"experiment: no such group; {GROUPS}"),
        ("rollout/engine=torhc", _ENGINES),
        ("rollout.engine=torhc", _ENGINES),
        ("rollout/scheduler=group", f"rollout/scheduler: no such group; {GROUPS}"),
        ("data@train=sums", f"data@train: no such group; {GROUPS}"),
        ("seed", "'seed' is not an override; write key=value (missing EQUAL at '<EOF>')"),
        ("a.b=[1,2", "'a.b=[1,2' is not an override; write key=value (no viable alternative at input '[1,2')"),
        ("seed=1,2", "'seed=1,2' gives seed several values; add --multirun for one run each"),
        (
            "+exp=quickstart,quickstart",
            "'+exp=quickstart,quickstart' gives exp several values; add --multirun for one run each",
        ),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused(argument, problem):
    with pytest.raises(ConfigError) as error:
        prepare_arguments([argument], CONF)
    assert error.value.violations == [problem]


def test_an_unknown_experiment_is_named_with_those_there_are(tmp_path):
    for name in ("quickstart", "large/seer"):
        file = tmp_path / "exp" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert prepare_arguments(["exp=large/seer"], tmp_path) == ["+exp=large/seer"]
    with pytest.raises(ConfigError) as error:
        prepare_arguments(["+exp=quikstart"], tmp_path)
    (problem,) = error.value.violations
    assert problem == "exp: 'quikstart' is not allowed; one of 'large/seer', 'quickstart'; did you mean 'quickstart'?"


def test_all_problems_come_in_one_message():
    with pytest.raises(ConfigError) as error:
        prepare_arguments(["rollout=dividd", "seed", "-m", "data=sums,filez", "+exp=quikstart"], CONF)
    assert [line.partition(" ")[0] for line in error.value.violations] == ["rollout:", "'seed'", "data:", "exp:"]


LAUNCHER = """
import sys
from pathlib import Path
import hydra
from sestina.config.arguments import prepare_arguments
from sestina.config.load import load
from sestina.core.errors import ConfigError

CONF = sys.argv.pop(1)

@hydra.main(version_base="1.3", config_path=CONF, config_name="train")
def main(composed):
    try:
        run = load(composed)
    except ConfigError as error:
        sys.exit(str(error))
    print(run.dir, run.seed, run.rollout.scheduler, run.telemetry.wandb_group)

sys.argv[1:] = prepare_arguments(sys.argv[1:], Path(CONF))
main()
"""


def launch(folder, *argv):
    command = [sys.executable, "-c", LAUNCHER, str(CONF), *argv]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_hydra_main_takes_prepared_arguments_and_sweeps(tmp_path):
    swept = launch(tmp_path, "--multirun", "exp=quickstart", "seed=1,2", "rollout=group,divided")
    assert swept.stdout.splitlines() == [
        "runs/quickstart/0 1 group quickstart",
        "runs/quickstart/1 1 divided quickstart",
        "runs/quickstart/2 2 group quickstart",
        "runs/quickstart/3 2 divided quickstart",
    ]
    assert not swept.stderr


def test_hydra_main_leaves_nothing_behind_and_the_loader_names_unknown_keys(tmp_path):
    refused = launch(tmp_path, "+exp=quickstart", "rollout.chunk_tokns=3", "seed=-1")
    assert "rollout.chunk_tokns: unknown key; did you mean 'rollout.chunk_tokens'?" in refused.stderr
    assert "seed: -1 is not allowed" in refused.stderr
    assert not list(tmp_path.iterdir())
