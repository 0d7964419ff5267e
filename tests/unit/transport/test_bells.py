"""Bells wake who sleeps on this machine, never make who rings wait, and are of no use to anybody elsewhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.transport.bells import Bells

LONG_S = 60.0


@pytest.fixture
def bells():
    ranks = [Bells() for _ in range(3)]
    for each in ranks:
        each.connect([other.address for other in ranks])
    yield ranks
    for each in ranks:
        each.close()


def test_a_ring_ends_a_sleep_of_the_rank_it_is_for(bells):
    bells[0].ring(2)
    assert bells[2].wait(LONG_S)
    assert not bells[1].wait(0.01)
    assert not bells[0].wait(0.01)


def test_rings_before_a_sleep_end_one_sleep(bells):
    for _ in range(5):
        bells[0].ring(1)
    assert bells[1].wait(LONG_S)
    assert not bells[1].wait(0.01)


def test_who_rings_never_waits_for_who_does_not_hear(bells):
    for _ in range(10_000):
        bells[0].ring(1)
    assert bells[1].hush()
    bells[0].ring(1)
    assert bells[1].hush()


def test_nobody_rings_himself(bells):
    bells[1].ring(1)
    assert not bells[1].hush()


def test_a_rank_that_is_gone_is_rung_no_more(bells):
    bells[1].close()
    bells[0].ring(1)
    bells[0].ring(1)
    bells[0].ring(2)
    assert bells[2].hush()


def test_ranks_of_other_machines_are_not_rung(bells):
    here, elsewhere = bells[1].address, bytes(16) + bells[1].address[16:]
    assert len(here) == len(elsewhere)
    bells[0].connect([bells[0].address, elsewhere])
    bells[0].ring(1)
    assert not bells[1].hush()


@given(events=st.lists(st.sampled_from(["ring", "hush"]), max_size=30))
def test_a_bell_is_heard_when_it_was_rung_since_it_was_last_heard(events):
    ringer, sleeper = Bells(), Bells()
    ringer.connect([ringer.address, sleeper.address])
    rung = False
    for event in events:
        if event == "ring":
            ringer.ring(1)
            rung = True
        else:
            assert sleeper.hush() is rung
            rung = False
    assert sleeper.wait(0.0) is rung
    ringer.close()
    sleeper.close()
