import time

import pytest

from sestina.rollout.meter import meter_for
from sestina.simulator.agenda import Agenda
from sestina.simulator.clock import VirtualClock
from sestina.simulator.scoring import Workers


def test_time_passes_with_work_alone():
    worked_s = 0.0
    clock = VirtualClock(lambda: worked_s)
    worked_s = 5.0
    assert clock() == 0.0, "somebody else's work"
    with clock.working():
        worked_s += 2.0
        assert clock() == 2.0, "time passes in the middle of work"
        worked_s += 1.0
    worked_s += 9.0
    assert clock() == 3.0
    clock.wait_until(2.0)
    assert clock() == 3.0
    clock.wait_until(4.5)
    assert clock() == 4.5
    with clock.working(), pytest.raises(AssertionError, match="in the middle of work"):
        clock.wait_until(9.0)


def test_work_that_fails_has_taken_its_time():
    clock = VirtualClock(iter((0.0, 1.0)).__next__)

    def fail():
        with clock.working():
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert clock() == 1.0


def test_on_a_cpu_sleep_is_no_work():
    clock = VirtualClock(meter_for("cpu"))
    began = time.perf_counter()
    with clock.working():
        time.sleep(0.2)
    assert clock() < (time.perf_counter() - began) / 2


def test_things_happen_in_order_of_time_and_then_of_writing():
    agenda, seen = Agenda(), []
    for name, at in (("late", 2.0), ("first", 1.0), ("second", 1.0)):
        agenda.put(at, lambda at, name=name: seen.append((name, at)))
    while agenda.run_next():
        pass
    assert seen == [("first", 1.0), ("second", 1.0), ("late", 2.0)]
    assert not agenda.run_next()


def test_a_reward_waits_for_the_first_worker_that_is_free():
    workers = Workers(2)
    assert [workers.take(at, 1.0) for at in (0.0, 0.0, 0.5, 0.6, 9.0)] == [1.0, 1.0, 2.0, 2.0, 10.0]
