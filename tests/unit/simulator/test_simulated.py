import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from sestina.config.load import load
from sestina.controller.plan import planner_of
from sestina.core.errors import ConfigError, DataError, RunDirError
from sestina.policies.events import BatchOffered, ChunkFinished
from sestina.simulator.lengths import correlated_lengths
from sestina.simulator.rollouts import driver_of, take_step
from sestina.simulator.run import simulate
from sestina.simulator.workload import workload_of
from sestina.simulator.world import world_of
from sestina.telemetry.journal import read_journal
from sestina.telemetry.metrics import read_metrics
from sestina.telemetry.replay import replay
from sestina.telemetry.traces import read_chunks, read_requests
from tests.unit.config.helpers import changed

LAUNCH = Path(__file__).parents[3] / "launch" / "simulate.py"
SMALL = ("algorithm.batch_size=768", "run.steps=2", "telemetry.wandb='off'", "rollout.engine.kv_capacity_tokens=200000")
ARGV = ("sim=simulated", "+exp=seer_qwen72b")
KINDS = ("group", "divided", "context", "oracle")


def config_of(folder, *changes, argv=ARGV):
    return load(changed(*SMALL, f"dir={folder}", *changes, argv=argv))


def simulated(folder, *changes):
    config = config_of(folder, *changes)
    console = Console(record=True, quiet=True, width=300)
    simulate(config, console)
    return config


def world_from(*changes, argv=ARGV):
    config = config_of("nowhere", *changes, argv=argv)
    return world_of(config, config.sim)


def refusal(*changes, argv=ARGV, error=ConfigError):
    with pytest.raises(error) as caught:
        world_from(*changes, argv=argv)
    return str(caught.value)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    return simulated(tmp_path_factory.mktemp("sim") / "run")


def test_it_leaves_what_a_run_leaves(once):
    [segment] = read_journal(once.dir / "journal.jsonl")
    assert replay(segment, planner_of(once)) is None
    names = {path.name for path in once.dir.iterdir()}
    assert names >= {"config.yaml", "metrics.jsonl", "summary.png", "traces", "simulated.parquet", "finished.png"}
    requests, chunks = read_requests(once.dir).to_pylist(), read_chunks(once.dir).to_pylist()
    assert len(requests) == 2 * 768
    order = ("dispatched_s", "submitted_s", "started_s", "finished_s", "received_s")
    assert all(row[before] <= row[after] for row in chunks for before, after in pairwise(order))
    drawn = [length for step in (1, 2) for group in workload_of(once, once.sim)(step) for length in group.lengths]
    assert [row["response_tokens"] for row in requests] == drawn
    assert sum(row["tokens"] for row in chunks) == sum(drawn)
    assert max(row["tokens"] for row in chunks) <= once.rollout.chunk_tokens
    lines = [line.values for line in read_metrics(once.dir)]
    assert [line["perf/rollout_tokens"] for line in lines] == [sum(drawn[:768]), sum(drawn[768:])]
    assert all(line["perf/uncalibrated/hardware.memory_bytes_s"] == 1 for line in lines)


def test_the_same_simulation_writes_the_same_journal(once, tmp_path):
    again = simulated(tmp_path / "run")
    assert (again.dir / "journal.jsonl").read_bytes() == (once.dir / "journal.jsonl").read_bytes()
    other = simulated(tmp_path / "other", "sim.workload.seed=2")
    assert (other.dir / "journal.jsonl").read_bytes() != (once.dir / "journal.jsonl").read_bytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", ["none", "grouped"])
def test_every_scheduler_finishes_all_within_room(kind, source, tmp_path):
    config = config_of(tmp_path, f"draft.source={source}", "draft.length=mba")
    world = world_of(config, config.sim)
    driver = driver_of(world, kind, None)
    responses, values = take_step(world, driver, 1)
    assert all(response.generated_tokens == response.length for response in responses)
    assert all(sum(row.tokens for row in response.chunks) == response.length for response in responses)
    peaks = [instance.peak_tokens for instance in driver.instances]
    assert 0.5 * 200000 < max(peaks) <= 200000
    assert (values["rollout/preemptions"] > 0) == (kind == "group")
    assert (values["spec/acceptance_length"] > 1.2) == (source == "grouped")


