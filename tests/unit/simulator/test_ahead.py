"""Asynchronous training in simulated worlds, with the planner, gate, buffer and accounts of a real run."""

from collections import Counter, defaultdict
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from sestina.config.sim import LinkConfig
from sestina.controller.plan import planner_of
from sestina.core.errors import ConfigError, DataError
from sestina.kvpool.config import LocalKvPoolConfig
from sestina.policies.events import ChunkFinished
from sestina.simulator.cost.moves import MoveCost
from sestina.simulator.resume import Resume, SimulatedPool
from sestina.simulator.run import simulate
from sestina.simulator.workload import workload_of
from sestina.simulator.world import world_of
from sestina.telemetry.journal import read_journal
from sestina.telemetry.metrics import read_metrics
from sestina.telemetry.replay import replay
from sestina.telemetry.traces import read_chunks, read_requests
from tests.unit.simulator.helpers import stays_within_room
from tests.unit.simulator.test_fluid import chunk
from tests.unit.simulator.test_simulated import ARGV, RECORDED, config_of, refusal

STEPS, ETA, BATCH = 5, 2, 128
AHEAD = ("run.mode=async", f"run.steps={STEPS}", f"algorithm.batch_size={BATCH}", f"async.max_staleness={ETA}")
"""Rollout takes longer than training, so that weights come in the middle of responses."""


def ahead(folder, *changes, argv=ARGV):
    config = config_of(folder, *AHEAD, *changes, argv=argv)
    simulate(config, Console(quiet=True))
    return config


def series_of(config, name):
    return [line.values[name] for line in read_metrics(config.dir)]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    return ahead(tmp_path_factory.mktemp("ahead") / "run")


def test_it_runs_ahead_within_the_bound_and_loses_no_token(interrupted):
    assert max(series_of(interrupted, "async/staleness_max")) == ETA
    assert sum(series_of(interrupted, "async/interruptions")) > 0
    assert max(series_of(interrupted, "async/mixed_version_ratio")) > 0
    rows = read_requests(interrupted.dir).to_pylist()
    assert Counter(row["step"] for row in rows) == dict.fromkeys(range(1, STEPS + 1), BATCH)
    assert len({(row["group"], row["sample"]) for row in rows}) == STEPS * BATCH
    assert all(0 <= row["step"] - 1 - row["first_version"] <= ETA for row in rows)
    assert any(row["first_version"] < row["last_version"] for row in rows)
    workload = workload_of(interrupted, interrupted.sim)
    drawn = {group.group: group.lengths for step in range(1, STEPS + 1) for group in workload(step)}
    assert all(row["response_tokens"] == drawn[row["group"]][row["sample"]] for row in rows)
    tokens = sum(sum(lengths) for lengths in drawn.values())
    assert series_of(interrupted, "async/tokens_generated")[-1] == tokens
    assert series_of(interrupted, "async/tokens_trained")[-1] == tokens
    assert sum(read_chunks(interrupted.dir)["tokens"].to_pylist()) == tokens


def test_its_journal_replays_and_is_that_of_equal_simulations(interrupted, tmp_path):
    [segment] = read_journal(interrupted.dir / "journal.jsonl")
    assert replay(segment, planner_of(interrupted)) is None
    assert all(before.now <= after.now for before, after in pairwise(segment.entries))
    again = ahead(tmp_path / "again")
    assert (again.dir / "journal.jsonl").read_bytes() == (interrupted.dir / "journal.jsonl").read_bytes()


def test_steps_are_the_trainers_time_without_gaps(interrupted):
    for line in read_metrics(interrupted.dir):
        values = line.values
        parts = sum(values[f"perf/{part}_s"] for part in ("rollout", "train", "weights"))
        assert values["perf/step_s"] == pytest.approx(parts)
        assert 0 <= values["perf/instances_idle_ratio"] < 1
    order = ("dispatched_s", "submitted_s", "started_s", "finished_s", "received_s")
    chunks = read_chunks(interrupted.dir).to_pylist()
    assert all(row[before] <= row[after] for row in chunks for before, after in pairwise(order))


def test_a_staleness_of_zero_is_synchronous_training(tmp_path):
    zero = ahead(tmp_path / "zero", "async.max_staleness=0", "run.steps=3")
    sync = ahead(tmp_path / "sync", "run.mode=sync", "run.steps=3")

    def ends(config):
        [segment] = read_journal(config.dir / "journal.jsonl")
        return [entry.event for entry in segment.entries if isinstance(entry.event, ChunkFinished)]

    assert ends(zero) == ends(sync)
    for name in ("perf/step_s", "perf/rollout_s", "perf/train_s", "perf/rollout_tokens", "rollout/prefilled_tokens"):
        assert series_of(zero, name) == pytest.approx(series_of(sync, name))
    assert series_of(zero, "async/staleness_max") == [0, 0, 0]
    assert series_of(zero, "async/interruptions") == [0, 0, 0]


def test_responses_that_are_not_interrupted_end_before_weights_are_taken(interrupted, tmp_path):
    drained = ahead(tmp_path / "drained", "sim.updates=drain")
    assert sum(series_of(drained, "async/interruptions")) == 0
    assert sum(series_of(drained, "perf/weights_s")) > 2 * sum(series_of(interrupted, "perf/weights_s"))
    rows, began = read_chunks(drained.dir).to_pylist(), defaultdict(list)
    for row in rows:
        began[row["instance"], row["version"]].append((row["started_s"], row["finished_s"]))
    for (instance, version), spans in began.items():
        later = [start for start, _ in began.get((instance, version + 1), [])]
        assert max(end for _, end in spans) <= min(later, default=float("inf")), "one version after the other"


