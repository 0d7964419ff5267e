"""Sleeps of who waits without spinning: long enough to cost little, short enough that little is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.transport.mpi import IDLE_SLEEP_S, MIN_SLEEP_S, SHARE, Pause


@given(wait_s=st.floats(0.0, 100.0), longest_s=st.floats(MIN_SLEEP_S, 0.1))
def test_what_comes_is_seen_within_a_share_of_the_time_it_took(wait_s, longest_s):
    pause, slept_s, looks = Pause(longest_s), 0.0, 0
    while slept_s < wait_s and looks < 10_000:
        sleep_s = pause.next_s()
        assert MIN_SLEEP_S <= sleep_s <= longest_s
        assert sleep_s <= max(MIN_SLEEP_S, SHARE * slept_s * 1.001)
        slept_s, looks = slept_s + sleep_s, looks + 1


def test_a_minutes_wait_takes_few_looks():
    pause, slept_s, looks = Pause(IDLE_SLEEP_S), 0.0, 0
    while slept_s < 60.0:
        slept_s, looks = slept_s + pause.next_s(), looks + 1
    assert looks < 60.0 / IDLE_SLEEP_S + 100


def test_after_a_reset_it_begins_with_the_shortest():
    pause = Pause()
    for _ in range(200):
        pause.next_s()
    assert pause.next_s() > MIN_SLEEP_S
    pause.reset()
    assert pause.next_s() == pytest.approx(MIN_SLEEP_S)
