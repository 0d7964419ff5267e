import subprocess
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console
from safetensors import safe_open

from sestina.config.load import load
from sestina.controller.launcher import launch
from sestina.controller.plan import planner_of
from sestina.core.errors import ConfigError, RunDirError
from sestina.kvpool.config import pool_name
from sestina.kvpool.folder import PREFIX
from sestina.kvpool.local import SHARED_MEMORY
from sestina.simulator.run import simulate
from sestina.telemetry.journal import read_journal
from sestina.telemetry.metrics import read_metrics
from sestina.telemetry.replay import replay
from sestina.telemetry.sweep import CAUSES
from sestina.telemetry.traces import read_chunks, read_requests
from tests.integration.worlds import SMALL, small_model
from tests.unit.config.helpers import composed

LAUNCH = Path(__file__).parents[3] / "launch" / "simulate.py"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


def config_of(folder, model, *changes, sim="emulated"):
    own = {"reward.path": None, "dir": folder, "model.path": model, "reward.num_workers": 1}
    values = {key: value for key, value in {**SMALL, **own}.items() if value is not None}
    given = [f"{key}={value}" for key, value in values.items()]
    return load(composed("+exp=quickstart", f"sim={sim}", *given, *changes))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory, model):
    def run(*changes):
        config = config_of(tmp_path_factory.mktemp("run") / "run", model, *changes)
        simulate(config, Console(quiet=True))
        return config

    return run


@pytest.fixture(scope="module")
def divided(simulated):
    return simulated()


def crcs(config):
    return [line.values["rollout/tokens_crc32"] for line in read_metrics(config.dir)]


def test_schedulers_instances_and_the_controllers_time_change_no_token(simulated, divided):
    others = [
        simulated("rollout.scheduler=context", "rollout.num_instances=5"),
        simulated("rollout.scheduler=group", "rollout.num_instances=1", "rollout.engine.kv_capacity_tokens=256"),
        simulated("sim.controller=free", "rollout.chunk_tokens=5"),
    ]
    assert len(set(crcs(divided))) == 2
    assert all(crcs(other) == crcs(divided) for other in others)
    preempted = [sum(read_requests(each.dir)["preemptions"].to_pylist()) for each in (divided, others[1])]
    assert preempted[0] == 0
    assert preempted[1] > 0


def test_a_pool_spares_prefill_and_its_time_counts(simulated, divided):
    pooled = simulated("rollout/kv_pool=local", "rollout.kv_pool.move=always", "rollout.kv_pool.dram_bytes=10000000")
    assert crcs(pooled) == crcs(divided)
    values = [line.values for line in read_metrics(pooled.dir)]
    assert all(each["perf/kv_pool_prefilled_again"] == 0 < each["perf/kv_pool_hits_dram"] for each in values)
    assert all(0 < each["perf/kv_pool_time_share"] < 1 for each in values)
    chunks = read_chunks(pooled.dir).to_pylist()
    assert all(row["started_s"] <= row["finished_s"] <= row["received_s"] for row in chunks)
    assert not (SHARED_MEMORY / f"{PREFIX}{pool_name(pooled.dir)}").exists()


def test_it_leaves_what_a_run_leaves(divided):
    [segment] = read_journal(divided.dir / "journal.jsonl")
    assert replay(segment, planner_of(divided)) is None
    assert {path.name for path in divided.dir.iterdir()} >= {"config.yaml", "metrics.jsonl", "summary.png", "traces"}
    requests, chunks = read_requests(divided.dir).to_pylist(), read_chunks(divided.dir).to_pylist()
    assert len(requests) == 64
    assert Counter(row["instance"] for row in chunks).keys() == {0, 1, 2}
    assert all(row["reward"] is not None for row in requests)
    ranks = defaultdict(list)
    for row in requests:
        ranks[row["group"]].append(row["text_rank"])
        assert 0 <= row["common_tokens"] <= row["response_tokens"]
    assert all(sorted(of_group) == list(range(len(of_group))) for of_group in ranks.values())
    assert any(row["common_tokens"] for row in requests)


def test_it_says_what_instances_lost_and_what_their_drafters_counted(simulated, divided):
    for line in read_metrics(divided.dir):
        lost = [value for name, value in line.values.items() if name.startswith("perf/idle/")]
        assert len(lost) == len(CAUSES) + 2
        assert line.values["perf/idle/area_s"] == 3 * line.values["perf/step_s"]
        assert not any(name.startswith("spec/steps/") for name in line.values)
    drafts = ("draft=grouped", "draft.length=fixed", "draft.max_tokens=4", "draft.guard=false")
    drafting = simulated(*drafts, f"rollout.forced_lengths_from={divided.dir}")
    assert crcs(drafting) == crcs(divided)
    values = read_metrics(drafting.dir)[-1].values
    assert values["spec/grouped/drafted_tokens"] == values["spec/drafted_tokens"] > 0
    assert 0 <= values["spec/grouped/acceptance_at_1"] <= 1