def test_schedulers_side_by_side(tmp_path):
    config = simulated(tmp_path / "run", f"sim.compare=[{','.join(KINDS)}]")
    rows = pq.read_table(config.dir / "simulated.parquet").to_pylist()
    assert [(row["scheduler"], row["step"]) for row in rows] == [(kind, step) for kind in KINDS for step in (1, 2)]
    assert len({row["perf/rollout_tokens"] for row in rows}) == 2
    tails = {row["scheduler"]: row["rollout/tail_share"] for row in rows}
    assert tails["oracle"] < tails["context"] < tails["group"]
    for kind in KINDS:
        assert len(read_requests(config.dir / kind)) == 2 * 768
    with pytest.raises(RunDirError, match="holds a run"):
        simulate(config, Console(quiet=True))


def test_a_pool_spares_prefill(tmp_path):
    values = {}
    for pool in ("none", "local"):
        config = config_of(tmp_path, argv=(*ARGV, f"rollout/kv_pool={pool}"))
        if pool == "local":
            config = load(
                changed(*SMALL, "rollout.kv_pool.dram_bytes=1000000000000", "sim.kv_reach=cluster",
                        argv=(*ARGV, "rollout/kv_pool=local"))
            )  # fmt: skip
        world = world_of(config, config.sim)
        values[pool] = take_step(world, driver_of(world, "divided", None), 1)[1]
    assert values["local"]["rollout/prefilled_tokens"] < values["none"]["rollout/prefilled_tokens"]
    assert values["local"]["rollout/kv_moved_bytes"] > values["none"]["rollout/kv_moved_bytes"] == 0
    assert values["local"]["perf/rollout_s"] < values["none"]["perf/rollout_s"]


def test_lengths_have_their_mean_their_limit_and_alike_groups():
    sizes = {"num_groups": 600, "group_size": 16, "mean_tokens": 7615, "max_tokens": 40960}
    lengths = correlated_lengths(**sizes, between=1.0, within=0.3, seed=3)
    assert lengths.mean() == pytest.approx(7615, rel=1e-3)
    assert (lengths.min() >= 1, lengths.max()) == (True, 40960)
    logs = np.log(lengths)
    assert logs.std(axis=1).mean() < 0.35
    assert logs.mean(axis=1).std() > 0.7
    assert (lengths == correlated_lengths(**sizes, between=1.0, within=0.3, seed=3)).all()


def test_means_drift_over_steps(tmp_path):
    config = config_of(tmp_path, "sim.workload.drift=1.5")
    first, second = (np.mean([group.lengths for group in workload_of(config, config.sim)(step)]) for step in (1, 2))
    assert second / first == pytest.approx(1.5, rel=0.01)


RECORDED = ("sim=simulated", "sim/workload=recorded", "+exp=seer_qwen72b")


def test_a_recording_is_rolled_out_again(once, tmp_path):
    config = config_of(tmp_path / "run", f"sim.workload.path={once.dir}", argv=RECORDED)
    simulate(config, Console(quiet=True))
    assert (config.dir / "journal.jsonl").read_bytes() == (once.dir / "journal.jsonl").read_bytes()


def test_siblings_that_begin_alike_are_computed_once(once, tmp_path):
    """As if all said the same as far as the shortest does; instances say by how much less they hold."""
    table, size = read_requests(once.dir), once.algorithm.group_size
    lengths = table["response_tokens"].to_numpy().reshape(-1, size)
    common = np.repeat(lengths.min(axis=1, keepdims=True), size, axis=1)
    common[:, 0] = 0
    for name, values in (("text_rank", np.tile(np.arange(size), len(lengths))), ("common_tokens", common.ravel())):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    pq.write_table(table, tmp_path / "alike.parquet")
    found = []
    for name, path in (("apart", once.dir), ("alike", tmp_path / "alike.parquet")):
        config = config_of(tmp_path / name, f"sim.workload.path={path}", argv=RECORDED)
        simulate(config, Console(quiet=True))
        [segment] = read_journal(config.dir / "journal.jsonl")
        held = [e.event.kv.peak_tokens for e in segment.entries if isinstance(e.event, ChunkFinished)]
        found.append((sum(read_chunks(config.dir)["prefilled_tokens"].to_pylist()), np.mean(held)))
    (apart, apart_held), (alike, alike_held) = found
    assert alike < apart
    assert alike_held < apart_held


