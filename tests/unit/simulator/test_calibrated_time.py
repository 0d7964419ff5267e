"""Real engines whose steps take what a calibration says, whatever the machine does meanwhile."""

import dataclasses

import pytest
from rich.console import Console

from sestina.bench.validate.outturn import errors_of, read_outturn
from sestina.config.load import load
from sestina.controller.plan import planner_of
from sestina.core.errors import AbsentError, DataError
from sestina.policies.drafting.serving import JoinPoint, joined_s
from sestina.rollout.taken import Joined, Taken
from sestina.simulator.cost.taken import CalibratedMeter, taken_s
from sestina.simulator.run import simulate
from sestina.telemetry.journal import read_journal
from sestina.telemetry.metrics import read_metrics
from sestina.telemetry.replay import replay
from sestina.telemetry.traces import read_chunks, read_requests
from tests.unit.config.helpers import composed, violations
from tests.unit.simulator.calibrations import COST, SERVING, calibrated_for

BASE = ("+exp=quickstart", "telemetry.wandb='off'", "eval.every=0", "run.steps=1", "run.checkpoint_every=0")
EMULATED = ("sim=emulated", "sim.controller=free")
PLAIN = Taken(sequences=4, kv_tokens=400, drafted_tokens=0, longest_draft=0, looked=False, joined=())
GROUPED = ("draft=grouped", "draft.length=fixed", "draft.guard=false", "draft.max_tokens=4")
ADAPTIVE = ("draft=grouped", "draft.length=mba", "draft.guard=true")


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    path = tmp_path_factory.mktemp("calibration") / "c.json"
    calibrated_for(load(composed(*BASE)), path)
    return path


@pytest.fixture(scope="module")
def taken(tmp_path_factory, calibration):
    def run(*changes):
        world = [] if "sim=emulated" not in changes and "sim=simulated" in changes else EMULATED
        given = (*BASE, *world, "sim/hardware=calibrated", f"sim.hardware.path={calibration}", *changes)
        config = load(composed(*given, f"dir={tmp_path_factory.mktemp('run') / 'run'}"))
        simulate(config, Console(quiet=True))
        return config

    return run


@pytest.fixture(scope="module")
def divided(taken):
    return taken()


def test_chunks_that_join_take_what_was_fitted_to_such_steps():
    point = JoinPoint(
        batch=4, sequence_tokens=100, chunks=2, text_tokens=50, cached_tokens=32, seconds=0, held_out=False
    )
    chunks = [Joined(text_tokens=50, cached_tokens=32)] * 2
    step = dataclasses.replace(PLAIN, sequences=6, kv_tokens=500, joined=chunks)
    both = taken_s(step, COST, SERVING) + taken_s(dataclasses.replace(step, joined=()), COST, SERVING)
    assert both == pytest.approx(joined_s(COST, SERVING, point))


def test_drafts_are_paid_for_and_so_is_looking_for_none():
    cost = dataclasses.replace(COST, draft_step_s=1e-3)
    drafted = dataclasses.replace(PLAIN, drafted_tokens=9, longest_draft=4, looked=True)
    assert taken_s(drafted, cost, SERVING) == cost.speculative_s(4, 400, drafted=9, longest=4)
    in_vain = dataclasses.replace(PLAIN, looked=True)
    assert taken_s(in_vain, cost, SERVING) == pytest.approx(cost.plain_s(4, 400) + 1e-3)
    assert taken_s(PLAIN, cost, SERVING) == cost.plain_s(4, 400)


def test_a_step_of_prefill_alone_reads_the_weights():
    prefill = dataclasses.replace(PLAIN, sequences=0, kv_tokens=0)
    meter = CalibratedMeter(COST, SERVING)
    meter.take(prefill)
    meter.take(prefill)
    assert meter() == 2 * (COST.weights_s + COST.step_s)


def test_tokens_are_those_of_measured_time(divided, tmp_path):
    measured = load(composed(*BASE, *EMULATED, f"dir={tmp_path / 'run'}"))
    simulate(measured, Console(quiet=True))
    crcs = [read_metrics(config.dir)[0].values["rollout/tokens_crc32"] for config in (divided, measured)]
    assert crcs[0] == crcs[1]


@pytest.mark.parametrize("drafts", [(), GROUPED, ADAPTIVE])
def test_the_same_run_twice_leaves_the_same_journal(taken, drafts):
    runs = [taken("rollout=context", *drafts) for _ in range(2)]
    journals = [(config.dir / "journal.jsonl").read_bytes() for config in runs]
    assert journals[0] == journals[1]
    assert read_chunks(runs[0].dir).equals(read_chunks(runs[1].dir))
    [segment] = read_journal(runs[0].dir / "journal.jsonl")
    assert replay(segment, planner_of(runs[0])) is None


def test_looking_drafts_up_takes_no_time_beside_its_cost(taken):
    [line] = read_metrics(taken(*GROUPED).dir)
    assert line.values["spec/drafted_tokens"] > 0
    assert line.values["spec/draft_time_share"] == 0


def test_a_pace_is_of_every_step_and_no_other_time_passes(taken, divided):
    slower = taken("sim.hardware.pace=2")
    spans = [
        [row["finished_s"] - row["offered_s"] for row in read_requests(config.dir).to_pylist()]
        for config in (divided, slower)
    ]
    assert spans[1] == pytest.approx([2 * span for span in spans[0]])


