"""Drafts out of a suffix index: what followed the end of a text the last times that it occurred."""

import itertools
import time
from dataclasses import dataclass

import numpy as np

from sestina.core.ids import RequestId
from sestina.core.records import Finish
from sestina.core.units import Seconds, TokenArray
from sestina.drafting.drafts import DraftBuffers
from sestina.drafting.index import MAX_DRAFT_TOKENS, DraftSettings, IndexSettings, SuffixIndex
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.policy import DraftPolicy
from sestina.policies.drafting.step import StepOutcome, StepPlan, StepView
from sestina.rollout.drafts import Drafts, IntArray
from sestina.rollout.job import Job
from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.policy import build_policy
from sestina.rollout.speculation.speculator import Outcome

_NOBODY = np.uint64(0)

SHARE = 0.005
"""Of a plain step's time, that deciding on it may take on average: after a decision against drafts, some steps pass."""

MOST_REST = 64
"""Steps that pass at most."""


@dataclass(slots=True)
class _Text:
    """A response that the index holds."""

    handle: int
    num_tokens: int = 0
    """Of it, in the index."""


class SuffixSpeculator:
    """Implements `Speculator`."""

    def __init__(self, config: DraftConfig, *, vocab_size: int, num_slots: int) -> None:
        self._config = config
        self._num_slots = num_slots
        self._settings = IndexSettings(vocab_size=vocab_size)
        self._policy: DraftPolicy | None = None
        self._keys = np.full(num_slots, _NOBODY)
        self._handles = np.zeros(num_slots, np.int64)
        self._num_tokens = np.zeros(num_slots, np.int64)
        self._planned: tuple[StepView, StepPlan] | None = None
        self._spent_s = 0.0
        self._rest = 0
        self._forget()

    @property
    def policy(self) -> DraftPolicy:
        """What decides; raises AssertionError before there are weights."""
        assert self._policy is not None, "begin comes first"
        return self._policy

    def begin(self, cost: StepCost) -> None:
        """See `Speculator.begin`."""
        if self._policy is None:
            self._policy = build_policy(self._config, cost, self._num_slots)
        self._policy.begin_rollout()
        self._forget()

    def propose(self, table: SlotTable, slots: IntArray, most: IntArray) -> Drafts | None:
        """See `Speculator.propose`."""
        if self._rest:
            self._rest -= 1
            return None
        began_s = time.perf_counter()
        drafts = self._propose(table, slots, most)
        self._spent_s = time.perf_counter() - began_s
        return drafts

    def _propose(self, table: SlotTable, slots: IntArray, most: IntArray) -> Drafts | None:
        self._meet(table, slots)
        view = StepView(
            slots=slots.astype(np.int64),
            probes=table.samples[slots] == 0,
            limits=np.maximum(most, 0).astype(np.int64),
            kv_tokens=int(table.length[slots].sum()),
        )
        plan = self.policy.plan(view)
        self._planned = view, plan
        if not plan.speculate:
            return None
        self._read(table, slots)
        most = np.minimum(view.limits, MAX_DRAFT_TOKENS)
        wanted = np.minimum(plan.lengths * plan.paths, most).astype(np.int32)
        paths = DraftSettings(top_k=plan.paths, min_token_prob=self._config.min_token_prob)
        return _padded(self._index.draft(self._handles[slots], wanted, paths), trees=plan.paths > 1)

    def learn(self, table: SlotTable, outcome: Outcome) -> None:
        """See `Speculator.learn`; a step that prefills too says nothing of drafts."""
        planned, self._planned = self._planned, None
        if planned is None or outcome.step.prefills:
            return
        began_s = time.perf_counter()
        view, plan = planned
        # Without drafts the step would not have waited for the decision.
        seconds = outcome.seconds if plan.speculate else max(outcome.seconds - self._spent_s, 0.0)
        self.policy.learn(_account(view, plan, outcome, seconds))
        if not plan.speculate and plan.reason != "control":
            spent_s = self._spent_s + time.perf_counter() - began_s
            self._rest = min(MOST_REST, int(spent_s / (SHARE * max(seconds, 1e-9))))

    def leave(self, job: Job, finish: Finish) -> None:
        """See `Speculator.leave`."""
        request = job.request
        text = self._text(request.id, request.prompt)
        rest = job.known[len(request.prompt) + text.num_tokens :]
        self._index.append(np.array([text.handle]), np.array([text.num_tokens]), np.array([0, len(rest)]), rest)
        text.num_tokens += len(rest)
        if finish in ("stop", "length"):
            self._index.stop_request(text.handle)
            del self._texts[request.id]

    def _forget(self) -> None:
        """Begin with an empty index: what other weights said is in no one's way."""
        self._index = SuffixIndex(self._settings)
        self._texts: dict[RequestId, _Text] = {}
        self._groups: set[int] = set()
        self._numbers = itertools.count()
        self._keys.fill(_NOBODY)

    def _meet(self, table: SlotTable, slots: IntArray) -> None:
        """Find out which rows others have taken."""
        fresh = slots[self._keys[slots] != table.keys[slots]]
        for slot in fresh.tolist():
            id = RequestId(int(table.groups[slot]), int(table.samples[slot]))
            text = self._text(id, table.tokens[slot, : table.prompts[slot]])
            self._handles[slot], self._num_tokens[slot] = text.handle, text.num_tokens
        if len(fresh):
            self._keys[fresh] = table.keys[fresh]
            self.policy.start(fresh.astype(np.int64))

    def _text(self, id: RequestId, prompt: TokenArray) -> _Text:
        if id not in self._texts:
            number = next(self._numbers)
            group = number if self._config.source == "self" else id.group
            if group not in self._groups:
                self._index.start_group(group, prompt.copy())
                self._groups.add(group)
            self._texts[id] = _Text(self._index.start_request(group, number))
        return self._texts[id]

    def _read(self, table: SlotTable, slots: IntArray) -> None:
        """Give the index what these responses have gained."""
        known = table.length[slots] - table.prompts[slots]
        counts = known - self._num_tokens[slots]
        bounds = np.append(0, np.cumsum(counts))
        rows = np.repeat(slots, counts)
        cells = np.repeat(table.prompts[slots] + self._num_tokens[slots] - bounds[:-1], counts) + np.arange(bounds[-1])
        self._index.append(self._handles[slots], self._num_tokens[slots], bounds, table.tokens[rows, cells])
        self._num_tokens[slots] = known


