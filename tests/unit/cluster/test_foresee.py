import dataclasses
import io
import re

import pytest
from rich.console import Console

from sestina.cluster.foresee import MOST_CHUNKS, foreseen, presets_of, share_simulated
from sestina.cluster.show import show_jobs
from sestina.cluster.submit import plan_jobs
from sestina.config.load import load
from sestina.core.errors import ConfigError
from sestina.simulator.prediction import predict, shortened
from sestina.simulator.world import world_of
from tests.unit.config.helpers import CONF, changed

SEER = ("+exp=seer_qwen72b",)
SMALL = ("algorithm.batch_size=384", "data.path=prompts.jsonl")


@pytest.fixture(scope="module")
def presets():
    return presets_of(CONF)


def config_of(*changes, argv=SEER):
    return load(changed(*changes, argv=argv))


def number(text, pattern):
    return float(re.search(pattern, text).group(1).replace(",", ""))


def test_what_is_foreseen_is_what_a_simulation_says(presets):
    config = config_of(*SMALL)
    text = foreseen(config, presets)
    assert text.startswith("predicted on H800: a step of ")
    assert "not calibrated: hardware.memory_bytes_s" in text
    found = predict(world_of(shortened(dataclasses.replace(config, sim=presets[0])), presets[0]))
    assert number(text, r"a step of ([\d,.]+) s") == pytest.approx(found.step_s, rel=0.01)
    assert number(text, r"rollout ([\d,.]+) s") == pytest.approx(found.rollout_s, rel=0.01)
    assert number(text, r"tail ([\d,.]+)") == pytest.approx(found.tail_s, rel=0.01)
    assert number(text, r"train ([\d,.]+) s") == pytest.approx(found.train_s, rel=0.01)
    assert number(text, r"weights ([\d,.]+) s") == pytest.approx(found.weights_s, rel=0.01)
    assert number(text, r"([\d,.]+) tokens/s") == pytest.approx(found.tokens_per_s, rel=0.01)
    assert "equal parts" not in text


def test_a_part_stands_for_the_whole(presets, monkeypatch):
    config = config_of("algorithm.batch_size=3072", "data.path=prompts.jsonl")
    whole = foreseen(config, presets)
    monkeypatch.setattr("sestina.cluster.foresee.MOST_CHUNKS", 1000)
    part = foreseen(config, presets)
    assert "from one of 4 equal parts of instances and prompts" in part
    for pattern in (r"a step of ([\d,.]+) s", r"rollout ([\d,.]+) s", r"train ([\d,.]+) s", r"([\d,.]+) tokens/s"):
        assert number(part, pattern) == pytest.approx(number(whole, pattern), rel=0.15)


def test_no_more_is_simulated_than_takes_seconds():
    assert share_simulated(shortened(config_of())) == 1
    rhymerl = shortened(config_of("run.mode=sync", "rollout.scheduler=divided", argv=("+exp=rhymerl_32b",)))
    share = share_simulated(rhymerl)
    assert rhymerl.rollout.num_instances % share == 0
    assert rhymerl.algorithm.batch_size / share <= MOST_CHUNKS
    assert share_simulated(shortened(config_of("rollout.scheduler=group", "rollout.chunk_tokens=16"))) == 1
    with pytest.raises(ConfigError, match="rollout.chunk_tokens: 16 makes about 380,800 chunks of the smallest part"):
        share_simulated(shortened(config_of("rollout.chunk_tokens=16")))


def test_the_preset_has_the_memory_that_the_cluster_states(presets):
    assert foreseen(config_of(*SMALL, "cluster.gpu_memory_gib=140"), presets).startswith("predicted on H200: ")
    none = foreseen(config_of(*SMALL, "cluster.gpu_memory_gib=190"), presets)
    assert none == "no prediction: cluster.gpu_memory_gib: 190 is more than any preset has (h800, h200)\n"


def test_a_run_that_evaluates_is_foreseen_without_it(presets):
    evaluating = config_of(*SMALL, "eval.every=5", "data.eval_path=held-out.jsonl")
    assert foreseen(evaluating, presets) == foreseen(config_of(*SMALL), presets)
    assert "evaluation left out" in foreseen(evaluating, presets)


@pytest.mark.parametrize(
    ("changes", "argv", "why"),
    [
        ((), ("+exp=quickstart_slurm",), "cluster.gpus: 0 leaves only CPUs, and there are presets of GPUs alone"),
        (("draft.source=history",), SEER, "draft.source: 'history' is not carried by a simulation"),
        (("rollout.chunk_tokens=16",), SEER, "rollout.chunk_tokens: 16 makes about"),
    ],
)
def test_what_cannot_be_simulated_is_said_in_a_line(changes, argv, why, presets):
    said = foreseen(config_of(*changes, argv=argv), presets)
    assert said.startswith(f"no prediction: {why}")
    assert said.count("\n") == 1


def test_a_dry_run_goes_on_without_a_prediction(tmp_path, presets):
    console = Console(file=io.StringIO(), soft_wrap=True)
    config = config_of(f"dir={tmp_path / 'run'}", argv=("+exp=quickstart_slurm",))
    show_jobs(plan_jobs([config]), console, presets)
    said = console.file.getvalue()
    assert "no prediction: cluster.gpus: 0" in said
    assert said.endswith("nothing was submitted\n")
    assert (config.dir / "slurm/dry-run/prediction.txt").read_text() in said


def test_what_no_simulation_carries_is_said_first(presets):
    said = foreseen(config_of("rollout.history_from=runs/other", argv=("+exp=rhymerl_32b",)), presets)
    assert said.startswith("no prediction: rollout.history_from: 'runs/other' is not carried by a simulation; null is")


def test_a_step_one_ahead_of_the_trainer_is_foreseen(presets):
    few = ("algorithm.batch_size=2048", "rollout.ranking_groups=4")
    said = foreseen(config_of(*few, argv=("+exp=rhymerl_8b",)), presets)
    assert re.search(r"\n  the trainer waits [\d.,]+ s for a batch, train [\d.,]+ s, weights", said)


def test_asynchronous_training_waits_for_a_batch(presets):
    said = foreseen(config_of(argv=("+exp=areal_7b",)), presets)
    assert re.search(r"\n  the trainer waits [\d.,]+ s for a batch, train [\d.,]+ s, weights", said)


def test_a_trainer_that_is_never_waited_for_makes_steps_of_any_staleness_alike(presets):
    """What a pipeline takes to fill, and to run empty, is no part of a step."""
    bound = ("run.mode=async", "run.steps=100")
    said = [foreseen(config_of(*SMALL, *bound, f"async.max_staleness={eta}"), presets) for eta in (4, 8)]
    steps = [number(each, r"a step of ([\d,.]+) s") for each in said]
    trains = [number(each, r"train ([\d,.]+) s") for each in said]
    assert steps == pytest.approx(trains, rel=0.1)
    assert trains[0] == pytest.approx(trains[1], rel=0.1), "whatever is trained on first"
