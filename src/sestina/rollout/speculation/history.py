"""Drafts out of what a prompt was answered in the last epoch (RhymeRL, arXiv 2508.18588, section 4; R-B).

Each group has its prompt's last responses in an index, which a thread builds while others decode. A response that is
being decoded is followed by a stream of weight 0 in it: what it says is matched, and never drafted.
"""

import logging
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from sestina.core.errors import DataError
from sestina.core.ids import GroupId
from sestina.core.units import TokenArray
from sestina.drafting.drafts import DraftBuffers
from sestina.drafting.errors import DraftError, IndexFullError, NotFoundError
from sestina.drafting.history.answers import from_record
from sestina.drafting.index import SuffixIndex
from sestina.drafting.settings import DraftSettings, IndexSettings
from sestina.rollout.drafts import IntArray
from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.tally import Tally

_log = logging.getLogger(__name__)

LONGEST_MATCH, SHORTEST_MATCH = 7, 3
"""Tokens of the end of a text that are looked for (R-B)."""

SLICE_TOKENS = 1024
"""Appended at once: whoever decodes waits for the index no longer than that takes."""

_NOBODY = np.uint64(0)
_UNFOLLOWED = -1


class HistoryDrafts:
    """One per engine. The engine's thread calls everything here; another one builds."""

    def __init__(self, settings: IndexSettings, *, num_slots: int, tally: Tally) -> None:
        self._index = SuffixIndex(settings)
        self._depth = settings.depth
        self._tally = tally
        self._builder = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._building: deque[Future[None]] = deque()
        self._ready: dict[GroupId, int] = {}
        """Groups that can be drafted from, and the weights (counted) under which each arrived."""
        self._num_ready = self._num_weights = 0
        self._num_streams = 1 << 32  # streams that follow have other numbers than responses
        self._keys = np.full(num_slots, _NOBODY)
        self._handles = np.full(num_slots, _UNFOLLOWED, np.int64)
        self._groups = np.zeros(num_slots, np.int64)
        self._fed = np.zeros(num_slots, np.int64)
        """[S] known tokens of the row that its stream has seen"""
        self._offsets = np.zeros(num_slots, np.int64)
        """[S] tokens of the stream"""

    def take(self, group: GroupId, prompt: TokenArray, record: bytes) -> None:
        """See `TakeHistory`; the record is read and indexed by the other thread."""
        self._building.append(self._builder.submit(self._build, group, prompt, record))

    def settle(self) -> None:
        """Return when everything taken so far is in the index, or dropped."""
        for built in self._building:
            built.result()

    def age(self) -> None:
        """Weights are there; drops the groups that came two weights ago or earlier and that nobody is followed in."""
        self._num_weights += 1
        followed = set(self._groups[self._handles != _UNFOLLOWED].tolist())
        for group, arrived in list(self._ready.items()):
            if arrived < self._num_weights - 1 and group not in followed:
                self._discard(group)
        self._drop_evicted()

    def follow(self, table: SlotTable, slots: IntArray) -> None:
        """Bring streams in step with the rows' texts, starting those that can be."""
        while self._building and self._building[0].done():
            self._building.popleft().result()  # raises what nobody foresaw
        fresh = slots[self._keys[slots] != table.keys[slots]]
        for slot in fresh.tolist():
            self._leave(slot)
        self._keys[fresh] = table.keys[fresh]
        if len(fresh) or self._num_ready != len(self._ready):
            self._num_ready = len(self._ready)
            for slot in slots[self._handles[slots] == _UNFOLLOWED].tolist():
                self._start(table, slot)
        self._feed(table, slots[self._handles[slots] != _UNFOLLOWED])

    def leave(self, key: int) -> None:
        """The request of this noise key has left the engine."""
        for slot in np.flatnonzero(self._keys == np.uint64(key)).tolist():
            self._leave(slot)

    def draft(self, slots: IntArray, most: IntArray, settings: DraftSettings) -> DraftBuffers:
        """Draft at most `most` [N] tokens for the rows [N]; nothing for those without a history."""
        there = self._handles[slots] != _UNFOLLOWED
        found = self._index.draft(self._handles[slots[there]], np.ascontiguousarray(most[there]), settings)
        counts = np.zeros(len(slots), np.int64)
        counts[there] = np.diff(found.bounds)
        scores, match_lens = np.zeros(len(slots), np.float32), np.zeros(len(slots), np.int32)
        scores[there], match_lens[there] = found.scores, found.match_lens
        return DraftBuffers(
            token_ids=found.token_ids,
            parents=found.parents,
            probs=found.probs,
            bounds=np.append(0, np.cumsum(counts)),
            scores=scores,
            match_lens=match_lens,
        )

    def _build(self, group: GroupId, prompt: TokenArray, record: bytes) -> None:
        if group in self._ready:
            return
        try:
            answers = from_record(record)
            self._index.start_group(group, prompt.copy())
            for number, (response, weight) in enumerate(zip(answers.responses, answers.weights, strict=True)):
                handle = self._index.start_request(group, number, weight=weight)
                for at in range(0, len(response), SLICE_TOKENS):
                    _append(self._index, handle, at, response[at : at + SLICE_TOKENS])
                self._index.stop_request(handle)
        except (DataError, DraftError) as error:
            self._refuse(group, str(error))
        else:
            self._ready[group] = self._num_weights
            self._tally.histories += 1
        self._drop_evicted()

    def _refuse(self, group: GroupId, why: str) -> None:
        if not self._tally.histories_dropped:
            _log.warning("group %d: its history is not drafted from: %s", group, why)
        self._tally.histories_dropped += 1
        self._discard(group)

    def _drop_evicted(self) -> None:
        for group in self._index.take_evicted():
            if self._ready.pop(group, None) is not None:
                self._refuse(group, "evicted: the index is full")

    def _discard(self, group: GroupId) -> None:
        self._ready.pop(group, None)
        try:
            self._index.drop_group(group)
        except NotFoundError:  # never begun, or evicted
            return

    def _start(self, table: SlotTable, slot: int) -> None:
        group = int(table.groups[slot])
        if group not in self._ready:
            return
        self._num_streams += 1
        try:
            self._handles[slot] = self._index.start_request(group, self._num_streams, weight=0)
        except NotFoundError:
            self._drop_evicted()
            return
        self._groups[slot] = group
        self._fed[slot], self._offsets[slot] = table.prompts[slot], 0

    def _feed(self, table: SlotTable, slots: IntArray) -> None:
        """Append what the rows have gained; no match looks further back than the index is deep."""
        if not len(slots):
            return
        lengths = table.length[slots].astype(np.int64)
        counts = np.minimum(lengths - self._fed[slots], self._depth)
        bounds = np.append(0, np.cumsum(counts))
        cells = np.repeat(lengths - counts - bounds[:-1], counts) + np.arange(bounds[-1])
        tokens = table.tokens[np.repeat(slots, counts), cells]
        try:
            self._index.append(self._handles[slots], self._offsets[slots], bounds, tokens)
        except IndexFullError as error:
            for slot in np.flatnonzero(self._handles != _UNFOLLOWED).tolist():
                self._leave(slot)
            self._refuse(int(table.groups[slots[0]]), str(error))
            return
        self._fed[slots] = lengths
        self._offsets[slots] += counts

    def _leave(self, slot: int) -> None:
        if self._handles[slot] != _UNFOLLOWED:
            self._index.stop_request(int(self._handles[slot]))
            self._handles[slot] = _UNFOLLOWED
        self._keys[slot] = _NOBODY


def settings_of(vocab_size: int, *, alone: bool) -> IndexSettings:
    """Return what the index is built for: with siblings' drafts beside it, it matches as far back as theirs."""
    return (
        IndexSettings(vocab_size=vocab_size, depth=LONGEST_MATCH + 1) if alone else IndexSettings(vocab_size=vocab_size)
    )


def _append(index: SuffixIndex, handle: int, offset: int, tokens: TokenArray) -> None:
    index.append(np.array([handle]), np.array([offset]), np.array([0, len(tokens)]), np.ascontiguousarray(tokens))
