"""Which source each draft of a step comes from, and what became of it: live texts, histories, or the better of both."""

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from sestina.core.ids import EVAL_GROUPS
from sestina.core.records import Finish
from sestina.core.units import Seconds
from sestina.drafting.drafts import DraftBuffers
from sestina.drafting.settings import SHORTEST_MATCH, DraftSettings
from sestina.rollout.drafts import IntArray
from sestina.rollout.job import Job
from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.decisions import Planned
from sestina.rollout.speculation.desk import DraftDesk
from sestina.rollout.speculation.speculator import Outcome
from sestina.rollout.speculation.tally import StepCounts, Tally

if TYPE_CHECKING:
    from sestina.rollout.speculation.history import HistoryDrafts

T = TypeVar("T", bound=np.generic)


class Sources:
    """One per engine; `live` says whether texts under way are drafted from, which the speculator itself does."""

    def __init__(self, config: DraftConfig, desk: DraftDesk, *, vocab_size: int, num_slots: int) -> None:
        names = config.source.split("+")
        self.live = names != ["history"]
        self._tally = desk.tally = Tally(tuple(names), max_length=config.max_tokens)
        self._history: HistoryDrafts | None = None
        if "history" in names:
            self._history = _history(vocab_size, num_slots, self._tally, alone=not self.live)
            desk.take_history = self._history.take
        self._finished: Counter[int] = Counter()
        """Responses that have finished here, by group."""
        self._from: npt.NDArray[np.int64] = np.zeros(num_slots, np.int64)
        """By request of the step, its source; of one source alone all are."""

    def begin(self) -> None:
        """Weights are there."""
        self._finished.clear()
        if self._history is not None:
            self._history.age()

    def draft(
        self, table: SlotTable, slots: IntArray, most: IntArray, settings: DraftSettings, live: DraftBuffers | None
    ) -> DraftBuffers:
        """Return the drafts of rows [N]: `live`, those of their histories, or of both the one with the longer match.

        Where matches are equally long the higher score is taken.
        """
        if self._history is None:
            assert live is not None, "without a history the drafts are given"
            return live
        self._history.follow(table, slots)
        past = self._history.draft(slots, most, _of_history(settings))
        if live is None:
            return past
        taken = _better(past, live)
        self._from = taken.astype(np.int64)
        return _merged(live, past, taken)

    def leave(self, job: Job, finish: Finish) -> None:
        """A chunk has left the engine."""
        if finish in ("stop", "length"):
            self._finished[job.request.id.group] += 1
        if self._history is not None:
            self._history.leave(job.key)

    def count_rest(self, table: SlotTable, slots: IntArray, steps: int, seconds: Seconds) -> None:
        """Take in steps that nobody was asked about, the last of which drew for these rows, unless to evaluate."""
        if (table.groups[slots] < EVAL_GROUPS).any():
            self._tally.step_s += seconds
            self._tally.steps["rest"] += steps

    def count(self, table: SlotTable, outcome: Outcome, planned: Planned | None, spent_s: Seconds) -> None:
        """Take in what a step came to; `planned` is None when it was not decided about. Evaluation is not counted."""
        slots, drafts, verified = outcome.step.requests, outcome.step.drafts, outcome.verified
        if not (table.groups[slots] < EVAL_GROUPS).any():
            return
        self._tally.step_s += outcome.seconds
        if planned is not None:
            self._tally.steps[planned[1].reason] += 1
            self._tally.draft_s += spent_s
        if planned is None or drafts is None or verified is None:
            return
        view, plan = planned
        groups = table.groups[view.slots]
        rows = np.flatnonzero((drafts.counts[: view.batch] > 0) & (groups < EVAL_GROUPS))
        counts = drafts.counts[rows].astype(np.int64)
        self._tally.count(
            StepCounts(
                sources=self._from[rows],
                drafted=counts,
                depths=np.minimum(counts, plan.lengths[rows]),
                accepted=verified.accepted[rows].astype(np.int64),
                siblings=np.array([self._finished[group] for group in groups[rows].tolist()], np.int64),
            )
        )


def _history(vocab_size: int, num_slots: int, tally: Tally, *, alone: bool) -> "HistoryDrafts":
    # SGLang's servers, which draft without it, have not what it imports.
    from sestina.rollout.speculation.history import HistoryDrafts, settings_of  # noqa: PLC0415

    return HistoryDrafts(settings_of(vocab_size, alone=alone), num_slots=num_slots, tally=tally)


def _of_history(settings: DraftSettings) -> DraftSettings:
    return DraftSettings(
        top_k=settings.top_k, min_token_prob=settings.min_token_prob, own_weight=0, min_match=SHORTEST_MATCH
    )


def _better(one: DraftBuffers, other: DraftBuffers) -> npt.NDArray[np.bool_]:
    equal = one.match_lens == other.match_lens
    return np.where(equal, one.scores > other.scores, one.match_lens > other.match_lens)


def _merged(first: DraftBuffers, second: DraftBuffers, taken: npt.NDArray[np.bool_]) -> DraftBuffers:
    """Return the drafts of `first`, in rows where `taken` those of `second`."""
    behind = first.bounds[-1]  # the entries of `second` come after those of `first`
    starts = np.where(taken, behind + second.bounds[:-1], first.bounds[:-1])
    counts = np.where(taken, np.diff(second.bounds), np.diff(first.bounds))
    bounds = np.append(0, np.cumsum(counts))
    entries = np.repeat(starts - bounds[:-1], counts) + np.arange(bounds[-1])

    def both(one: "npt.NDArray[T]", other: "npt.NDArray[T]") -> "npt.NDArray[T]":
        return np.concatenate([one[:behind], other])[entries]

    return DraftBuffers(
        token_ids=both(first.token_ids, second.token_ids),
        parents=both(first.parents, second.parents),
        probs=both(first.probs, second.probs),
        bounds=bounds,
        scores=np.where(taken, second.scores, first.scores),
        match_lens=np.where(taken, second.match_lens, first.match_lens),
    )