def test_scoring_takes_what_is_given(taken):
    rows = read_requests(taken("sim.reward_s=0.5", "algorithm.batch_size=8", "reward.num_workers=8").dir).to_pylist()
    assert all(row["rewarded_s"] == pytest.approx(row["finished_s"] + 0.5) for row in rows)


@pytest.mark.parametrize(
    "changes",
    [
        ("rollout=group", "rollout.num_instances=2"),
        ("rollout.num_instances=2", "rollout.chunk_tokens=32"),
        ("rollout=context", "rollout.engine.kv_capacity_tokens=4096"),
        ("rollout=context", "draft=self", "draft.length=fixed", "draft.guard=false", "draft.max_tokens=4"),
    ],
)
def test_a_simulation_foretells_what_real_engines_come_to(taken, divided, changes):
    emulated = taken(*changes)
    drafts = [change for change in changes if change.startswith("draft")]
    acceptance = ()
    if drafts:
        recording = taken("rollout.chunk_tokens=128", "rollout.engine.max_step_tokens=576", *drafts)
        acceptance = ("sim.acceptance.draft_tokens=4", f"sim.acceptance.recording={recording.dir}")
    lengths = ("sim/workload=recorded", f"sim.workload.path={divided.dir}")
    simulated = taken("sim=simulated", "sim.reward_s=0", *lengths, *changes, *acceptance)
    assert [row["response_tokens"] for row in read_requests(emulated.dir).to_pylist()] == [
        row["response_tokens"] for row in read_requests(divided.dir).to_pylist()
    ]
    errors = errors_of(read_outturn(simulated.dir), read_outturn(emulated.dir))
    # Which group is begun last, at the edge of the room, moves the half of them and the tail; a step has few groups.
    assert all(errors[name] < 0.07 for name in ("makespan", "p90 completion", "p99 completion")), errors


def test_a_recording_whose_steps_had_no_rows_for_all_drafts_is_refused(taken, divided):
    with pytest.raises(DataError, match=r"no rows for all drafts; .*max_step_tokens of at least 576, for dr"):
        taken(
            "sim=simulated",
            "sim/workload=recorded",
            f"sim.workload.path={divided.dir}",
            *GROUPED,
            "sim.acceptance.draft_tokens=4",
            f"sim.acceptance.recording={divided.dir}",
        )


def test_what_no_calibration_has_is_refused(calibration):
    given = ("sim=emulated", "sim/hardware=calibrated", f"sim.hardware.path={calibration}", "+exp=quickstart")
    free = (*given, "sim.controller=free")

    def refused(*changes, argv=free):
        return violations(*changes, argv=argv)

    beside = "is not allowed with sim.world 'emulated', sim.hardware.kind 'calibrated'"
    assert refused(argv=given) == [
        f"sim.controller: 'measured' {beside}; 'free': steps take what was calibrated, and no calibration has decisions"
    ]
    assert refused("sim.trainer_shares=2") == [
        f"sim.trainer_shares: 2 {beside}; 0: steps take what was calibrated, and no calibration has training"
    ]
    assert refused(argv=(*free, "rollout/kv_pool=local")) == [
        f"rollout.kv_pool.kind: 'local' {beside}; 'none': steps take what was calibrated, and no calibration has moves"
    ]
    assert refused(argv=(*free, "draft=quantized")) == [
        f"draft.source: 'quantized' {beside}; "
        "a source that looks drafts up: no calibration has steps of a drafting model"
    ]


def test_what_is_real_in_an_emulation_is_not_given(tmp_path):
    argv = ("sim=emulated", "+exp=quickstart")
    assert violations("sim.reward_s=0.5", argv=argv) == [
        "sim.reward_s: 0.5 is not allowed with sim.world 'emulated', sim.hardware null; "
        "0: scoring takes what it really takes, unless sim.hardware says what steps take"
    ]
    assert violations(argv=(*argv, "sim/hardware=h800")) == [
        "sim.hardware.kind: 'gpu' is not allowed with sim.world 'emulated'; "
        "'calibrated' (sim/hardware=calibrated), or sim.hardware null: its engines run here"
    ]
    assert violations(argv=(*argv, "sim/workload=drawn")) == [
        "sim.workload.kind: 'drawn' is not allowed with sim.world 'emulated'; "
        "sim.workload null: prompts and tokens are real there"
    ]
    table = "sim.acceptance={draft_tokens: 8, siblings: [0], tokens_per_step: [1.7]}"
    assert violations(table, argv=argv) == [
        "sim.acceptance.draft_tokens: 8 is not allowed with sim.world 'emulated'; "
        "sim.acceptance null: drafts are real there"
    ]


def test_a_calibration_that_is_not_there_is_named_before_anything_is_written(tmp_path):
    given = (*BASE, *EMULATED, "sim/hardware=calibrated", f"sim.hardware.path={tmp_path / 'c.json'}")
    config = load(composed(*given, f"dir={tmp_path / 'run'}"))
    with pytest.raises(AbsentError, match=r"sim\.hardware\.path: .*c.json: no such file or directory; .* writes one"):
        simulate(config, Console(quiet=True))
    assert not (tmp_path / "run").exists()
