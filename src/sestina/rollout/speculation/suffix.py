"""Drafts out of a suffix index: what followed the end of a text the last times that it occurred."""

import itertools
import logging
import time
from dataclasses import dataclass

import numpy as np

from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest, Finish
from sestina.core.units import Seconds, TokenArray
from sestina.drafting.drafts import DraftBuffers
from sestina.drafting.errors import IndexFullError
from sestina.drafting.index import MAX_DRAFT_TOKENS, DraftSettings, IndexSettings, SuffixIndex
from sestina.drafting.settings import MEMORY_LIMIT_BYTES
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.policy import DraftPolicy
from sestina.policies.drafting.step import StepOutcome, StepPlan, StepView
from sestina.rollout.drafts import Drafts, IntArray
from sestina.rollout.job import Job
from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.desk import DraftDesk
from sestina.rollout.speculation.policy import build_policy
from sestina.rollout.speculation.shared import SharedIndex
from sestina.rollout.speculation.sources import Sources
from sestina.rollout.speculation.speculator import Outcome

_log = logging.getLogger(__name__)
_NOBODY = np.uint64(0)

SHARE = 0.0025
"""Of a plain step's time, that deciding on it may take on average: after a decision against drafts, some steps pass."""

MOST_REST = 128
"""Steps that pass at most."""


@dataclass(slots=True)
class _Text:
    """A response that the index holds."""

    handle: int
    num_tokens: int = 0
    """Of it, in the index."""