def _account(view: StepView, plan: StepPlan, outcome: Outcome, seconds: Seconds) -> StepOutcome:
    """Return what a step came to, as policies take it; nodes of a tree beyond the planned length do not count."""
    drafts, verified = outcome.step.drafts, outcome.verified
    nothing = np.zeros(view.batch, np.int64)
    drafted = nothing if drafts is None else np.minimum(drafts.counts, plan.lengths)
    return StepOutcome(
        view=view,
        plan=plan,
        drafted=drafted,
        accepted=nothing if verified is None else np.minimum(verified.accepted, drafted),
        draft_tokens=0 if drafts is None else int(drafts.counts.sum()),
        seconds=seconds,
    )


def _padded(found: DraftBuffers, *, trees: bool) -> Drafts | None:
    """Return drafts as lines of equal length."""
    counts = np.diff(found.bounds).astype(np.int32)
    longest = int(counts.max(initial=0))
    if not longest:
        return None
    there = np.arange(longest) < counts[:, None]
    used = slice(0, int(found.bounds[-1]))
    tokens = np.zeros(there.shape, np.int32)
    tokens[there] = found.token_ids[used]
    if not trees:
        return Drafts(tokens, counts)
    parents = np.full(there.shape, -1, np.int32)
    parents[there] = found.parents[used]
    return Drafts(tokens, counts, parents)
