import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.telemetry.idle import Idle, Spans, idle_of
from sestina.telemetry.sweep import CAUSES
from sestina.telemetry.traces import ChunkRow, RequestRow

from .helpers import NUM_INSTANCES, Rollouts

BEGIN_S = 50.0


def chunk(group, instance, dispatched_s, started_s, finished_s, **changes):
    row = ChunkRow(
        step=1, group=group, sample=0, chunk=0, instance=instance, reason="probe", budget_tokens=100, tokens=10,
        finish="stop", version=0, dispatched_s=BEGIN_S + dispatched_s, submitted_s=BEGIN_S + dispatched_s,
        started_s=BEGIN_S + started_s, finished_s=BEGIN_S + finished_s, received_s=BEGIN_S + finished_s,
        prefilled_tokens=0, cached_tokens=0, preemptions=0, drafted_tokens=0, accepted_tokens=0,
    )  # fmt: skip
    return replace(row, **changes)


def request(chunks, rewarded_s=0.0, **changes):
    first, last = chunks[0], chunks[-1]
    row = RequestRow(
        step=1, group=first.group, sample=0, prompt_id="p", evaluation=False, prompt_tokens=5,
        response_tokens=sum(row.tokens for row in chunks), num_chunks=len(chunks), finish="stop", reward=1.0,
        reward_error=None, reward_s=0.0, first_version=0, last_version=0, offered_s=BEGIN_S, started_s=first.started_s,
        finished_s=last.finished_s, rewarded_s=last.finished_s + rewarded_s, preemptions=0, prefilled_tokens=0,
        cached_tokens=0,
    )  # fmt: skip
    return replace(row, **changes)


def lost(responses, *, num_instances=2, **spans):
    found = idle_of(
        [request(chunks) for chunks in responses],
        [row for chunks in responses for row in chunks],
        num_instances=num_instances,
        spans=Spans(**{"step_s": spans.get("rollout_s", 10.0), "rollout_s": 10.0, **spans}),
    )
    return {cause: pytest.approx(span) for cause, span in found.lost_s.items() if span}


def test_an_instance_without_work_loses_by_imbalance_until_one_response_is_left():
    short, long, longest = [chunk(0, 0, 0, 0, 4)], [chunk(1, 1, 0, 0, 6)], [chunk(2, 1, 0, 0, 10)]
    assert lost([short, long, longest]) == {"imbalance": 2, "last_request": 4}


def test_chunks_under_way_and_responses_nobody_has_placed_are_queueing():
    assert lost([[chunk(0, 0, 0, 2, 10)], [chunk(1, 1, 0, 3, 10)]]) == {"queueing": 5}
    pausing = [chunk(0, 0, 0, 0, 4), chunk(0, 0, 7, 7, 10, chunk=1)]
    assert lost([pausing, [chunk(1, 1, 0, 0, 10)]]) == {"queueing": 3}


def test_after_the_last_response_come_rewards_training_weights_and_the_rest():
    responses = [[chunk(0, 0, 0, 0, 4)], [chunk(1, 1, 0, 0, 4)]]
    found = lost(responses, rollout_s=5.0, train_s=3.0, weights_s=1.5, step_s=10.0)
    assert found == {"reward": 2, "train": 6, "weights": 3, "rest": 1}


def test_an_evaluation_keeps_instances_busy_and_is_no_part_of_the_rollout():
    trained, held_out = chunk(0, 0, 0, 0, 4), chunk(9, 1, 6, 6, 8)
    found = idle_of(
        [request([trained]), request([held_out], evaluation=True, offered_s=BEGIN_S + 6)],
        [trained, held_out],
        num_instances=2,
        spans=Spans(rollout_s=4.0, step_s=8.0),
    )
    assert found.lost_s["rest"] == pytest.approx(6)
    assert found.lost_s["last_request"] == pytest.approx(4)
    assert found.useful_s == pytest.approx(6)


def test_what_is_computed_again_is_lost_by_its_share_of_the_tokens():
    first = chunk(0, 0, 0, 0, 4, prefilled_tokens=5 + 15)  # a prompt of 5, and 15 after a preemption
    assert lost([[first]], num_instances=1, rollout_s=4.0) == {"recompute": 4 * 15 / 30}
    resumed = [chunk(0, 0, 0, 0, 4, prefilled_tokens=5), chunk(0, 0, 4, 4, 8, chunk=1, prefilled_tokens=10)]
    assert lost([resumed], num_instances=1, rollout_s=8.0) == {"recompute": 2}


def test_what_an_earlier_start_of_the_run_has_done_is_none_of_this_step():
    before = chunk(0, 7, -30, -30, -20, finish="abort", restored=True)
    after = chunk(0, 0, 0, 0, 4, chunk=1)
    row = request([before, after], offered_s=BEGIN_S - 40)
    other = chunk(1, 0, 0, 0, 4)
    found = idle_of(
        [row, request([other])], [before, after, other], num_instances=1, spans=Spans(step_s=4, rollout_s=4)
    )
    assert found.useful_s == pytest.approx(4)