def test_drafts_yield_what_they_did_in_a_recorded_run(tmp_path):
    """A table of means that the recorded run had for itself is not looked at."""
    drafts = ("draft.source=grouped", "draft.length=fixed", "draft.toggle=always", "run.steps=1")
    better = ("sim.acceptance.tokens_per_step=[2,3,4,5]", *drafts)
    first = simulated(tmp_path / "first", *better)
    path = f"sim.acceptance.recording={first.dir}"
    second = simulated(tmp_path / "second", *drafts, path, "rollout.chunk_tokens=4096")
    steps, found = [], []
    for config in (first, second):
        chunks = read_chunks(config.dir)
        tokens, drafted, accepted = (
            chunks[name].to_numpy().sum() for name in ("tokens", "drafted_tokens", "accepted_tokens")
        )
        steps.append(tokens - accepted)
        found.append(drafted / (tokens - accepted))
    assert steps[1] == pytest.approx(steps[0], rel=0.01)
    assert found[1] == pytest.approx(found[0], rel=0.01)
    assert "nothing was drafted" in refusal(
        f"sim.acceptance.recording={simulated(tmp_path / 'plain', 'run.steps=1').dir}", *drafts, error=DataError
    )


def test_recordings_that_cannot_be_used_are_refused(once, tmp_path):
    table = read_requests(once.dir)

    def refused(changed_table, *changes):
        pq.write_table(changed_table, tmp_path / "lengths.parquet")
        path = f"sim.workload.path={tmp_path / 'lengths.parquet'}"
        return refusal(path, *changes, argv=RECORDED, error=DataError)

    assert "lacks column response_tokens" in refused(table.drop_columns(["response_tokens"]))
    at = table.schema.get_field_index("reward_s")
    spans = pa.array([-1.0, *[0.5] * (len(table) - 1)])
    assert "row 1: reward_s is -1.0; allowed is at least 0" in refused(table.set_column(at, "reward_s", spans))
    table = table.set_column(table.schema.get_field_index("text_rank"), "text_rank", pa.array([1] * len(table)))
    assert re.search(r"group 0 of step 1: text_rank is \[1, .*\]; allowed are 0 to 15, each once, or", refused(table))
    table = read_requests(once.dir)
    assert "has no responses of step 3; it is for a run.steps of at most 2" in refused(table, "run.steps=3")
    shorter = ("rollout.max_new_tokens=20000", "rollout.expected_tokens=null")
    assert "response_tokens reaches 40960; allowed are 20000" in refused(table, *shorter)


