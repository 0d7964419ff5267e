import pytest

from sestina.bench.asynchronous.limit import GroupSpans, RunSpans, gain_of_trainer, gain_within, spans_of
from tests.unit.bench.helpers import line_of, write_groups


def run_of(rollouts, *, train_s=1.0, batch_groups=1, rest_s=0.0):
    groups = tuple(GroupSpans(rollout_s=rollout_s, train_s=train_s) for rollout_s in rollouts)
    return RunSpans(groups=groups, batch_groups=batch_groups, rest_s=rest_s)


def test_equal_batches_hide_all_but_the_first():
    spans = run_of([1.0] * 4)
    assert gain_within(spans, 0) == 1.0
    assert gain_within(spans, 1) == pytest.approx(8 / 5)
    assert gain_within(spans, 2) == pytest.approx(8 / 5)
    assert gain_of_trainer(spans) == 2.0


def test_a_batch_ahead_does_not_even_out_what_is_uneven():
    """The first long batch is overtaken; it is then as old as it may be, and the second begins too late."""
    spans = run_of([3.0, 1.0, 3.0, 1.0])
    assert gain_within(spans, 1) == pytest.approx(12 / 7)
    assert gain_of_trainer(spans) == 3.0


def test_with_more_ahead_what_ended_is_trained_on_first():
    assert gain_within(run_of([3.0, 1.0, 3.0, 1.0]), 4) == pytest.approx(12 / 5)


def test_a_batch_waits_for_its_last_group_and_every_step_for_the_rest():
    """At eta = 0 the first batch takes 3 and the second 2 to roll out; a batch ahead begins with what ends within 2."""
    spans = run_of([1.0, 3.0, 2.0, 2.0], batch_groups=2, rest_s=0.5)
    took_s = (3 + 2 + 0.5) + (2 + 2 + 0.5)
    assert gain_within(spans, 1) == pytest.approx(took_s / (2 + 2 * 2.5))
    assert gain_of_trainer(spans) == pytest.approx(took_s / (2 * 2.5))


def test_what_a_run_took_is_read_of_its_traces(tmp_path):
    """Two steps of two groups; training is divided by tokens, the rest of a step is the mean."""
    for step in (1, 2):
        write_groups(tmp_path, step, begins_s=10.0 * step, groups={2 * step - 2: (3.0, 10), 2 * step - 1: (4.0, 30)})
    spans = spans_of(tmp_path, [line_of(1, rollout_s=4.0, train_s=2.0, step_s=6.5), line_of(2, 4.0, 2.0, 7.5)])
    assert spans.batch_groups == 2
    assert spans.rest_s == pytest.approx(1.0)
    assert [group.rollout_s for group in spans.groups] == pytest.approx([3.0, 4.0, 3.0, 4.0])
    assert [group.train_s for group in spans.groups] == pytest.approx([0.5, 1.5, 0.5, 1.5])
