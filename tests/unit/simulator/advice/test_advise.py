import io
from itertools import pairwise
from math import inf

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from sestina.config.change import as_overrides
from sestina.config.load import load
from sestina.core.errors import ConfigError, RunDirError
from sestina.simulator.advice.axes import axes_of
from sestina.simulator.advice.judge import Judge
from sestina.simulator.prediction import predict, shortened
from sestina.simulator.run import simulate
from sestina.simulator.world import world_of
from tests.unit.config.helpers import changed, composed, violations

ARGV = ("sim=simulated", "+exp=seer_qwen72b")
SMALL = (
    "algorithm.batch_size=384",
    "run.steps=2",
    "telemetry.wandb='off'",
    "rollout.engine.kv_capacity_tokens=200000",
    "rollout.max_new_tokens=16384",
    "rollout.expected_tokens=4000",
    "async.max_running_groups=1",  # too few for a batch, so that no point is asynchronous
)


def config_of(folder, *changes, argv=ARGV):
    return load(changed(*SMALL, f"dir={folder}", "sim.advise=true", *changes, argv=argv))


def advised(config):
    console = Console(file=io.StringIO(), width=400)
    simulate(config, console)
    return console.file.getvalue()


def judge_of(*changes, most=40, argv=ARGV):
    config = config_of("nowhere", *changes, argv=argv)
    axes = axes_of(config)
    return Judge(config, config.sim, axes, most=most, say=lambda _: None), tuple(axis.own for axis in axes)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    config = config_of(tmp_path_factory.mktemp("sim") / "run")
    return config, advised(config)


def rows_of(config):
    return pq.read_table(config.dir / "advice.parquet").to_pylist()


def test_the_best_are_what_their_overrides_say(once):
    config, text = once
    rows = rows_of(config)
    assert len(rows) == 5
    assert all(before["step_s"] <= after["step_s"] for before, after in pairwise(rows))
    assert rows[0]["gain"] > 1.2  # training takes four fifths of a step at 3:1
    assert "cluster.split.rollout=1" in rows[0]["overrides"]
    assert (config.dir / "advice.txt").read_text().splitlines() == [row["overrides"] for row in rows]
    pasted = load(changed(*SMALL, *rows[0]["overrides"].split(), argv=ARGV))
    again = predict(world_of(shortened(pasted), pasted.sim))
    own = predict(world_of(shortened(config), config.sim))
    assert again.step_s == rows[0]["step_s"]
    assert own.step_s / again.step_s == pytest.approx(rows[0]["gain"])
    assert again.tokens_per_s == pytest.approx(384 * 4000 / again.step_s, rel=0.01)
    assert len({(row["step_s"], row["tail_s"]) for row in rows}) == 5
    for row in rows:
        assert f"{row['gain']:.2f}x" in text
        assert row["rollout_s"] + row["train_s"] + row["weights_s"] == pytest.approx(row["step_s"])


def test_it_says_what_it_left_out_and_what_it_rests_on(once):
    _, text = once
    assert "points left out" in text
    assert "draft.source: 'grouped' is not carried by rollout.engine.kind 'sglang' on rollout.engine.device" in text
    assert "rollout.scheduler 'oracle'" in text
    assert "1 of at most 40: a step of " in text
    assert ", as configured" in text
    assert "not calibrated: hardware.memory_bytes_s" in text


def test_the_same_search_gives_the_same_advice(once, tmp_path):
    config = config_of(tmp_path / "again")
    advised(config)
    assert rows_of(config) == rows_of(once[0])


def test_a_directory_with_advice_is_not_written_over(once):
    with pytest.raises(RunDirError, match="holds a run; give a simulation another name or dir"):
        advised(once[0])


def test_the_budget_ends_the_search(tmp_path):
    config = config_of(tmp_path / "run", "sim.advise_points=2")
    assert "the search ended after 2 points (sim.advise_points)" in advised(config)
    assert len(rows_of(config)) == 2


