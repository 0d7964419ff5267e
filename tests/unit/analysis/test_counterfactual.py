import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.analysis.counterfactual import counterfactual, work_of
from sestina.analysis.fluid import FluidInstance, Running
from sestina.analysis.pace import Pace, pace_of
from sestina.core.errors import DataError
from sestina.core.ids import RequestId
from tests.unit.rewards.test_environments import calculator
from tests.unit.telemetry.helpers import TOKEN_S, Rollouts

PACE = Pace(
    step_s=1.0, sequence_s=0.5, prefill_s=0.25, first_share=1.0, resumed_share=1.0, tokens_per_step=1.0, message_s=0.0
)

RESUMED = b'{"resumed": true, "time": 1790000000.0, "cut_bytes": 0}\n'


def chunk(sample, *, context=0, tokens=10, prefill=0.0):
    return Running(request=RequestId(0, sample), context_tokens=context, tokens=tokens, prefill_tokens=prefill)


def ends_of(instance):
    found = []
    for _ in range(1000):
        at = instance.next_s()
        if at is None:
            return found
        found += [(chunk.request.sample, pytest.approx(at)) for chunk in instance.take(at)]
    raise AssertionError("it does not end")


def instance_of(capacity=1000, max_running=8, pace=PACE):
    return FluidInstance(pace, kv_capacity_tokens=capacity, max_running=max_running)


def test_what_runs_together_advances_together():
    instance = instance_of()
    instance.submit(chunk(0, tokens=10), 0.0)
    instance.submit(chunk(1, tokens=4), 3.0)  # two steps of the first are behind it
    # Four steps of two at 2 s each, then the four that are left of the first at 1.5 s.
    assert ends_of(instance) == [(1, 11.0), (0, 17.0)]


def test_all_wait_while_a_context_is_prefilled():
    instance = instance_of()
    instance.submit(chunk(0, tokens=10), 0.0)
    instance.submit(chunk(1, tokens=4, prefill=8), 3.0)
    assert ends_of(instance) == [(1, 13.0), (0, 19.0)]


def test_no_more_run_than_may_and_than_have_room():
    for limits in ({"max_running": 1}, {"capacity": 39}):
        instance = instance_of(**limits)
        instance.submit(chunk(0, context=20, tokens=10), 0.0)
        instance.submit(chunk(1, context=20, tokens=10), 0.0)
        assert ends_of(instance) == [(0, 15.0), (1, 30.0)]


def test_the_one_that_came_last_gives_way_and_begins_again():
    instance = instance_of(capacity=50)
    instance.submit(chunk(0, context=20, tokens=20), 0.0)
    instance.submit(chunk(1, context=20, tokens=20), 0.0)
    # Five steps of two fill the pages; the second returns with 25 tokens to prefill when the first has left.
    first = 5 * 2.0 + 15 * 1.5
    assert ends_of(instance) == [(0, first), (1, first + 25 * 0.25 + 15 * 1.5)]
    assert instance.preemptions == 1


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30), st.floats(0, 20)), min_size=1, max_size=12))
def test_whatever_arrives_ends_once(arrivals):
    instance, arrived, ended = instance_of(capacity=90, max_running=4), 0, []
    for index, (context, tokens, at) in enumerate(sorted(arrivals, key=lambda each: each[2])):
        while (end := instance.next_s()) is not None and end <= at:
            ended += instance.take(end)
        instance.submit(chunk(index, context=context, tokens=tokens, prefill=context), at)
        arrived += 1
    ended = [each.request.sample for each in ended] + [sample for sample, _ in ends_of(instance)]
    assert sorted(ended) == list(range(arrived))


def test_the_pace_is_found_again():
    _, chunks = Rollouts().step(1)
    pace = pace_of(chunks)
    assert pace.step_s == pytest.approx(TOKEN_S, rel=0.02)
    assert pace.sequence_s == pytest.approx(0, abs=1e-4)
    assert pace.message_s == pytest.approx(1e-3)
    assert (pace.first_share, pace.resumed_share, pace.tokens_per_step) == (1, 1, 1)


def test_the_pace_of_a_crowd_is_found_again():
    rng, instance, rows = np.random.default_rng(3), instance_of(100_000, 100), {}
    template = Rollouts().step(1, num_groups=1, samples=1)[1][0]

    def take(until):
        while (at := instance.next_s()) is not None and at <= until:
            for each in instance.take(at):
                index = each.request.sample
                rows[index] = replace(rows[index], finished_s=at, received_s=at)

    for index, at in enumerate(np.cumsum(rng.exponential(40.0, 300))):
        take(at)
        tokens, prefilled = int(rng.integers(5, 60)), int(rng.integers(0, 80))
        rows[index] = replace(
            template, sample=index, started_s=at, finished_s=at, tokens=tokens, prefilled_tokens=prefilled
        )
        instance.submit(chunk(index, tokens=tokens, prefill=prefilled), at)
    take(1e9)
    pace = pace_of(list(rows.values()))
    assert pace.step_s == pytest.approx(PACE.step_s, rel=0.1)
    assert pace.sequence_s == pytest.approx(PACE.sequence_s, rel=0.1)
    assert pace.prefill_s == pytest.approx(PACE.prefill_s, rel=0.1)


def test_a_model_of_the_runs_own_scheduler_comes_close_to_it(divided):
    for step in divided.steps:
        found = counterfactual(divided, step)
        assert (found.scheduler, found.other) == ("divided", "context")
        assert abs(found.error) < 0.05
        assert found.other_s > 0


def test_another_scheduler_has_the_same_work(divided):
    work = work_of(divided, 2)
    requests, _ = divided.rows_of(2)
    assert work.lengths == {RequestId(row.group, row.sample): row.response_tokens for row in requests}
    assert counterfactual(divided, 2, "oracle").other_s < counterfactual(divided, 2, "group").other_s


def test_a_batch_is_taken_from_the_start_that_ended_it(divided, tmp_path):
    run = replace(divided, path=shutil.copytree(divided.path, tmp_path / "killed"))
    lines = divided.path.joinpath("journal.jsonl").read_bytes().splitlines(keepends=True)
    ended = [number for number, line in enumerate(lines) if b"ChunkFinished" in line and b'"done":true' in line]
    killed = lines[: ended[0] + 1]
    journal = run.path / "journal.jsonl"
    journal.write_bytes(b"".join([*killed, RESUMED, *lines]))
    assert work_of(run, 1) == work_of(divided, 1)
    journal.write_bytes(b"".join(killed))
    with pytest.raises(DataError, match="its journal holds no batch that is step 1 alone"):
        work_of(run, 1)


def test_steps_that_overlap_are_not_foretold(left):
    overlapping = left("async", "run.mode=async", "algorithm=ppo", "algorithm.batch_size=32", "async.max_staleness=2")
    with pytest.raises(DataError, match="its journal holds no batch that is step 1 alone"):
        counterfactual(overlapping, 1)


def test_waits_for_an_environment_are_not_foretold(divided):
    asking = replace(divided, config=replace(divided.config, environment=calculator()))
    with pytest.raises(DataError, match="its responses waited for an environment"):
        counterfactual(asking, 1)