class SuffixSpeculator:
    """Implements `Speculator`."""

    def __init__(
        self,
        config: DraftConfig,
        *,
        vocab_size: int,
        num_slots: int,
        memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
        desk: DraftDesk | None = None,
    ) -> None:
        """The desk's shared index, if any, takes the place of one of its own, and whoever made it begins it."""
        desk = desk or DraftDesk()
        self._config = config
        self._sources = Sources(config, desk, vocab_size=vocab_size, num_slots=num_slots)
        self._num_slots = num_slots
        self._settings = IndexSettings(vocab_size=vocab_size, memory_limit_bytes=memory_limit_bytes)
        self._shared = desk.shared
        self._counts = desk.counts
        self._policy: DraftPolicy | None = None
        self._met = np.full(num_slots, _NOBODY)
        self._entered = np.full(num_slots, _NOBODY)
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
        self._sources.begin()
        self._forget()

    def propose(self, table: SlotTable, slots: IntArray, most: IntArray) -> Drafts | None:
        """See `Speculator.propose`."""
        if self._rest:
            self._rest -= 1
            self._sources.rest()
            return None
        if self._full:
            return None
        began_s = time.perf_counter()
        try:
            drafts = self._propose(table, slots, most)
        except IndexFullError as error:
            return self._give_up(error)
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
        most = np.minimum(view.limits, MAX_DRAFT_TOKENS)
        wanted = np.minimum(plan.lengths * plan.paths, most).astype(np.int32)
        paths = DraftSettings(top_k=plan.paths, min_token_prob=self._config.min_token_prob)
        found = self._draft(table, slots, wanted, paths) if self._sources.live else None
        return _padded(self._sources.draft(table, slots, wanted, paths, found), trees=plan.paths > 1)

    def _draft(self, table: SlotTable, slots: IntArray, wanted: IntArray, paths: DraftSettings) -> DraftBuffers:
        self._settle()
        self._enter(table, slots)
        self._read(table, slots)
        return self._index.draft(self._handles[slots], wanted, paths)

    def learn(self, table: SlotTable, outcome: Outcome) -> None:
        """See `Speculator.learn`; a step that prefills too says nothing of drafts."""
        planned, self._planned = self._planned, None
        self._sources.count(table, outcome, planned, self._spent_s)
        if planned is None:
            return
        began_s = time.perf_counter()
        view, plan = planned
        if outcome.step.prefills:
            if not plan.speculate:
                self._relax(self._spent_s, outcome.seconds)
            return
        # Without drafts the step would not have waited for the decision.
        seconds = outcome.seconds if plan.speculate else max(outcome.seconds - self._spent_s, 0.0)
        self.policy.learn(_account(view, plan, outcome, seconds))
        if not plan.speculate and plan.reason not in ("control", "no-room"):
            self._relax(self._spent_s + time.perf_counter() - began_s, seconds)

    def _relax(self, spent_s: Seconds, step_s: Seconds) -> None:
        """Let so many steps pass that deciding takes no more than its share of their time."""
        self._rest = min(MOST_REST, int(spent_s / (SHARE * max(step_s, 1e-9))))

    def leave(self, job: Job, finish: Finish) -> None:
        """See `Speculator.leave`; while nothing is drafted, an index of one's own does not hear of it."""
        self._sources.leave(job, finish)
        for keys in (self._met, self._entered):
            keys[keys == np.uint64(job.key)] = _NOBODY  # if it comes back, it is met anew
        if self._full or not self._sources.live:
            return
        self._left.append((job.request, job.known, finish in ("stop", "length")))
        if self._shared:  # others draft from it meanwhile
            try:
                self._settle()
            except IndexFullError as error:
                self._give_up(error)

    def _settle(self) -> None:
        """Give the index what left since it was asked last."""
        for request, known, done in self._left:
            text = self._text(request.id, request.prompt, known[len(request.prompt) :])
            rest = known[len(request.prompt) + text.num_tokens :]
            self._index.append(np.array([text.handle]), np.array([text.num_tokens]), np.array([0, len(rest)]), rest)
            text.num_tokens += len(rest)
            # With draft servers its next chunk may be another instance's, and come back with what was said there.
            if done or self._shared:
                self._index.stop_request(text.handle)
                self._entered[self._handles == text.handle] = _NOBODY
                del self._texts[request.id]
        self._left.clear()

    def _give_up(self, error: IndexFullError) -> None:
        """Draft no more until there are new weights, which empty the index."""
        if not self._counts["index_full"]:
            _log.warning("nothing is drafted until there are new weights: %s", error)
        self._counts["index_full"] += 1
        self._full, self._planned = True, None

    def _forget(self) -> None:
        """Begin with an empty index: what other weights said is in no one's way."""
        self._full = False
        self._index = self._shared or SuffixIndex(self._settings)
        self._texts: dict[RequestId, _Text] = {}
        self._groups: set[int] = set()
        self._numbers = itertools.count()
        self._left: list[tuple[ChunkRequest, TokenArray, bool]] = []
        self._met.fill(_NOBODY)
        self._entered.fill(_NOBODY)

    def _meet(self, table: SlotTable, slots: IntArray) -> None:
        """Find out which rows others have taken."""
        fresh = slots[self._met[slots] != table.keys[slots]]
        if len(fresh):
            self._met[fresh] = table.keys[fresh]
            self.policy.start(fresh.astype(np.int64))

    def _enter(self, table: SlotTable, slots: IntArray) -> None:
        """Look up, or start, the texts of rows that others have taken since drafts were last made."""
        fresh = slots[self._entered[slots] != table.keys[slots]]
        for slot in fresh.tolist():
            id = RequestId(int(table.groups[slot]), int(table.samples[slot]))
            prompt, length = int(table.prompts[slot]), int(table.length[slot])
            text = self._text(id, table.tokens[slot, :prompt], table.tokens[slot, prompt:length])
            self._handles[slot], self._num_tokens[slot] = text.handle, text.num_tokens
        self._entered[fresh] = table.keys[fresh]

    def _text(self, id: RequestId, prompt: TokenArray, said: TokenArray) -> _Text:
        if id not in self._texts:
            self._texts[id] = self._start(id, prompt.copy(), said.copy())
        return self._texts[id]

    def _start(self, id: RequestId, prompt: TokenArray, said: TokenArray) -> _Text:
        if isinstance(self._index, SharedIndex):
            return _Text(self._index.start_request(id, prompt, said), len(said))
        number = next(self._numbers)
        group = number if self._config.source == "self" else id.group
        self._groups.difference_update(self._index.take_evicted())
        if group not in self._groups:
            self._index.start_group(group, prompt)
            self._groups.add(group)
        return _Text(self._index.start_request(group, number))

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
