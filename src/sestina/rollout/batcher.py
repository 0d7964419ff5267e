"""Which tokens the next forward pass holds: continuous batching with chunked prefill and preemption by recompute.

A running request has `computed` tokens in the KV cache out of `length` known ones. A step computes more of them, and
where it reaches the last known token it draws the next. Decoding requests (one token behind) come first, then those in
prefill, then waiting ones, oldest first, as long as rows, slots and pages last. When a decoding request needs a page
and none is left, the request admitted last gives up its pages and waits again, keeping what it has produced (as vLLM
and SGLang do).

A page is published in the prefix tree as soon as its last token is *planned*: kernels write a layer's KV before they
read it, so the samples of a group share their prompt even when they are admitted in one step. Where another request has
published the same page before, a request goes on with that one: so those that have begun alike share all of it, and
each finds its own later pages when it comes back. What it gives up has the same bits (docs/decisions/0003); where the
engine is not batch-invariant, they are as near as those of any prefix that is shared.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from sestina.core.records import Finish
from sestina.core.units import LogprobArray, Seconds, TokenArray, Version
from sestina.rollout.drafts import Drafts, IntArray
from sestina.rollout.job import Job
from sestina.rollout.pages import PAGE_TOKENS, PRIVATE, PagePool, pages_for
from sestina.rollout.slots import SlotTable
from sestina.rollout.step import Step, lay_out
from sestina.rollout.taken import Joined
from sestina.rollout.verify import Verified, verify

WATERMARK = 0.01
"""Share of pages that admission leaves free, so that what runs can grow before it must preempt (vLLM's value)."""


Propose: TypeAlias = Callable[[IntArray, IntArray], Drafts | None]
"""Drafts for decoding requests, given their rows of the slot table [N] and how many tokens each may have [N]."""

Restore: TypeAlias = Callable[[Job, int], int]
"""Puts a request's KV from the pool into its pages, but not into so many leading ones; returns the tokens computed."""


class Batcher:
    """Owns the queues, the slot table and the page pool of one engine."""

    def __init__(
        self, *, slots: SlotTable, pool: PagePool, max_step_tokens: int, restore: Restore | None = None
    ) -> None:
        self.slots = slots
        self._restore = restore
        self.pool = pool
        self.waiting: deque[Job] = deque()
        self.running: dict[int, Job] = {}
        """By slot, in order of admission."""
        self._max_step_tokens = max_step_tokens
        self._watermark = int(pool.num_pages * WATERMARK)
        self.verified: Verified | None = None
        """What the drafts of the last completed step came to; None when nothing was drafted."""
        self.joined: list[Joined] = []
        """What was admitted to the step that was last planned."""
        self.looked = False
        """Whether drafts were looked for in it, found or not."""
        self._decoding = np.zeros(0, np.int32)
        self._draft_rows = 0
        self._prefilling: list[Job] = []

    @property
    def decodes(self) -> bool:
        """Whether the next step holds a request that is past its prefill."""
        return len(self._decoding) > 0

    def plan(self, now: Seconds, propose: Propose | None = None) -> Step:
        """Choose the rows of the next step; allocates and publishes pages, admits and preempts requests.

        What `propose` drafts is verified in this step. It takes at most half of the rows that others wait for, and
        pages that nobody needs.
        """
        self.joined, self.looked = [], False
        self._grow_decoding()
        budget = self._max_step_tokens - len(self._decoding)
        drafts = self._draft(propose, budget) if propose and len(self._decoding) else None
        budget -= 0 if drafts is None else int(drafts.counts.sum())
        prefills: list[tuple[Job, int]] = []
        for job in self._prefilling:
            budget -= self._plan_prefill(job, budget, prefills)
        while budget > 0 and self.waiting and self._admit(self.waiting[0], now):
            budget -= self._plan_prefill(self.waiting.popleft(), budget, prefills)
        return lay_out(self._decoding, drafts, prefills, self.slots)

    def complete(
        self, step: Step, tokens: TokenArray, logprobs: LogprobArray, stop_token: int
    ) -> list[tuple[Job, Finish]]:
        """Record the drawn tokens [S]; return the chunks that ended, which have then left the slot table."""
        table, slots = self.slots, step.requests
        for job, count in step.prefills:
            table.computed[job.slot] += count
            job.prefilled_tokens += count
        if step.drafts is None:
            self.verified = None
            table.append(slots, tokens, logprobs)
        else:
            room = table.limit[slots] - table.length[slots]
            self.verified = verified = verify(step.drafts, tokens, logprobs, room, stop_token, table.turns[slots])
            table.drafted[slots] += step.drafts.counts
            table.accepted[slots] += verified.accepted
            table.extend(slots, verified.tokens, verified.logprobs, verified.counts)
        last = table.last(slots)
        stopped, turned = last == stop_token, last == table.turns[slots]
        ended = stopped | turned | (table.length[slots] >= table.limit[slots])
        if step.prefills or ended.any():
            self._decoding = slots[~ended]
            drawn = set(slots.tolist())
            self._prefilling = [job for job in self._prefilling if job.slot not in drawn]
        left = [(self.running[int(slots[i])], bool(stopped[i]), bool(turned[i])) for i in np.flatnonzero(ended)]
        return [(self._leave(job), "stop" if stop else job.finish(turned=turn)) for job, stop, turn in left]

    def abort(self, job: Job) -> None:
        """Take a waiting or running chunk out, keeping what it has produced."""
        if job.slot < 0:
            self.waiting.remove(job)
        else:
            self._leave(job)

    def change_weights(self, version: Version, *, keep_kv: bool) -> None:
        """Have every request go on under weights of `version`; forgets all cached prefixes.

        Requests keep their tokens. Those that run compute their keys and values again, or with `keep_kv` go on with
        what older weights have left, which no other request may then share.
        """
        for job in self.waiting:
            job.turn(len(job.known), version, kept_kv=False)
        for job in reversed(list(self.running.values())):
            kept = keep_kv and bool(self.slots.computed[job.slot] > 0)
            job.turn(int(self.slots.length[job.slot]), version, kept_kv=kept)
            if kept:
                job.num_published = PRIVATE
            else:
                self._leave(job)
                self.waiting.appendleft(job)
        self.pool.forget_all()

    def _behind(self, job: Job) -> int:
        return int(self.slots.length[job.slot] - self.slots.computed[job.slot]) if job.slot >= 0 else 0

    def _grow_decoding(self) -> None:
        """Give every decoding request that starts a page a new one, preempting while there is none."""
        at_page_start = self.slots.computed[self._decoding] % PAGE_TOKENS == 0
        for job in [self.running[slot] for slot in self._decoding[at_page_start].tolist()]:
            while job.slot >= 0 and self._lacks_page(job, 0) and not self._append_page(job):
                self._preempt(self.running[next(reversed(self.running))])

    def _lacks_page(self, job: Job, further: int) -> bool:
        """Whether the row `further` tokens after the next has no page."""
        return len(job.pages) * PAGE_TOKENS <= self.slots.computed[job.slot] + further

    def _draft(self, propose: Propose, budget: int) -> Drafts | None:
        """Let drafts be made, cut them to what there is room for, and write them behind the known tokens."""
        table, slots = self.slots, self._decoding
        self._draft_rows = budget // 2 if self._prefilling or self.waiting else budget
        drafts = propose(slots, np.minimum(table.limit[slots] - table.length[slots] - 1, self._draft_rows))
        self.looked = drafts is not None
        if drafts is None or not drafts.counts.any():
            return None
        drafts = drafts.at_most(self.reserve(drafts.counts))
        table.put_drafts(slots, drafts)
        return drafts

    def reserve(self, counts: IntArray) -> IntArray:
        """Cut the drafts of the decoding requests to the rows and pages that there are, and allocate those pages.

        For a drafter whose own passes write there, while it proposes; what it was given it is not denied afterwards.
        """
        while counts.sum() > self._draft_rows:
            counts = np.minimum(counts, counts.max() - 1)
        return self._paged(counts)

    def _paged(self, counts: IntArray) -> IntArray:
        """Allocate the pages that drafts of these lengths reach into; return the lengths that have them."""
        computed = self.slots.computed[self._decoding]
        counts = counts.copy()
        for i in np.flatnonzero((computed + counts) // PAGE_TOKENS > computed // PAGE_TOKENS):
            job = self.running[int(self._decoding[i])]
            while self._lacks_page(job, int(counts[i])):
                if self.pool.num_available <= self._watermark or not self._append_page(job):
                    counts[i] = len(job.pages) * PAGE_TOKENS - 1 - computed[i]
        return counts

    def _append_page(self, job: Job) -> bool:
        self._share(job)
        page = self.pool.allocate()
        if page is None:
            return False
        self.slots.block_tables[job.slot, len(job.pages)] = page
        job.pages.append(page)
        return True

    def _plan_prefill(self, job: Job, budget: int, prefills: list[tuple[Job, int]]) -> int:
        count = min(self._behind(job), budget)
        if count:
            prefills.append((job, count))
            self._share(job, planned=count)
        return count

    def _admit(self, job: Job, now: Seconds) -> bool:
        """Move a waiting request to the slot table if a row and its pages are there."""
        if not self.slots.num_free:
            return False
        pages = self.pool.match(job.known[:-1])
        missing = pages_for(len(job.known)) - len(pages)
        if self.pool.num_available - missing < (self._watermark if self.running else 0):
            self.pool.release(pages)
            return False
        self._enter(job, pages, missing)
        job.started_s = now if job.started_s is None else job.started_s
        return True

    def _enter(self, job: Job, matched: list[int], missing: int) -> None:
        table = self.slots
        job.slot = table.take(job.request, job.known, limit=job.limit, key=job.key)
        table.logprobs[job.slot, job.base : job.base + len(job.logprobs)] = job.logprobs
        table.computed[job.slot] = len(matched) * PAGE_TOKENS
        job.cached_tokens += len(matched) * PAGE_TOKENS
        job.num_published = len(matched)
        fresh = [page for page in (self.pool.allocate() for _ in range(missing)) if page is not None]
        job.pages = matched + fresh
        table.block_tables[job.slot, : len(job.pages)] = job.pages
        if job.pooled is not None and self._restore is not None:
            table.computed[job.slot] = self._restore(job, len(matched))
        cached = int(table.computed[job.slot])
        self.joined.append(Joined(text_tokens=len(job.known), cached_tokens=cached))
        self.running[job.slot] = job
        self._prefilling.append(job)

    def _share(self, job: Job, planned: int = 0) -> None:
        """Publish pages of a request that goes on, whose row then names the pages that it holds."""
        first = job.num_published
        self._publish(job, planned)
        self.slots.block_tables[job.slot, first : job.num_published] = job.pages[first : job.num_published]

    def _publish(self, job: Job, planned: int = 0) -> None:
        """Enter pages into the prefix tree: those that the computed tokens fill, and `planned` further ones will.

        A copy is exchanged once it is full: what is planned would be written to a page that others read.
        """
        computed = int(self.slots.computed[job.slot])
        for i in range(job.num_published, (computed + planned) // PAGE_TOKENS):
            page, parent = job.pages[i], job.pages[i - 1] if i else None
            standing = self.pool.publish(page, parent, self.slots.page_tokens(job.slot, i))
            if standing != page:
                if computed < (i + 1) * PAGE_TOKENS:
                    return
                self.pool.exchange(page, standing)
                job.pages[i] = standing
            job.num_published = i + 1

    def _leave(self, job: Job) -> Job:
        """Free row and pages of a running request, keeping its tokens in `known`.

        Its row still names the pages that its last step wrote to: what a draft tree left there has yet to be moved.
        """
        table, slot = self.slots, job.slot
        length = int(table.length[slot])
        job.known = table.tokens[slot, :length].copy()
        job.logprobs = table.logprobs[slot, job.base : length].copy()
        job.drafted_tokens += int(table.drafted[slot])
        job.accepted_tokens += int(table.accepted[slot])
        self._publish(job)
        self.pool.release(job.pages)
        del self.running[slot]
        self._decoding = self._decoding[self._decoding != slot]
        self._prefilling = [other for other in self._prefilling if other is not job]
        table.give_back(slot)
        job.pages_left, job.pages, job.slot = job.pages, [], -1
        return job

    def _preempt(self, job: Job) -> None:
        self._leave(job)
        job.preemptions += 1
        job.turn(len(job.known), job.version, kept_kv=False)
        self.waiting.appendleft(job)