def test_cause_comes_before_effect(divided):
    chunks = read_chunks(divided.dir).to_pylist()
    order = ("dispatched_s", "submitted_s", "started_s", "finished_s", "received_s")
    assert all(row[before] <= row[after] for row in chunks for before, after in pairwise(order))
    ends = {(row["group"], row["sample"], row["chunk"]): row["received_s"] for row in chunks}
    later = [row for row in chunks if row["chunk"]]
    assert later
    assert all(ends[row["group"], row["sample"], row["chunk"] - 1] <= row["dispatched_s"] for row in later)
    requests = read_requests(divided.dir).to_pylist()
    steps = [[row for row in requests if row["step"] == step] for step in (1, 2)]
    assert max(row["rewarded_s"] for row in steps[0]) <= min(row["offered_s"] for row in steps[1])
    for step in steps:
        begin, end = min(row["offered_s"] for row in step), max(row["rewarded_s"] for row in step)
        taken = read_metrics(divided.dir)[step[0]["step"] - 1].values["perf/rollout_s"]
        assert end - begin <= taken <= (end - begin) * 1.5


def test_it_is_held_to_its_own_recording(simulated, divided):
    again = simulated(f"rollout.forced_lengths_from={divided.dir}", "rollout.scheduler=oracle")
    assert crcs(again) == crcs(divided)


def test_what_cannot_be_simulated_is_refused_before_anything_is_written(tmp_path, model, divided):
    with pytest.raises(RunDirError, match="holds a run; give a simulation another name or dir"):
        simulate(divided, Console(quiet=True))
    with pytest.raises(ConfigError, match="sim: null is no world to simulate"):
        simulate(config_of(tmp_path / "run", model, sim="none"), Console(quiet=True))
    with pytest.raises(ConfigError, match=r"sim.world: 'emulated' is not allowed with rollout.engine.kind 'sglang'"):
        config_of(tmp_path / "run", model, "rollout.engine=sglang")
    with pytest.raises(ConfigError, match=r"sim.world: 'emulated' is not allowed with cluster.layout 'het'"):
        config_of(tmp_path / "run", model, "cluster=cpu", "cluster.layout=het")
    with pytest.raises(
        ConfigError, match=r"run.mode: 'async' is not allowed with sim.trainer_shares 0, sim.world 'emulated'; 'sync'"
    ):
        config_of(tmp_path / "run", model, "run.mode=async")
    with pytest.raises(ConfigError, match=r"trainer.num_ranks: 2 is not allowed with sim.trainer_shares 4; 1"):
        config_of(tmp_path / "run", model, "sim.trainer_shares=4", "trainer.num_ranks=2")
    with pytest.raises(ConfigError, match=r"sim: 'emulated' is given to a real run; launch/simulate.py simulates one"):
        launch(config_of(tmp_path / "run", model), Console(quiet=True))
    assert not (tmp_path / "run").exists()


def test_the_command_reports_what_is_wrong():
    command = [sys.executable, str(LAUNCH), "sim.world=emulated", "+exp=quickstart", "sim.worlds=free"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "sim.worlds: unknown key; did you mean 'sim.world'?" in done.stderr


def test_instances_share_the_weights_that_are_read_once(simulated, monkeypatch):
    opened = []

    def counted(path, *args, **options):
        opened.append(path)
        return safe_open(path, *args, **options)

    monkeypatch.setattr("sestina.models.weights.safe_open", counted)
    config = simulated("run.steps=1")
    assert config.rollout.num_instances > 1
    assert len(opened) == 1


def test_pipelined_steps_without_evaluation_alone(tmp_path, model):
    with pytest.raises(ConfigError, match=r"eval.every: 2 is not allowed with run.mode 'pipelined', sim.world 'emu"):
        config_of(tmp_path / "run", model, "run.mode=pipelined", "eval.every=2")


PIPELINED = ("run.mode=pipelined", "run.steps=6", "data.num_prompts=16")


def test_pipelined_steps_are_one_version_behind_and_overlap_with_training(simulated):
    plain = simulated(*PIPELINED)
    ranked = simulated(*PIPELINED, "sim.train_s=60", "rollout.scheduler=histopipe")
    assert crcs(plain) == crcs(ranked), "weights are those of the start under every version"
    for config in (plain, ranked):
        [segment] = read_journal(config.dir / "journal.jsonl")
        assert replay(segment, planner_of(config)) is None
        rows = read_requests(config.dir).to_pylist()
        assert all(row["first_version"] == row["last_version"] == max(0, row["step"] - 2) for row in rows)
    values = [line.values for line in read_metrics(ranked.dir)]
    assert [line["perf/rollout_s"] > 0 for line in values] == [True] + [False] * 5, "all but the first while it trains"
    assert [line["perf/step_s"] for line in values[1:]] == pytest.approx([60] * 5)
    reasons = Counter(row["reason"] for row in read_chunks(ranked.dir).to_pylist())
    assert reasons.keys() <= {"ranked", "intra-step", "inter-step"}
