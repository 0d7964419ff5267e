"""The histories that an engine has: an index of them, which a thread builds while others decode."""

import logging
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from sestina.core.errors import DataError
from sestina.core.ids import GroupId
from sestina.core.units import TokenArray
from sestina.drafting.errors import DraftError, NotFoundError
from sestina.drafting.history.answers import Answers, from_record
from sestina.drafting.index import SuffixIndex
from sestina.drafting.settings import IndexSettings
from sestina.rollout.speculation.tally import Tally

_log = logging.getLogger(__name__)

SLICE_TOKENS = 1024
"""Appended at once: whoever decodes waits for the index no longer than that takes."""


class Shelf:
    """Groups with a history. The engine's thread calls everything here; another one builds."""

    def __init__(self, settings: IndexSettings, tally: Tally) -> None:
        self.index = SuffixIndex(settings)
        self._tally = tally
        self._builder = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._building: deque[Future[None]] = deque()
        self._ready: dict[GroupId, int] = {}
        """Groups that can be drafted from, and the weights (counted) under which each arrived."""
        self._num_weights = 0
        self.num_built = 0
        """Histories indexed since the start."""

    def __contains__(self, group: GroupId) -> bool:
        return group in self._ready

    def take(self, group: GroupId, prompt: TokenArray, record: bytes) -> None:
        """See `TakeHistory`; the record is read and indexed by the other thread."""
        self._building.append(self._builder.submit(self._build, group, prompt, record))

    def check(self) -> None:
        """Raise what building has raised that nobody foresaw."""
        while self._building and self._building[0].done():
            self._building.popleft().result()

    def settle(self) -> None:
        """Return when everything taken so far is in the index, or dropped."""
        for built in self._building:
            built.result()

    def age(self, followed: set[GroupId]) -> None:
        """Weights are there; drops the groups that came two weights ago or earlier and that nobody is followed in."""
        self._num_weights += 1
        for group, arrived in list(self._ready.items()):
            if arrived < self._num_weights - 1 and group not in followed:
                self._discard(group)
        self.drop_evicted()

    def drop_evicted(self) -> None:
        """Forget the groups that the index had no room for any more."""
        for group in self.index.take_evicted():
            if self._ready.pop(group, None) is not None:
                self.refuse(group, "evicted: the index is full")

    def refuse(self, group: GroupId, why: str) -> None:
        """Drop a group whose history is of no use; the first is said, all are counted."""
        if not self._tally.histories_dropped:
            _log.warning("group %d: its history is not drafted from: %s", group, why)
        self._tally.histories_dropped += 1
        self._discard(group)

    def _build(self, group: GroupId, prompt: TokenArray, record: bytes) -> None:
        if group in self._ready:
            return
        try:
            answers = from_record(record)
            self.index.start_group(group, prompt.copy())
            self._add(group, answers)
        except (DataError, DraftError) as error:
            self.refuse(group, str(error))
        else:
            self._ready[group] = self._num_weights
            self._tally.histories += 1
            self.num_built += 1
        self.drop_evicted()

    def _add(self, group: GroupId, answers: Answers) -> None:
        for number, (response, weight) in enumerate(zip(answers.responses, answers.weights, strict=True)):
            handle = self.index.start_request(group, number, weight=weight)
            for at in range(0, len(response), SLICE_TOKENS):
                part = np.ascontiguousarray(response[at : at + SLICE_TOKENS])
                self.index.append(np.array([handle]), np.array([at]), np.array([0, len(part)]), part)
            self.index.stop_request(handle)

    def _discard(self, group: GroupId) -> None:
        self._ready.pop(group, None)
        try:
            self.index.drop_group(group)
        except NotFoundError:  # never begun, or evicted
            return
