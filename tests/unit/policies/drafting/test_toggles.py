import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.policies.drafting.acceptance import Acceptance
from sestina.policies.drafting.forecast import Forecast
from sestina.policies.drafting.toggles import Always, BatchLimit, BatchToggle, RooflineToggle, batch_limits_of
from tests.unit.policies.drafting.test_lengths import seen
from tests.unit.policies.drafting.worlds import INDEX, view_of

NOTHING = Acceptance(max_length=8)


def forecast_of(batch, speedup=1.0):
    return Forecast(batch=batch, plain_s=speedup, speculative_s=1.0, accepted=0.0)


def verdict(toggle, batch, *, speedup=1.0, promised=0.0, acceptance=NOTHING):
    return toggle.verdict(view_of(batch), forecast_of(batch, speedup), promised, acceptance)


def test_always():
    assert verdict(Always(), 1000, speedup=0.01) == "on"


LIMITS = (BatchLimit(acceptance=0.2, max_batch=2), BatchLimit(acceptance=0.5, max_batch=16))


@pytest.mark.parametrize(
    ("alpha", "on", "off"), [(None, 2, 3), (0.1, 2, 3), (0.6, 2, 3), (0.95, 16, 17)],
    ids=["unmeasured", "below", "between", "above"],
)  # fmt: skip
def test_the_batch_toggle_reads_the_row_of_the_measured_acceptance(alpha, on, off):
    acceptance = NOTHING if alpha is None else seen(alpha)
    assert verdict(BatchToggle(LIMITS), on, acceptance=acceptance) == "on"
    assert verdict(BatchToggle(LIMITS), off, acceptance=acceptance) == "batch"


def test_limits_of_a_cost_are_where_drafting_stops_paying():
    shares = (0.1, 0.3, 0.5, 0.7, 0.9)
    limits = batch_limits_of(INDEX, length=4, sequence_tokens=1000, acceptances=shares, most=256)
    assert [row.max_batch for row in limits] == sorted(row.max_batch for row in limits)
    assert 0 < limits[0].max_batch < limits[-1].max_batch < 256
    for row in limits:
        tokens = 1 + 4 * row.acceptance
        gains = [
            tokens * INDEX.plain_s(b, 1000 * b) / INDEX.speculative_s(b, 1000 * b, drafted=4 * b, longest=4)
            for b in range(1, row.max_batch + 2)
        ]
        assert min(gains[:-1]) >= 1 > gains[-1]


def test_the_roofline_wants_a_margin_and_stays_on_until_the_rollout_ends():
    toggle = RooflineToggle(ramp_up=0)
    assert verdict(toggle, 8, speedup=1.049) == "roofline"
    assert verdict(toggle, 8, speedup=0.7, promised=4.01) == "on", "1.05 with what is promised"
    assert verdict(toggle, 8, speedup=0.1) == "on"
    toggle.begin_rollout()
    assert verdict(toggle, 8, speedup=0.1) == "roofline"


def test_the_roofline_waits_for_the_ramp_up():
    toggle = RooflineToggle()
    assert verdict(toggle, 32, speedup=9.0) == "ramp-up"
    assert verdict(toggle, 33) == "roofline"
    assert verdict(toggle, 1, speedup=9.0) == "on"


@given(steps=st.lists(st.tuples(st.integers(1, 80), st.floats(0.5, 2)), max_size=50))
def test_within_a_rollout_the_roofline_comes_on_at_most_once(steps):
    toggle = RooflineToggle()
    verdicts = [verdict(toggle, batch, speedup=speedup) for batch, speedup in steps]
    assert verdicts == sorted(verdicts, key=("ramp-up", "roofline", "on").index)
