"""What the embedded engine asks before and tells after every step that may hold drafts."""

from dataclasses import dataclass
from typing import Protocol

from sestina.core.records import Finish
from sestina.core.units import Seconds
from sestina.policies.drafting.cost import StepCost
from sestina.rollout.drafts import Drafts, IntArray
from sestina.rollout.job import Job
from sestina.rollout.slots import SlotTable
from sestina.rollout.step import Step
from sestina.rollout.verify import Verified


@dataclass(slots=True, kw_only=True)  # made in every step; a frozen one takes three times as long to make
class Outcome:
    """What a step came to."""

    step: Step
    verified: Verified | None
    """None when nothing was drafted."""
    seconds: Seconds


class Speculator(Protocol):
    """Drafts for the requests of one engine, which verifies them: no draft changes a token."""

    def begin(self, cost: StepCost) -> None:
        """Weights are there; with the first ones, `cost` is what a step takes. Forgets all responses."""
        ...

    def propose(self, table: SlotTable, slots: IntArray, most: IntArray) -> Drafts | None:
        """Draft at most `most` [N] tokens for the requests in these rows [N]; None when it does not pay.

        `table.tokens[slot, :table.length[slot]]` is what is known of a request, and `table.keys[slot]` tells it from
        others that have had the row.
        """
        ...

    def learn(self, table: SlotTable, outcome: Outcome) -> int:
        """Take in what a step came to, with drafts or without.

        Return how many of the next steps that decode pass without anybody being asked: nearly all do where drafts do
        not pay, and cost nothing then.
        """
        ...

    def rested(self, table: SlotTable, slots: IntArray, steps: int, seconds: Seconds) -> None:
        """So many of those have passed, and took so long together; the last drew for the requests in these rows."""
        ...

    def leave(self, job: Job, finish: Finish) -> None:
        """A chunk has left the engine; `job.known` is all of its text."""
        ...
