"""Counts of drafts, by hand."""

import numpy as np

from sestina.core.tally import SourceTally
from sestina.rollout.speculation.tally import StepCounts, Tally


def row(*values):
    return np.array(values, np.int64)


def test_places_siblings_and_sources_are_told_apart():
    tally = Tally(("grouped", "history"), max_length=4)
    tally.count(
        StepCounts(
            sources=row(0, 0, 1, 0),
            drafted=row(3, 3, 2, 6),
            depths=row(3, 3, 2, 2),
            accepted=row(3, 1, 0, 2),
            siblings=row(0, 1, 40, 3),
        )
    )
    taken = tally.take()
    assert taken.sources["grouped"] == SourceTally(
        drafted_tokens=12,
        accepted_tokens=6,
        tried=(3, 3, 1, 0),
        accepted=(3, 2, 1, 0),
        drafted_by_siblings=(3, 3, 6, 0, 0, 0),
        accepted_by_siblings=(3, 1, 2, 0, 0, 0),
    )
    assert taken.sources["history"] == SourceTally(
        drafted_tokens=2,
        accepted_tokens=0,
        tried=(1, 0, 0, 0),
        accepted=(0, 0, 0, 0),
        drafted_by_siblings=(0, 0, 0, 0, 0, 2),
        accepted_by_siblings=(0, 0, 0, 0, 0, 0),
    )


def test_what_was_taken_is_not_counted_again():
    tally = Tally(("self",), max_length=4)
    tally.count(StepCounts(sources=row(0), drafted=row(4), depths=row(4), accepted=row(4), siblings=row(0)))
    tally.steps["on"] += 1
    tally.step_s, tally.histories = 1.0, 2
    assert tally.take().steps == {"on": 1}
    again = tally.take()
    assert (again.steps, again.step_s, again.histories) == ({}, 0.0, 0)
    assert again.sources["self"].drafted_tokens == 0
