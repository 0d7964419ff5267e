"""What ranks have counted of drafts, as metrics."""

import pytest

from sestina.controller.draft_metrics import tally_metrics
from sestina.core.tally import DraftTally, SourceTally

NOTHING = DraftTally(sources={}, steps={}, draft_s=0.0, step_s=0.0, histories=0, histories_dropped=0)


def tally(source="grouped", *, steps, histories=0):
    counted = SourceTally(
        drafted_tokens=10,
        accepted_tokens=6,
        tried=(4, 3, 2),
        accepted=(3, 2, 1),
        drafted_by_siblings=(8, 0, 2, 0, 0, 0),
        accepted_by_siblings=(6, 0, 0, 0, 0, 0),
    )
    return DraftTally(
        sources={source: counted}, steps=steps, draft_s=0.5, step_s=2.0, histories=histories, histories_dropped=1
    )


def test_ranks_are_added_up():
    metrics = tally_metrics([tally(steps={"on": 3, "no-room": 1}), tally(steps={"on": 2, "rest": 5}), NOTHING])
    assert metrics == pytest.approx(
        {
            "spec/steps/on": 5,
            "spec/steps/no_room": 1,
            "spec/steps/rest": 5,
            "spec/draft_time_share": 0.25,
            "spec/grouped/drafted_tokens": 20,
            "spec/grouped/accepted_tokens": 12,
            "spec/grouped/wasted_tokens": 8,
            "spec/grouped/acceptance_at_1": 3 / 4,
            "spec/grouped/acceptance_at_2": 2 / 3,
            "spec/grouped/acceptance_siblings_0": 3 / 4,
            "spec/grouped/acceptance_siblings_2_3": 0,
        }
    )


def test_sources_are_told_apart_and_histories_counted():
    metrics = tally_metrics([tally(steps={"on": 1}), tally("history", steps={"on": 1}, histories=4)])
    assert metrics["spec/grouped/drafted_tokens"] == metrics["spec/history/drafted_tokens"] == 10
    assert (metrics["spec/history/taken"], metrics["spec/history/refused"]) == (4, 2)


def test_without_a_step_there_is_nothing_to_say():
    assert tally_metrics([NOTHING, NOTHING]) == {}
    assert tally_metrics([]) == {}
