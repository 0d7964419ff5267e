import shutil

import pytest

from sestina.config.load import load
from sestina.core.errors import ConfigError
from tests.unit.config.helpers import CONF, FILES, composed

CUDA = ("trainer.device=cuda", "rollout.engine.device=cuda")
COMPANIONS = {
    "data=files": FILES[1:],
    "reward=math": FILES[:2],
    "reward=function": (*FILES[:2], "reward.path=grading:grade"),
    "model=checkpoint": ("model.path=models/mine",),
    "rollout=oracle": ("rollout.lengths_from=runs/recorded",),
    "cluster=gpu": ("rollout.num_instances=24", "trainer.num_ranks=8", *CUDA),
}
"""What a group file cannot be used without."""

FILES_OF_GROUPS = [f"{file.parent.name}={file.stem}" for file in sorted(CONF.glob("*/*.yaml"))]


@pytest.mark.parametrize("choice", FILES_OF_GROUPS)
def test_every_file_of_every_group_composes_to_a_valid_run(choice):
    load(composed(choice, *COMPANIONS.get(choice, ())))


def test_the_parametrisation_sees_the_files():
    assert {"exp=quickstart", "rollout=group", "reward=function", "trainer=local"} <= set(FILES_OF_GROUPS)
    assert set(COMPANIONS) <= set(FILES_OF_GROUPS)


def test_defaults_alone_are_a_valid_run():
    assert load(composed()).name == "dev"


def test_quickstart_is_what_it_says():
    config = load(composed("+exp=quickstart"))
    assert (config.name, str(config.dir), config.seed, config.run.steps) == ("quickstart", "runs/quickstart", 1, 50)
    assert (config.rollout.num_instances, config.rollout.scheduler, config.rollout.chunk_tokens) == (3, "divided", 64)
    assert (config.algorithm.batch_size, config.algorithm.group_size, config.algorithm.minibatches) == (256, 8, 1)
    assert (config.trainer.data_parallel, config.trainer.dtype, config.trainer.optimizer.learning_rate) == (
        1,
        "float32",
        5e-4,
    )
    assert (config.eval.every, config.eval.num_prompts) == (10, 256)


def test_a_group_chosen_on_the_command_line_wins_over_the_experiment():
    assert load(composed("+exp=quickstart", "rollout=group")).rollout.scheduler == "group"


def test_an_unknown_key_in_an_experiment_is_found(tmp_path):
    shutil.copytree(CONF, tmp_path / "conf")
    (tmp_path / "conf/exp/mine.yaml").write_text("# @package _global_\nrollout:\n  chunk_tokns: 3\nsede: 1\n")
    with pytest.raises(ConfigError) as error:
        load(composed("exp=mine", conf_dir=tmp_path / "conf"))
    assert error.value.violations == [
        "sede: unknown key; did you mean 'seed'?",
        "rollout.chunk_tokns: unknown key; did you mean 'rollout.chunk_tokens'?",
    ]
