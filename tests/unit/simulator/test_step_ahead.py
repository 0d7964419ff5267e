"""Pipelined training in simulated worlds, with the planner, gate and histories of a real run."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from sestina.controller.plan import planner_of
from sestina.core.errors import ConfigError, DataError
from sestina.policies.events import BatchOffered
from sestina.simulator.lengths import correlated_lengths
from sestina.simulator.rollouts import driver_of, steps_of
from sestina.simulator.run import simulate
from sestina.simulator.workload import workload_of
from sestina.simulator.world import world_of
from sestina.telemetry.journal import read_journal
from sestina.telemetry.metrics import read_metrics
from sestina.telemetry.replay import replay
from sestina.telemetry.traces import read_chunks, read_requests
from tests.unit.simulator.helpers import stays_within_room
from tests.unit.simulator.test_ahead import series_of
from tests.unit.simulator.test_fluid import chunk, instance
from tests.unit.simulator.test_simulated import config_of, refusal

STEPS, BATCH, EPOCH = 5, 2048, 2
ARGV = ("sim=simulated", "+exp=rhymerl_8b")
SIZES = (
    f"run.steps={STEPS}",
    f"algorithm.batch_size={BATCH}",
    "rollout.num_instances=16",
    "rollout.ranking_groups=4",
    "cluster.gpus=48",
    "cluster.split.rollout=2",
    "trainer.num_ranks=16",
    "sim.hardware.train_share=1.0",
)
"""Rollout takes longer than training: batches wait for each other, not for weights."""
EPOCHS = (f"sim.workload.epoch_steps={EPOCH}", "sim.workload.seen_before=true")


def ahead(folder, *changes, argv=ARGV):
    config = config_of(folder, *SIZES, *changes, argv=argv)
    simulate(config, Console(quiet=True))
    return config


def offers_of(config):
    [segment] = read_journal(config.dir / "journal.jsonl")
    return [entry.event for entry in segment.entries if isinstance(entry.event, BatchOffered)]


def lengths_at(config, step):
    return [group.lengths for group in workload_of(config, config.sim)(step)]


@pytest.fixture(scope="module")
def ranked(tmp_path_factory):
    return ahead(tmp_path_factory.mktemp("ahead") / "run", *EPOCHS)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return ahead(tmp_path_factory.mktemp("plain") / "run", *EPOCHS, "rollout.scheduler=group")


@pytest.mark.parametrize("name", ["ranked", "plain"])
def test_it_is_one_version_behind_and_loses_no_token(name, request):
    config = request.getfixturevalue(name)
    assert series_of(config, "async/staleness_max") == [0] + [1] * (STEPS - 1)
    assert series_of(config, "async/interruptions") == [0] * STEPS
    rows = read_requests(config.dir).to_pylist()
    assert Counter(row["step"] for row in rows) == dict.fromkeys(range(1, STEPS + 1), BATCH)
    assert len({(row["group"], row["sample"]) for row in rows}) == STEPS * BATCH
    assert all(row["first_version"] == max(0, row["step"] - 2) for row in rows)
    drawn = {g.group: g.lengths for step in range(1, STEPS + 1) for g in workload_of(config, config.sim)(step)}
    assert all(row["response_tokens"] == drawn[row["group"]][row["sample"]] for row in rows)
    tokens = sum(sum(lengths) for lengths in drawn.values())
    assert sum(read_chunks(config.dir)["tokens"].to_pylist()) == sum(series_of(config, "perf/rollout_tokens")) == tokens


def test_its_journal_replays_and_is_that_of_equal_simulations(ranked, tmp_path):
    [segment] = read_journal(ranked.dir / "journal.jsonl")
    assert replay(segment, planner_of(ranked)) is None
    assert all(before.now <= after.now for before, after in pairwise(segment.entries))
    again = ahead(tmp_path / "again", *EPOCHS)
    assert (again.dir / "journal.jsonl").read_bytes() == (ranked.dir / "journal.jsonl").read_bytes()
    other = ahead(tmp_path / "other", *EPOCHS, "sim.workload.seed=2")
    assert (other.dir / "journal.jsonl").read_bytes() != (ranked.dir / "journal.jsonl").read_bytes()


def test_offers_bring_the_lengths_of_the_last_epoch(ranked):
    for step, offer in enumerate(offers_of(ranked), start=1):
        assert [group.history for group in offer.groups] == lengths_at(ranked, step - EPOCH)
        assert offer.version == max(0, step - 2)
        trained_s = series_of(ranked, "perf/train_s")[offer.version - 1] + series_of(ranked, "perf/weights_s")[0]
        assert offer.train_s == (pytest.approx(trained_s) if offer.version else 0)
        assert offer.beta == 1.1
    prompts = [row["prompt_id"] for row in read_requests(ranked.dir).to_pylist()]
    assert prompts[: EPOCH * BATCH] == prompts[EPOCH * BATCH : 2 * EPOCH * BATCH]
    assert lengths_at(ranked, 1) != lengths_at(ranked, 1 + EPOCH), "with responses of their own"


def test_the_first_epoch_has_no_history_and_says_so(tmp_path, caplog):
    config = ahead(tmp_path / "run", f"sim.workload.epoch_steps={EPOCH}")
    known = [all(group.history for group in offer.groups) for offer in offers_of(config)]
    assert known == [step > EPOCH for step in range(1, STEPS + 1)]
    assert "no prompt has a history yet; until one comes again (sim.workload.epoch_steps" in caplog.text


def test_steps_are_the_trainers_time_without_gaps(ranked, plain):
    for config in (ranked, plain):
        for line in read_metrics(config.dir):
            values = line.values
            parts = sum(values[f"perf/{part}_s"] for part in ("rollout", "train", "weights"))
            assert values["perf/step_s"] == pytest.approx(parts)
            assert values["perf/tokens_per_s"] == pytest.approx(values["perf/rollout_tokens"] / parts)
            assert 0 <= values["perf/instances_idle_ratio"] < 1
        [segment] = read_journal(config.dir / "journal.jsonl")
        published_s = np.cumsum(series_of(config, "perf/step_s"))
        began = [entry.now for entry in segment.entries if isinstance(entry.event, BatchOffered)]
        assert all(began[step + 1] >= published_s[step - 1] for step in range(1, STEPS - 1))
        assert began[1] < published_s[0], "the second batch does not wait for the first to be trained on"


def test_an_instance_loads_new_weights_between_its_parts(ranked, plain):
    for config in (ranked, plain):
        rows, runs = read_chunks(config.dir).to_pylist(), defaultdict(list)
        for row in sorted(rows, key=lambda row: row["started_s"]):
            runs[row["instance"]].append(row)
        load_s = world_of(config, config.sim).load_s
        assert load_s > 0
        for of_instance in runs.values():
            parts = [(version, list(part)) for version, part in groupby(of_instance, key=lambda row: row["version"])]
            assert [version for version, _ in parts] == list(range(STEPS - 1))
            for (_, before), (_, after) in pairwise(parts):
                ended_s = max(row["finished_s"] for row in before)
                assert min(row["started_s"] for row in after) >= ended_s + load_s - 1e-6


def test_workers_go_on_by_themselves_and_are_done_sooner(ranked, plain):
    assert sum(series_of(ranked, "perf/step_s")) < sum(series_of(plain, "perf/step_s"))
    reasons = {row["reason"] for row in read_chunks(ranked.dir).to_pylist()}
    assert reasons <= {"ranked", "intra-step", "inter-step"}
    starts = [
        (min(span), max(span))
        for config in (ranked, plain)
        for span in [[row["started_s"] for row in read_chunks(config.dir).to_pylist() if row["step"] == 4]]
    ]
    third = [max(row["finished_s"] for row in read_chunks(each.dir).to_pylist() if row["step"] == 3)
             for each in (ranked, plain)]  # fmt: skip
    assert starts[0][0] < third[0], "streaming: a batch begins before the last is rolled out"
    assert starts[1][0] >= third[1]


def test_what_migrates_between_steps_goes_on_with_the_next_weights_and_no_newer_ones(tmp_path):
    growing = ("rollout.expected_tokens=1500", "sim.workload.within=0.5", "sim.workload.drift=1.2")
    config = ahead(tmp_path / "run", *EPOCHS, *growing, "rollout.chunk_tokens=512", "rollout.ranking_groups=8")
    assert sum(series_of(config, "rollout/migrated_intra_step")) > 0
    assert sum(series_of(config, "rollout/migrated_inter_step")) > 0
    assert max(series_of(config, "async/mixed_version_ratio")) > 0
    assert max(series_of(config, "async/staleness_max")) == 1
    rows = read_requests(config.dir).to_pylist()
    assert all(0 <= row["last_version"] - row["first_version"] <= 1 for row in rows)
    assert all(row["first_version"] == max(0, row["step"] - 2) for row in rows)
    assert [offer.beta > 1.1 for offer in offers_of(config)] == [False, False, True, True, True], "growth is learnt"
    [segment] = read_journal(config.dir / "journal.jsonl")
    assert replay(segment, planner_of(config)) is None


@pytest.mark.parametrize("kind", ["group", "divided", "context", "oracle", "histopipe"])
def test_every_scheduler_and_drafts_stay_within_room(kind):
    drafts = ("draft.source=grouped", "draft.length=mba", "rollout.engine.kv_capacity_tokens=40000")
    config = config_of("nowhere", *SIZES, *EPOCHS, *drafts, argv=ARGV)
    config = replace(config, rollout=replace(config.rollout, scheduler=kind))
    world = world_of(config, config.sim)
    stays_within_room(world, kind, batch=BATCH, staleness=1, room=40000)


def test_weights_that_a_chunk_asks_for_are_loaded_before_it_and_never_replaced_by_older_ones():
    of_one = instance()
    of_one.submit(chunk(0, 10, 5))
    of_one.ask(2, 3.0)
    of_one.ask(1, 50.0)
    of_one.submit(asking := chunk(1, 10, 5))
    due = of_one.settle(0.0)
    assert due > 3.0
    assert (of_one.version, of_one.loaded_s, asking.started_s >= 3.0) == (2, 3.0, True)
    while of_one.num_running:
        of_one.finish()
        of_one.settle(due)
    of_one.ask(2, 3.0)
    of_one.settle(due)
    assert of_one.loaded_s == 3.0, "what it has is not loaded again"


def test_an_epoch_later_prompts_have_their_place_and_responses_of_their_own():
    sizes = {"num_groups": 500, "group_size": 16, "mean_tokens": 3000, "max_tokens": 16384, "seed": 3}
    first, second = (correlated_lengths(**sizes, between=1.0, within=0.3, epoch=epoch) for epoch in (1, 2))
    assert (first != second).mean() > 0.9
    ranks = [np.argsort(np.argsort(np.median(lengths, axis=1))) * 16 // 500 for lengths in (first, second)]
    moved_up = float(np.mean(ranks[1] > ranks[0]))
    assert 0.15 < moved_up < 0.25, "the paper's table 2: 20 to 28 % of prompts, of 16 ranking groups"
    alike = [correlated_lengths(**sizes, between=1.0, within=0.0, epoch=epoch) for epoch in (1, 2)]
    assert (alike[0] == alike[1]).all()


def test_schedulers_side_by_side_are_compared_by_steps(tmp_path):
    config = ahead(tmp_path / "run", *EPOCHS, "sim.compare=[group,histopipe]", "run.steps=3")
    rows = pq.read_table(config.dir / "simulated.parquet").to_pylist()
    assert [row["scheduler"] for row in rows] == ["group"] * 3 + ["histopipe"] * 3
    steps_s = Counter()
    for row in rows:
        steps_s[row["scheduler"]] += row["perf/step_s"]
    assert steps_s["histopipe"] < steps_s["group"]


RECORDED = ("sim=simulated", "sim/workload=recorded", "+exp=rhymerl_8b")


def test_recorded_prompts_are_known_again(ranked, tmp_path):
    config = ahead(tmp_path / "run", f"sim.workload.path={ranked.dir}", argv=RECORDED)
    known = [all(group.history for group in offer.groups) for offer in offers_of(config)]
    assert known == [step > EPOCH for step in range(1, STEPS + 1)]
    assert [group.history for group in offers_of(config)[2].groups] == lengths_at(ranked, 1)
    rows = read_requests(ranked.dir).to_pylist()
    same = [row | {"group": row["group"] % 128} for row in rows]
    pq.write_table(pa.Table.from_pylist(same), path := tmp_path / "same.parquet")
    said = refusal(*SIZES, f"sim.workload.path={path}", argv=RECORDED, error=DataError)
    assert "group 0 is of steps 1 and 2; run.mode 'pipelined' takes groups whose numbers differ" in said
    nameless = [row | {"prompt_id": ""} for row in rows]
    pq.write_table(pa.Table.from_pylist(nameless), path)
    said = refusal(*SIZES, f"sim.workload.path={path}", argv=RECORDED, error=DataError)
    assert "row 1: prompt_id is ; allowed is text that is not empty" in said
    pq.write_table(pa.Table.from_pylist([row | {"prompt_id": row["group"]} for row in rows]), path)
    said = refusal(*SIZES, f"sim.workload.path={path}", argv=RECORDED, error=DataError)
    assert "column prompt_id is of type int64; allowed is text" in said


def test_what_a_pipelined_simulation_does_not_carry_is_refused(tmp_path):
    for change, why in (
        ("sim.workload.seen_before=true", r"seen_before: true is not allowed with sim.workload.epoch_steps 0; false, "),
        ("sim.train_s=5", r"sim.train_s: 5.0 is not allowed with sim.world 'simulated'; 0: what training takes there"),
        ("sim.workload.epoch_steps=-1", r"sim.workload.epoch_steps: -1"),
        ("eval.every=2", r"eval.every: 2 is not allowed with run.mode 'pipelined', sim.world 'simulated'; 0"),
    ):
        with pytest.raises(ConfigError, match=why):
            config_of("nowhere", change, argv=ARGV)
    said = refusal(f"rollout.history_from={tmp_path}", argv=ARGV)
    assert "rollout.history_from:" in said
    assert "is not carried by a simulation; null is" in said


def test_a_step_out_of_turn_is_an_error():
    config = config_of("nowhere", *SIZES, *EPOCHS, argv=ARGV)
    world = world_of(config, config.sim)
    world = replace(world, config=replace(config, rollout=replace(config.rollout, scheduler="group")))
    with pytest.raises(AssertionError, match="step 2 is asked for, and 1 is next"):
        steps_of(world, driver_of(world, "group", None))(2)