def test_what_cannot_be_simulated_is_refused():
    no_link = refusal("sim.hardware.link=null")
    assert "sim.hardware.link: null is not allowed with rollout.engine.tensor_parallel 8" in no_link
    assert "cluster.gpu_memory_gib: 140 is not allowed with sim.hardware.name 'H800', which has 80" in refusal(
        "rollout.engine.kv_capacity_tokens=0", argv=("sim=simulated", "+exp=seer_kimi_k2")
    )
    assert "beside 33.9 GiB of weights each GPU has" in refusal(
        "cluster.gpu_memory_gib=40", "rollout.num_instances=24", "rollout.engine.tensor_parallel=4"
    )
    unstated = ("rollout.engine.kv_capacity_tokens=0", "rollout.engine.tensor_parallel=1", "cluster=null")
    assert "weights take 135.4 GiB of a GPU's 80, which leaves 0.0 GiB" in refusal(*unstated)
    assert "draft.source: 'quantized' is not carried by a simulation" in refusal(
        "draft.source=quantized", "draft.min_token_prob=0"
    )
    assert "from 1 to 9" in refusal("draft.source=grouped", "sim.acceptance.tokens_per_step=[1,2,3,99]")
    assert "drafted_per_step: [1.0]" in refusal("draft.source=grouped", "sim.acceptance.drafted_per_step=[1]")
    assert "drafted_per_step: [9.0" in refusal("draft.source=grouped", "sim.acceptance.drafted_per_step=[9,9,9,9]")
    assert (
        "tokens_per_step: 1.7 is not allowed with 0.5 of sim.acceptance.drafted_per_step; at most one more"
        in refusal("draft.source=grouped", "sim.acceptance.drafted_per_step=[0.5,4,4,4]")
    )
    assert "as many, rising from 0" in refusal("draft.source=grouped", "sim.acceptance.siblings=[1,2,3,4]")
    assert "sim.workload.drift: 9 is not allowed" in refusal("sim.workload.drift=9.0")
    assert "rollout.expected_tokens: 50000 is not allowed" in refusal("rollout.expected_tokens=50000")
    assert "sim.hardware: null is not allowed" in refusal("sim.hardware=null")
    assert (
        "sim.compare: ('group', 'group') is not allowed with sim.world 'simulated', run.mode 'sync'; each"
        in refusal("sim.compare=[group,group]")
    )
    assert "sim.controller: 'measured' is not allowed with sim.world 'simulated'; 'free'" in refusal(
        "sim.controller=measured"
    )
    histopipe = refusal("sim.compare=[context,histopipe]")
    assert "('context', 'histopipe') is not allowed with sim.world 'simulated', run.mode 'sync'; others" in histopipe
    assert "environment.kind: 'calculator' is not carried by a simulation; 'none' is" in refusal(
        argv=("sim=simulated", "+exp=seer_qwen72b", "environment=calculator")
    )
    assert "rollout.over_issue: 1.5 is not carried by a simulation; 1 is" in refusal("rollout.over_issue=1.5")
    assert "eval.every: 5 is not carried by a simulation; 0 is" in refusal("eval.every=5", "data.eval_path=held-out")
    calibrated = ("sim=simulated", "sim/hardware=calibrated", "+exp=seer_qwen72b")
    assert "only 'torch' is calibrated" in refusal("sim.hardware.path=x.json", argv=calibrated)
    assert "sim.compare: ('group',) is not allowed with sim.world 'emulated', run.mode 'sync'; []" in refusal(
        "sim.world=emulated", "sim.compare=[group]"
    )


def test_a_pool_whose_moves_take_no_known_time_is_refused():
    mooncake = (*ARGV, "rollout/kv_pool=mooncake")
    assert "rollout.kv_pool.kind: 'mooncake' is not carried by a simulation; 'none' and 'local' are" in refusal(
        argv=mooncake
    )
    calibrated = ("sim=simulated", "sim/hardware=calibrated", "+exp=quickstart", "rollout/kv_pool=local")
    assert "rollout.kv_pool.kind: 'local' is not carried by a simulation on sim.hardware.kind 'calibrated'" in refusal(
        "sim.hardware.path=x.json", "rollout.chunk_tokens=64", "eval.every=0", argv=calibrated
    )


def test_a_step_begins_when_the_weights_of_the_last_are_there(once):
    rows, [first, second] = read_requests(once.dir).to_pylist(), read_metrics(once.dir)
    began = [min(row["offered_s"] for row in rows if row["step"] == step) for step in (1, 2)]
    assert first.values["perf/train_s"] > 0
    assert began[1] - began[0] == pytest.approx(first.values["perf/step_s"])
    [segment] = read_journal(once.dir / "journal.jsonl")
    offers = [entry.now for entry in segment.entries if isinstance(entry.event, BatchOffered)]
    assert offers == began
    assert second.values["perf/rollout_s"] < max(row["rewarded_s"] for row in rows)


def test_what_an_interrupted_comparison_has_left_is_not_written_over(tmp_path):
    config = config_of(tmp_path / "run", "sim.compare=[divided]")
    (config.dir / "context").mkdir(parents=True)
    (config.dir / "context" / "metrics.jsonl").touch()
    with pytest.raises(RunDirError, match="holds a run"):
        simulate(config, Console(quiet=True))


@pytest.mark.parametrize("flags", [(), ("--multirun",)])
def test_the_command_chooses_the_world(flags, tmp_path):
    command = [sys.executable, str(LAUNCH), *flags, "sim.world=simulated", "+exp=seer_qwen72b", "sim.worlds=free"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "sim.worlds: unknown key; did you mean 'sim.world'?" in done.stderr
    assert "1 problem" in done.stderr