def test_an_interruption_costs_the_prefill_that_kept_keys_and_values_spare(interrupted, tmp_path):
    kept = ahead(tmp_path / "kept", "async.keep_kv=true")
    assert max(series_of(kept, "async/kept_kv_token_ratio")) > 0
    assert max(series_of(interrupted, "async/kept_kv_token_ratio")) == 0
    prefilled = [sum(series_of(config, "rollout/prefilled_tokens")) for config in (kept, interrupted)]
    assert prefilled[0] < prefilled[1]


def test_what_grows_too_old_is_dropped_and_replaced(tmp_path):
    config = ahead(tmp_path / "run", "async.overdue=drop", "async.max_staleness=1")
    assert series_of(config, "async/groups_dropped")[-1] > 0
    assert series_of(config, "async/tokens_dropped")[-1] > 0
    assert max(series_of(config, "async/staleness_max")) <= 1
    assert len(read_requests(config.dir)) == STEPS * BATCH
    [segment] = read_journal(config.dir / "journal.jsonl")
    assert replay(segment, planner_of(config)) is None


@pytest.mark.parametrize("kind", ["group", "divided", "context", "oracle"])
@pytest.mark.parametrize("updates", ["interrupt", "drain"])
def test_every_scheduler_and_drafts_stay_within_room(kind, updates):
    changes = (*AHEAD, f"sim.updates={updates}", "draft.source=grouped", "draft.length=mba")
    world = world_of(config := config_of("nowhere", *changes), config.sim)
    stays_within_room(world, kind, batch=BATCH, staleness=ETA, room=200000)


def test_a_pool_serves_no_keys_and_values_of_older_weights():
    link = LinkConfig(bytes_s=1e9, latency_s=0.0)
    cost = MoveCost(token_bytes=1.0, links={"dram": link, "ssd": None, "network": None})
    sizes = LocalKvPoolConfig(kind="local", dram_bytes=1000, ssd_bytes=0, ssd_dir=None, move="always")
    pool = SimulatedPool(
        config=sizes, cost=cost, instance_gpus=1, instances_per_node=1, nodes_per_instance=1, reach="node"
    )
    resume, first = Resume(pool=pool), chunk(0, 10, 50)
    first.done, first.produced, first.version = False, 50, 3
    resume.left(first, 0)
    later = chunk(0, 10, 20, generated=50)
    later.version = 4
    assert pool.move_s(later, 0, 50) is None
    later.version = 3
    assert pool.move_s(later, 0, 50) == ("dram", 50 / 1e9)
    resume.forget()
    assert pool.move_s(later, 0, 50) is None
    pool.keep(later.request, 0, 1000, 4)
    assert pool.move_s(chunk(0, 10, 20), 0, 1000) is None
    later.version = 4
    assert pool.move_s(later, 0, 1000) is not None, "what was forgotten has left its room"


def test_schedulers_side_by_side_are_compared_by_steps(tmp_path):
    config = ahead(tmp_path / "run", "sim.compare=[divided,context]")
    rows = pq.read_table(config.dir / "simulated.parquet").to_pylist()
    assert [row["scheduler"] for row in rows] == ["divided"] * STEPS + ["context"] * STEPS
    assert all(row["async/staleness_max"] <= ETA for row in rows)


def test_recorded_lengths_are_taken_group_by_group(interrupted, tmp_path):
    config = ahead(tmp_path / "run", f"sim.workload.path={interrupted.dir}", argv=RECORDED)
    assert series_of(config, "async/tokens_trained")[-1] == series_of(interrupted, "async/tokens_trained")[-1]
    sizes = f"sim.workload.path={interrupted.dir}"
    assert "step 1 has 8 groups; run.mode 'async' takes the 4 of a batch" in refusal(
        *AHEAD, "algorithm.batch_size=64", sizes, argv=RECORDED, error=DataError
    )
    assert "async.overdue: 'drop' is not carried by a simulation of recorded lengths" in refusal(
        *AHEAD, "async.overdue=drop", sizes, argv=RECORDED
    )
    rows = read_requests(interrupted.dir).to_pylist()
    places = {step: sorted({row["group"] for row in rows if row["step"] == step}) for step in range(1, STEPS + 1)}
    same = [row | {"group": places[row["step"]].index(row["group"])} for row in rows]
    pq.write_table(pa.Table.from_pylist(same), path := tmp_path / "same.parquet")
    assert "group 0 is of steps 1 and 2; run.mode 'async' takes groups whose numbers differ" in refusal(
        *AHEAD, f"sim.workload.path={path}", argv=RECORDED, error=DataError
    )


def test_modes_that_cannot_be_simulated_are_refused():
    dapo = (*ARGV, "algorithm=dapo")
    assert "algorithm.dynamic_sampling: true is not carried by a simulation, which scores nothing" in refusal(
        *AHEAD, "algorithm.dynamic_sampling=true", argv=dapo
    )
    with pytest.raises(ConfigError, match=r"sim.trainer_shares: 2 is not allowed with sim.world 'simulated'"):
        config_of("nowhere", *AHEAD, "sim.trainer_shares=2")
