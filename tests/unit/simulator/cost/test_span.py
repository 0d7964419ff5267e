import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.simulator.cost.span import StepLines

SECONDS = st.floats(0, 1) | st.sampled_from([0.0, 1e-6, 1e-3])
LINES = st.builds(StepLines, SECONDS, SECONDS, SECONDS, SECONDS, st.floats(1e-6, 1))


def looped(lines, steps, tokens, growth):
    return math.fsum(lines.step_s(tokens + growth * step) for step in range(steps))


@given(lines=LINES, steps=st.integers(0, 60), tokens=st.floats(0, 200), growth=st.floats(0, 9) | st.just(1.0))
def test_the_closed_form_is_the_sum_over_steps(lines, steps, tokens, growth):
    assert lines.span_s(steps, tokens, growth) == pytest.approx(looped(lines, steps, tokens, growth), rel=1e-9)


@given(lines=LINES, tokens=st.integers(0, 200), growth=st.integers(0, 9), seconds=st.floats(0, 30))
def test_the_fewest_steps_that_take_so_long(lines, tokens, growth, seconds):
    steps = lines.steps_for(seconds, tokens, growth)
    assert lines.span_s(steps, tokens, growth) >= seconds
    assert steps == 0 or lines.span_s(steps - 1, tokens, growth) < seconds


def test_the_crossing_is_between_two_steps():
    lines = StepLines(10.0, 0.0, 0.0, 1.0, 0.0)
    assert lines.span_s(4, 8.0, 1.5) == 10 + 10 + 11 + 12.5
    assert lines.span_s(2, 10.0, 5.0) == 10 + 15
