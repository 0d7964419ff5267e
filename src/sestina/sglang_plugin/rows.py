"""The requests that a server decodes, as rows of the embedded engine's slot table."""

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sestina.core.ids import GroupId, RequestId
from sestina.core.records import ChunkRequest, Finish
from sestina.rollout.drafts import IntArray
from sestina.rollout.job import Job
from sestina.rollout.sglang.drafting import Whose
from sestina.rollout.slots import SlotTable

Leave = Callable[[Job, Finish], None]

OTHERS: GroupId = 1 << 62
"""From here on, groups of requests that no rollout rank has asked for, or that come twice at once."""


class Rows:
    """Follows SGLang's batches: who is in the next one and has no row gets one, who is not in it gives his back."""

    def __init__(self, *, num_slots: int, max_context_tokens: int, leave: Leave) -> None:
        self.table = SlotTable(num_slots=num_slots, max_context_tokens=max_context_tokens)
        self.pool = np.zeros(num_slots, np.int64)
        """[slots] row of SGLang's table of KV slots"""
        self._leave = leave
        self._jobs: dict[str, Job] = {}
        self._occupants = itertools.count(1)

    def follow(self, requests: Sequence[Any]) -> IntArray:
        """Return the rows of these requests, which are all that run."""
        here = {request.rid for request in requests}
        for rid in [rid for rid in self._jobs if rid not in here]:
            self.give_back(rid, stopped=False)
        return np.array([self._row(request) for request in requests], np.int32)

    def give_back(self, rid: str, *, stopped: bool) -> None:
        """Free the row of a request that has ended, or is to be computed anew; ignores one without a row."""
        job = self._jobs.pop(rid, None)
        if job is None:
            return
        job.known = self.table.tokens[job.slot, : self.table.length[job.slot]].copy()
        self.table.give_back(job.slot)
        at_limit = len(job.known) >= job.limit
        self._leave(job, "stop" if stopped else job.finish(turned=False) if at_limit else "abort")

    def forget(self) -> None:
        """Free all rows, and tell nobody."""
        for job in self._jobs.values():
            self.table.give_back(job.slot)
        self._jobs.clear()

    def _row(self, request: Any) -> int:
        job = self._jobs.get(request.rid)
        return self._take(request) if job is None else job.slot

    def _take(self, request: Any) -> int:
        chunk, table = self._chunk(request), self.table
        occupant = next(self._occupants)  # also tells a request from its own earlier stay in the row
        known = np.array([*request.origin_input_ids, *request.output_ids], np.int32)
        job = Job(request=chunk, key=occupant, submitted_s=time.monotonic(), version=0, known=known)
        job.slot = slot = table.take(chunk, known, limit=job.limit, key=occupant)
        table.computed[slot] = len(known) - 1
        self.pool[slot] = request.kv.req_pool_idx
        self._jobs[request.rid] = job
        return slot

    def _chunk(self, request: Any) -> ChunkRequest:
        asked = np.array(request.origin_input_ids, np.int32)
        budget, own = request.sampling_params.max_new_tokens, request.sampling_params.custom_params
        who = Whose(**own) if own else None
        if who is None or RequestId(who.group, who.sample) in {job.request.id for job in self._jobs.values()}:
            group = OTHERS + next(self._occupants)
            who = Whose(group=group, sample=0, prompt_tokens=len(asked), max_new_tokens=budget)
        return ChunkRequest(
            id=RequestId(who.group, who.sample),
            prompt=asked[: who.prompt_tokens],
            generated=asked[who.prompt_tokens :],
            max_tokens=budget,
            max_new_tokens=who.max_new_tokens,
            temperature=request.sampling_params.temperature,
            stop_at=who.stop_at,
        )
