import time

import pytest

from sestina.bench.asked import at_least, at_most, below, stated
from sestina.bench.turns import Span, Turns, take_turns


def test_turns_alternate_after_one_that_is_not_timed():
    order, lines = [], []
    turns = take_turns(
        lambda turn: order.append(("ours", turn)),
        lambda turn: (order.append(("theirs", turn)), time.sleep(0.01)),
        turns=3,
        name="sleeping",
        say=lines.append,
    )
    assert order == [(who, turn) for turn in range(4) for who in ("ours", "theirs")]
    assert len(turns.ours) == len(turns.theirs) == 3
    assert all(span.wall_s >= 0.01 and span.cpu_s < span.wall_s for span in turns.theirs)
    assert [line.split(":")[1].strip() for line in lines] == ["turn 1/3", "turn 2/3", "turn 3/3"]


def test_the_speedup_is_the_median_of_ratios_of_neighbours():
    spans = [Span(wall_s=wall_s, cpu_s=cpu_s) for wall_s, cpu_s in [(1, 1), (2, 1), (4, 1), (5, 7), (6, 2), (4, 3)]]
    turns = Turns(ours=tuple(spans[:3]), theirs=tuple(spans[3:]))
    assert turns.speedups == [5.0, 3.0, 1.0]
    assert (turns.speedup, turns.cpu_speedup) == (3.0, 3.0)


@pytest.mark.parametrize(
    ("figure", "must", "met"),
    [
        (at_least("a", 2.0, "x", 2.0), ">= 2", True),
        (at_least("a", 1.99, "x", 2.0), ">= 2", False),
        (at_least("a", 1.0, "x", None), None, None),
        (at_most("a", 0.05, "x", 0.05), "<= 0.05", True),
        (at_most("a", 0.051, "x", 0.05), "<= 0.05", False),
        (below("a", 0.9, "x", 1), "< 1", True),
        (below("a", 1.0, "x", 1), "< 1", False),
        (stated("a", 1.0, "x"), None, None),
    ],
)
def test_what_is_asked_is_said_and_judged(figure, must, met):
    assert (figure.name, figure.unit, figure.must, figure.met) == ("a", "x", must, met)