def test_older_traces_tell_an_earlier_start_by_its_instants():
    before, after = chunk(0, 7, -30, -30, -20, finish="abort"), chunk(0, 0, 0, 0, 4, chunk=1)
    rows = [request([before, after], offered_s=BEGIN_S - 40), request([other := chunk(1, 0, 0, 0, 4)])]
    spans = Spans(step_s=4, rollout_s=4)
    assert idle_of(rows, [before, after, other], num_instances=1, spans=spans).useful_s == pytest.approx(4)


def test_metrics_name_every_cause():
    idle = Idle(area_s=9.0, useful_s=1.0, lost_s=dict.fromkeys(CAUSES, 1.0))
    values = idle.metrics()
    assert values["perf/idle/lost_s"] == len(CAUSES)
    assert set(values) == {"perf/idle/area_s", "perf/idle/lost_s", *(f"perf/idle/{cause}_s" for cause in CAUSES)}


instants = st.floats(-5, 40, allow_nan=False)
parts = st.tuples(
    st.integers(0, 2), instants, instants, instants, st.integers(0, 50), st.integers(0, 50), st.booleans()
)


@given(
    st.lists(st.lists(parts, min_size=1, max_size=4), min_size=1, max_size=8),
    st.tuples(*[st.floats(0, 20)] * 3),
    st.floats(0.01, 30),
    st.integers(0, 3),
)
def test_the_parts_are_the_whole(responses, phases, step_s, num_evaluated):
    """Whatever the traces say, also of clocks that disagree: every instance-second has one cause."""
    requests, chunks = [], []
    for group, rows in enumerate(responses):
        made = []
        for index, (instance, one, two, three, tokens, prefilled, restored) in enumerate(rows):
            times, amounts = sorted((one, two, three)), {"tokens": tokens, "prefilled_tokens": prefilled}
            made.append(chunk(group, instance, *times, chunk=index, restored=restored, **amounts))
        chunks += made
        evaluated = 0 < group <= num_evaluated
        requests.append(request(made, evaluation=evaluated, offered_s=BEGIN_S + (step_s / 2 if evaluated else 0)))
    rollout_s, train_s, weights_s = phases
    spans = Spans(step_s=step_s, rollout_s=rollout_s, train_s=train_s, weights_s=weights_s)
    found = idle_of(requests, chunks, num_instances=3, spans=spans)
    assert math.isclose(found.useful_s + math.fsum(found.lost_s.values()), 3 * step_s, abs_tol=1e-6)
    assert all(span >= -1e-9 for span in (found.useful_s, *found.lost_s.values()))
    assert found.area_s == 3 * step_s


@pytest.mark.parametrize("kind", ["divided", "context", "group"])
def test_a_rollout_that_a_planner_decides_has_all_its_causes_in_place(kind):
    requests, chunks = Rollouts(kind).step(1)
    begin_s = requests[0].offered_s
    rollout_s = max(row.rewarded_s for row in requests) - begin_s
    found = idle_of(requests, chunks, num_instances=NUM_INSTANCES, spans=Spans(step_s=rollout_s, rollout_s=rollout_s))
    assert found.lost_s["reward"] == pytest.approx(NUM_INSTANCES * (rollout_s - _last_s(requests, begin_s)))
    assert found.lost_s["last_request"] > 0
    assert found.lost_s["train"] == 0


def _last_s(requests, begin_s):
    return max(row.finished_s for row in requests) - begin_s


def test_what_ran_before_a_stop_is_no_part_of_the_step_though_every_response_was_begun_there():
    """Offered by the earlier start, partly on an instance that there no longer is."""
    before = {"offered_s": BEGIN_S - 30}
    rows = [
        [chunk(0, 2, -20, -20, -1, restored=True), chunk(0, 0, 0, 0, 8, chunk=1)],
        [chunk(1, 1, -20, -19, 0.001, restored=True), chunk(1, 1, 0.002, 0.002, 10, chunk=1)],
    ]
    found = idle_of(
        [request(chunks, **before) for chunks in rows],
        [row for chunks in rows for row in chunks],
        num_instances=2,
        spans=Spans(step_s=10.0, rollout_s=10.0),
    )
    assert found.area_s == 20
    assert found.lost_s["last_request"] == pytest.approx(2)


def test_what_ran_just_before_a_stop_is_no_part_of_a_step_that_has_nothing_left_to_roll_out():
    """All was finished, on instances that there no longer are, within less than what the step takes to see that."""
    rows = [[chunk(group, 2 + group, -0.02, -0.02, -0.01 * group, restored=True)] for group in range(2)]
    found = idle_of(
        [request(chunks, offered_s=BEGIN_S - 30) for chunks in rows],
        [row for chunks in rows for row in chunks],
        num_instances=2,
        spans=Spans(step_s=3.0, rollout_s=1.0, train_s=2.0),
    )
    assert found.useful_s == 0
    assert {cause: span for cause, span in found.lost_s.items() if span} == {"reward": 2.0, "train": 4.0}
