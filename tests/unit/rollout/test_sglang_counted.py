"""What a server's drafters have counted, on its way to the rank."""

from collections import Counter

import msgspec

from sestina.core.tally import DraftTally, SourceTally
from sestina.rollout.sglang.counted import Counted, ServerTally, since, total


def counted(times=1, steps=None, full=0):
    """As a scheduler says it after so many times the same."""
    source = SourceTally(
        drafted_tokens=8 * times,
        accepted_tokens=3 * times,
        tried=(2 * times, times),
        accepted=(2 * times, 0),
        drafted_by_siblings=(8 * times, 0),
        accepted_by_siblings=(3 * times, 0),
    )
    tally = DraftTally(
        sources={"grouped": source},
        steps=steps or {"on": times},
        draft_s=0.25 * times,
        step_s=0.5 * times,
        histories=0,
        histories_dropped=0,
    )
    return Counted(tally=tally, counts={"index_full": full} if full else {})


def test_schedulers_are_counted_together():
    assert total([counted(1), counted(2), counted(4)]) == counted(7)
    assert total([counted(3)]) == counted(3)


def test_what_is_new_is_what_came_since():
    assert since(None, counted(2)) == counted(2)
    assert since(counted(2), counted(5)) == counted(3)


def test_reasons_and_counts_may_be_new():
    before, now = counted(1, {"on": 1}), counted(2, {"on": 1, "rest": 4}, full=2)
    assert since(before, now) == counted(1, {"on": 0, "rest": 4}, full=2)


def test_it_survives_the_way():
    assert msgspec.json.decode(msgspec.json.encode(counted(3)), type=Counted) == counted(3)


def test_a_desk_has_it_as_if_it_were_counted_there():
    counts, said = Counter(index_full=1), [counted(1, full=2), None]
    tally = ServerTally(counts, lambda: said.pop(0))
    assert tally.take() == counted(1).tally
    assert counts["index_full"] == 3
    lost = tally.take()
    assert (lost.sources, lost.steps, lost.step_s) == ({}, {}, 0.0)