def test_points_are_passed_over_only_where_training_alone_is_too_long():
    slow = "sim.hardware.train_share=0.05"
    judge, own = judge_of(slow)
    other = (2, *own[1:])  # most trainers
    assert judge.cost(other) < inf
    assert judge.cost(own) == inf
    assert judge.passed_over == {own}
    patient, _ = judge_of(slow)
    assert patient.cost(own) > judge.predictions[other].step_s


def test_refusals_are_counted_by_their_terms():
    judge, own = judge_of("draft.source=none")
    axes = axes_of(config_of("nowhere"))
    drafts = [place for place, option in enumerate(axes[3].options) if option]
    assert [judge.world((*own[:3], place, own[4])) for place in drafts] == [None] * 3
    assert judge.refusals == {"draft.source": 3}
    assert judge.num_refused == 3


def test_no_point_that_is_valid_is_an_error_with_the_terms(tmp_path):
    config = config_of(tmp_path / "run", argv=("sim=simulated", "+exp=seer_moonlight"))
    with pytest.raises(ConfigError, match="no point is valid: model.shape.architecture: 'DeepseekV3ForCausalLM'"):
        advised(config)
    assert not (config.dir / "advice.parquet").exists()


def test_the_bottleneck_is_what_would_help(tmp_path):
    def bottleneck(name, *changes):
        config = config_of(tmp_path / name, "sim.advise_points=1", *changes)
        advised(config)
        return rows_of(config)[0]["bottleneck"]

    trains_at_once = "sim.hardware.train_share=1.0", "sim.hardware.flops=9.0e+16"
    assert bottleneck("trainer") == "trainer"
    assert bottleneck("room", *trains_at_once, "rollout.engine.kv_capacity_tokens=20480") == "KV room"
    wide = (*trains_at_once, "rollout.engine.kv_capacity_tokens=1200000")
    assert bottleneck("wide", *wide) in ("rollout", "rollout tail")
    assert bottleneck("weights", *wide, "sim.hardware.network.latency_s=5000.0") == "weights"


def test_axes_hold_the_runs_own_values_and_change_something():
    config = config_of("nowhere", "rollout.chunk_tokens=3000")
    axes = {axis.name: axis for axis in axes_of(config)}
    chunks = [option.get("rollout.chunk_tokens", 3000) for option in axes["chunks"].options]
    assert chunks == sorted({*chunks, 3000, 256, 16384})
    assert all(axis.options.count({}) == 1 for axis in axes.values())
    assert [as_overrides(option) for option in axes["staleness"].options][:2] == [
        "", "run.mode=async async.max_staleness=1"
    ]  # fmt: skip


def test_advice_is_refused_where_there_is_nothing_to_advise_on(tmp_path):
    alone = load(changed("sim.advise=true", f"dir={tmp_path / 'run'}", argv=("sim=simulated", "+exp=quickstart")))
    with pytest.raises(ConfigError, match="cluster: null leaves no GPUs to share; cluster=gpu has some"):
        advised(alone)
    assert not (tmp_path / "run").exists()
    assert "false, or sim.compare []: advice compares schedulers itself" in "\n".join(
        violations("sim.advise=true", "sim.compare=[group]", argv=ARGV)
    )
    assert "false: only the world 'simulated'" in "\n".join(
        violations("sim.advise=true", argv=("sim=emulated", "+exp=quickstart"))
    )
    assert "sim.advise_points: 0 is not allowed; a whole number" in "\n".join(
        violations("sim.advise_points=0", argv=ARGV)
    )
    none = violations("sim.advise=true", argv=("sim=simulated", "+exp=quickstart_slurm"))
    assert none[0].startswith("sim.advise: true is not allowed with cluster.gpus 0; false, or a cluster with GPUs")


def test_prompts_that_speak_against_the_run_are_said_first(tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("{}\n")
    with pytest.raises(ConfigError, match=r"prompts.jsonl"):
        advised(config_of(tmp_path / "run", f"data.path={prompts}"))


def test_the_command_line_takes_it():
    assert load(composed(*ARGV, "sim.advise=true")).sim.advise
