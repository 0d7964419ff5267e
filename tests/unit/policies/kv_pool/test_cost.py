import pytest

from sestina.policies.kv_pool.cost import SEEN, TRY_AGAIN, MoveCost


def learned(row_s=1e-3, *, dram=(1e-4, 1e-9), ssd=None, points=20):
    cost = MoveCost(row_s)
    for tier, line in (("dram", dram), ("ssd", ssd)):
        for number in range(points if line else 0):
            num_bytes = 1000 * (number % 7 + 1)
            cost.learn(tier, num_bytes, line[0] + line[1] * num_bytes)
    return cost


def test_a_tier_is_moved_from_until_it_has_been_measured():
    cost = learned(row_s=1e-12, points=SEEN - 1)
    assert cost.move_s("dram", 10**9) is None
    assert cost.moves("dram", 10**9, 1)


def test_the_line_is_found_and_decides():
    cost = learned(row_s=1e-5, dram=(1e-4, 1e-9))
    assert cost.move_s("dram", 10**6) == pytest.approx(1.1e-3)
    assert cost.moves("dram", 10**6, 111)
    assert not cost.moves("dram", 10**6, 109)


def test_of_moves_that_look_dear_one_is_made_now_and_then():
    cost = learned(row_s=1e-12)
    assert [cost.moves("dram", 10**6, 1) for _ in range(TRY_AGAIN)] == [False] * (TRY_AGAIN - 1) + [True]


def test_times_that_have_changed_are_learned():
    cost = learned(dram=(0.0, 1e-9))
    for _ in range(300):
        cost.learn("dram", 4000, 8e-3)
    assert cost.move_s("dram", 4000) == pytest.approx(8e-3, rel=0.05)


def test_neither_part_of_a_line_is_below_zero():
    cost = MoveCost(1.0)
    for num_bytes, seconds in [(1000, 4.0), (2000, 3.0), (3000, 2.0), (4000, 1.0)]:
        cost.learn("dram", num_bytes, seconds)
    for num_bytes, seconds in [(1000, 0.1), (2000, 2.0), (3000, 4.1), (4000, 6.0)]:
        cost.learn("ssd", num_bytes, seconds)
    assert cost.move_s("dram", 10**6) == pytest.approx(2.5, rel=0.05)
    assert cost.move_s("ssd", 1) > 0


def test_what_comes_next_is_promoted_if_the_ssd_is_slower():
    assert learned(ssd=(1e-3, 1e-9)).promotes(5000)
    assert not learned(ssd=(1e-5, 1e-10)).promotes(5000)
    assert learned(ssd=None).promotes(5000)
