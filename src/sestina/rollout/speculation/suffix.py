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
from sestina.policies.drafting.step import StepPlan
from sestina.rollout.drafts import Drafts, IntArray
from sestina.rollout.engine import Clock
from sestina.rollout.job import Job
from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.arrears import Arrears
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.decisions import Decisions
from sestina.rollout.speculation.desk import DraftDesk
from sestina.rollout.speculation.met import Met
from sestina.rollout.speculation.shared import SharedIndex
from sestina.rollout.speculation.sources import Sources
from sestina.rollout.speculation.speculator import Outcome

_log = logging.getLogger(__name__)


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
        watch: Clock | None = None,
    ) -> None:
        """The desk's shared index, if any, takes the place of one of its own, and whoever made it begins it.

        `watch` times what drafting takes; None: the machine's clock.
        """
        desk = desk or DraftDesk()
        self._config = config
        self._sources = Sources(config, desk, vocab_size=vocab_size, num_slots=num_slots)
        self._num_slots = num_slots
        self._settings = IndexSettings(vocab_size=vocab_size, memory_limit_bytes=memory_limit_bytes)
        self._shared = desk.shared
        self._counts = desk.counts
        self._watch = watch or time.perf_counter
        self._decisions = Decisions(config, num_slots, watch or time.thread_time)
        self._entered = Met(num_slots)
        self._handles = np.zeros(num_slots, np.int64)
        self._num_tokens = np.zeros(num_slots, np.int64)
        self._arrears = Arrears()
        self._spent_s = 0.0
        self._forget()

    def begin(self, cost: StepCost) -> None:
        """See `Speculator.begin`."""
        self._decisions.begin(cost)
        self._sources.begin()
        self._forget()

    def propose(self, table: SlotTable, slots: IntArray, most: IntArray) -> Drafts | None:
        """See `Speculator.propose`."""
        if self._full:
            return None
        began_s = self._watch()
        arrears_s = self._arrears.expected_s(self._num_owed(table, slots))
        plan = self._decisions.plan(table, slots, most, arrears_s)
        drafts = self._carry_out(plan, table, slots, most) if plan.speculate else None
        self._spent_s = self._watch() - began_s
        return drafts

    def _carry_out(self, plan: StepPlan, table: SlotTable, slots: IntArray, most: IntArray) -> Drafts | None:
        wanted = np.minimum(plan.lengths * plan.paths, np.clip(most, 0, MAX_DRAFT_TOKENS)).astype(np.int32)
        paths = DraftSettings(top_k=plan.paths, min_token_prob=self._config.min_token_prob)
        try:
            found = self._draft(table, slots, wanted, paths) if self._sources.live else None
            return _padded(self._sources.draft(table, slots, wanted, paths, found), trees=plan.paths > 1)
        except IndexFullError as error:
            return self._give_up(error)

    def _draft(self, table: SlotTable, slots: IntArray, wanted: IntArray, paths: DraftSettings) -> DraftBuffers:
        began_s, owed = self._watch(), self._num_owed(table, slots)
        self._settle()
        self._enter(table, slots)
        self._read(table, slots)
        self._arrears.took(owed, self._watch() - began_s)
        return self._index.draft(self._handles[slots], wanted, paths)

    def _num_owed(self, table: SlotTable, slots: IntArray) -> int:
        """Return of how many texts, gone or come, the index has not been told."""
        return len(self._left) + self._entered.num_fresh(table, slots) if self._sources.live else 0

    def learn(self, table: SlotTable, outcome: Outcome) -> int:
        """See `Speculator.learn`."""
        self._sources.count(table, outcome, self._decisions.planned, self._spent_s)
        return self._decisions.learn(table, outcome)

    def rested(self, table: SlotTable, slots: IntArray, steps: int, seconds: Seconds) -> None:
        """See `Speculator.rested`."""
        self._sources.count_rest(table, slots, steps, seconds)
        self._decisions.rested(steps)

    def leave(self, job: Job, finish: Finish) -> None:
        """See `Speculator.leave`; while nothing is drafted, an index of one's own does not hear of it."""
        self._sources.leave(job, finish)
        self._decisions.leave(job)
        self._entered.forget(job.key)
        if self._full or not self._sources.live:
            return
        done = finish in ("stop", "length")
        if done and self._config.source == "self":
            self._end(job.request.id)  # nobody drafts from it
            return
        self._left.append((job.request, job.known, done))
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
                self._end(request.id)
        self._left.clear()

    def _end(self, id: RequestId) -> None:
        """Nothing is added to a text any more, if it was begun."""
        text = self._texts.pop(id, None)
        if text is not None:
            self._index.stop_request(text.handle)

    def _give_up(self, error: IndexFullError) -> None:
        """Draft no more until there are new weights, which empty the index."""
        if not self._counts["index_full"]:
            _log.warning("nothing is drafted until there are new weights: %s", error)
        self._counts["index_full"] += 1
        self._full = True
        self._decisions.withdraw()

    def _forget(self) -> None:
        """Begin with an empty index: what other weights said is in no one's way."""
        self._full = False
        self._index = self._shared or SuffixIndex(self._settings)
        self._texts: dict[RequestId, _Text] = {}
        self._groups: set[int] = set()
        self._numbers = itertools.count()
        self._left: list[tuple[ChunkRequest, TokenArray, bool]] = []
        self._entered.clear()

    def _enter(self, table: SlotTable, slots: IntArray) -> None:
        """Look up, or start, the texts of rows that others have taken since drafts were last made."""
        for slot in self._entered.fresh(table, slots).tolist():
            id = RequestId(int(table.groups[slot]), int(table.samples[slot]))
            prompt, length = int(table.prompts[slot]), int(table.length[slot])
            text = self._text(id, table.tokens[slot, :prompt], table.tokens[slot, prompt:length])
            self._handles[slot], self._num_tokens[slot] = text.handle, text.num_tokens

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


def _padded(found: DraftBuffers, *, trees: bool) -> Drafts:
    """Return drafts as lines of equal length."""
    counts = np.diff(found.bounds).astype(np.int32)
    longest = int(counts.max(initial=0))
    there = np.arange(longest) < counts[:, None]
    used = slice(0, int(found.bounds[-1]))
    tokens = np.zeros(there.shape, np.int32)
    tokens[there] = found.token_ids[used]
    if not trees:
        return Drafts(tokens, counts)
    parents = np.full(there.shape, -1, np.int32)
    parents[there] = found.parents[used]
    return Drafts(tokens, counts, parents)
