"""Drafts out of what a prompt was answered in the last epoch (RhymeRL, arXiv 2508.18588, section 4; R-B).

Each group has its prompt's last responses in an index (shelf.py). A response that is being decoded is followed by a
stream of weight 0 in it: what it says is matched, and never drafted.
"""

import numpy as np

from sestina.core.ids import GroupId
from sestina.core.units import TokenArray
from sestina.drafting.drafts import DraftBuffers
from sestina.drafting.errors import IndexFullError, NotFoundError
from sestina.drafting.settings import LONGEST_MATCH, DraftSettings, IndexSettings
from sestina.rollout.drafts import IntArray
from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.shelf import Shelf
from sestina.rollout.speculation.tally import Tally

_NOBODY = np.uint64(0)
_UNFOLLOWED = -1


class HistoryDrafts:
    """One per engine, whose thread calls everything here."""

    def __init__(self, settings: IndexSettings, *, num_slots: int, tally: Tally) -> None:
        self._shelf = Shelf(settings, tally)
        self._index = self._shelf.index
        self._depth = settings.depth
        self._num_built = 0
        self._num_streams = 1 << 32  # streams that follow have other numbers than responses
        self._keys = np.full(num_slots, _NOBODY)
        self._handles = np.full(num_slots, _UNFOLLOWED, np.int64)
        self._groups = np.zeros(num_slots, np.int64)
        self._fed = np.zeros(num_slots, np.int64)
        """[S] known tokens of the row that its stream has seen"""
        self._offsets = np.zeros(num_slots, np.int64)
        """[S] tokens of the stream"""

    def take(self, group: GroupId, prompt: TokenArray, record: bytes) -> None:
        """See `TakeHistory`."""
        self._shelf.take(group, prompt, record)

    def settle(self) -> None:
        """Return when everything taken so far is in the index, or dropped."""
        self._shelf.settle()

    def age(self) -> None:
        """Weights are there: what is of no more use is dropped."""
        self._shelf.age(set(self._groups[self._handles != _UNFOLLOWED].tolist()))

    def follow(self, table: SlotTable, slots: IntArray) -> None:
        """Bring streams in step with the rows' texts, starting those that can be."""
        self._shelf.check()
        fresh = slots[self._keys[slots] != table.keys[slots]]
        for slot in fresh.tolist():
            self._leave(slot)
        self._keys[fresh] = table.keys[fresh]
        if len(fresh) or self._num_built != self._shelf.num_built:
            self._num_built = self._shelf.num_built
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

    def _start(self, table: SlotTable, slot: int) -> None:
        group = int(table.groups[slot])
        if group not in self._shelf:
            return
        self._num_streams += 1
        try:
            self._handles[slot] = self._index.start_request(group, self._num_streams, weight=0)
        except NotFoundError:
            self._shelf.drop_evicted()
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
            self._shelf.refuse(int(table.groups[slots[0]]), str(error))
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
