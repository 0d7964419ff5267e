"""The batcher over a cache that keeps, for every token, the text it was computed from: whatever is shared is right."""

import dataclasses
import zlib
from collections import deque
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest
from sestina.rollout.batcher import Batcher
from sestina.rollout.drafts import Drafts
from sestina.rollout.job import Job
from sestina.rollout.pages import _ROOT, PAGE_TOKENS, PagePool
from sestina.rollout.slots import SlotTable
from sestina.rollout.step import moves
from tests.unit.rollout.helpers import NOTHING

STOP, NEW_TOKENS, CONTEXT = 1, 60, 120
PROMPTS = [np.arange(2, 2 + length, dtype=np.int32) for length in (5, 16, 17, 32, 40)]
OLD = -1
"""Version of what has been computed over keys and values of older weights."""


def drawn(text, sample):
    """Return what follows a text: mostly the same for all samples."""
    own = zlib.crc32(text.tobytes(), sample)
    if own % 61 == 0:
        return STOP
    return 2 + (own if own % 29 == 0 else zlib.crc32(text.tobytes())) % 3


def response(request):
    """Return all that a request will have said."""
    text = request.prompt
    while len(text) < len(request.prompt) + NEW_TOKENS and (len(text) == len(request.prompt) or text[-1] != STOP):
        text = np.append(text, np.int32(drawn(text, request.id.sample)))
    return text[len(request.prompt) :]


class Pool(PagePool):
    """Its pages are empty when they are given out, so that what is written twice is seen."""

    def __init__(self, num_pages):
        super().__init__(num_pages)
        self.cache = [None] * (num_pages * PAGE_TOKENS)

    def allocate(self):
        page = super().allocate()
        if page is not None:
            self.cache[page * PAGE_TOKENS : (page + 1) * PAGE_TOKENS] = [None] * PAGE_TOKENS
        return page

    def check(self, version):
        """Require of every page of the tree that it holds what its path spells, computed with these weights."""
        texts = {_ROOT: b""}
        for page, node in self._nodes.items():  # parents were entered first
            if page != _ROOT:
                texts[page] = text = texts[node.parent] + node.key
                cells = self.cache[page * PAGE_TOKENS : (page + 1) * PAGE_TOKENS]
                ends = range(len(text) - 4 * PAGE_TOKENS + 4, len(text) + 1, 4)
                assert cells == [(version, text[:end]) for end in ends]

    def write(self, place, cell):
        assert self.cache[place] is None or self._holders[place // PAGE_TOKENS] <= 1, "others read it"
        self.cache[place] = cell


class Engine:
    """Batcher, pool and slots as in an engine; a cell of its cache is the version and the text of one token."""

    def __init__(self, num_pages, *, paths=0):
        self.pool = Pool(num_pages)
        self.slots = SlotTable(num_slots=6, max_context_tokens=CONTEXT)
        self.batcher = Batcher(slots=self.slots, pool=self.pool, max_step_tokens=24)
        self.version = 0
        self.paths = paths
        """0: no drafts; 1: chains; more: trees."""
        self.rng = np.random.default_rng(1)

    def submit(self, request):
        known = np.concatenate([request.prompt, request.generated])
        job = Job(request=request, key=0, submitted_s=0.0, version=self.version, known=known)
        self.batcher.waiting.append(job)
        return job

    def update(self, *, keep_kv):
        self.version += 1
        self.batcher.change_weights(self.version, keep_kv=keep_kv)

    def step(self):
        """Return the chunks that end."""
        step = self.batcher.plan(0.0, self.propose if self.paths and self.batcher.decodes else None)
        seen = [self.seen(step, row) for row in range(len(step.slots))]
        texts = [self.slots.tokens[slot, cells] for slot, cells in zip(step.slots, seen, strict=True)]
        for slot, cells, text in zip(step.slots, seen, texts, strict=True):
            version = OLD if self.batcher.running[slot].kept_kv else self.version
            self.pool.write(self.slots.cache_slots(slot, cells[-1]), (version, text.tobytes()))
        for slot, cells, text in zip(step.slots, seen, texts, strict=True):
            self.check(slot, cells, text)
        rows = range(len(texts)) if step.sampled is None else step.sampled
        tokens = np.array([drawn(texts[row], self.slots.samples[step.slots[row]]) for row in rows], np.int32)
        ended = self.batcher.complete(step, tokens, np.zeros(len(tokens), np.float32), STOP)
        self.keep_path(step)
        return ended

    def seen(self, step, row):
        """Return the cells that a row attends to, its own last."""
        if step.branches is None:
            return np.arange(step.cells[row] + 1)
        branch = step.branches.cells[slice(*step.branches.offsets[row : row + 2])]
        return np.append(np.arange(step.positions[row] + 1 - len(branch)), branch)

    def check(self, slot, cells, text):
        kept = self.batcher.running[slot].kept_kv
        for end, place in enumerate(self.slots.cache_slots(slot, cells), 1):
            version, found = self.pool.cache[place]
            assert found == text[:end].tobytes()
            assert kept or version == self.version

    def keep_path(self, step):
        """As `TorchEngine._keep_path`."""
        verified = self.batcher.verified
        if verified is None or step.branches is None:
            return
        slots, cells, targets = moves(step, verified)
        source, target = self.slots.cache_slots(slots, cells), self.slots.cache_slots(slots, targets)
        for a, b in zip(source, target, strict=True):
            self.pool.write(b, self.pool.cache[a])

    def propose(self, slots, most):
        wanted = self.batcher.reserve(np.minimum(most, self.rng.integers(0, 9, len(slots))).astype(np.int32))
        tokens = np.zeros((len(slots), max(wanted, default=0)), np.int32)
        parents = np.zeros_like(tokens)
        for row, slot in enumerate(slots):
            texts = [self.slots.tokens[slot, : self.slots.length[slot]]]
            for i in range(wanted[row]):
                parent = i - 1 if self.paths == 1 else int(self.rng.integers(max(-1, i - self.paths), i))
                token = drawn(texts[parent + 1], 0) if self.rng.random() < 0.9 else 2
                parents[row, i], tokens[row, i] = parent, token
                texts.append(np.append(texts[parent + 1], np.int32(token)))
        return Drafts(tokens, wanted, None if self.paths == 1 else parents)


def chunk(sample, prompt, budget, generated=NOTHING):
    return ChunkRequest(
        id=RequestId(0, sample),
        prompt=PROMPTS[prompt],
        generated=generated,
        max_tokens=budget,
        max_new_tokens=NEW_TOKENS,
        temperature=1.0,
    )


def resumed(job):
    return dataclasses.replace(job.request, generated=job.known[len(job.request.prompt) :])


class Requests:
    """They come, pause, come back and are aborted while room is short and weights change."""

    def __init__(self, num_pages, paths):
        self.engine = Engine(num_pages, paths=paths)
        self.jobs, self.paused, self.count = [], [], 0

    def submit(self, samples, prompt, budget):
        for _ in range(samples):
            self.jobs.append(self.engine.submit(chunk(self.count, prompt, budget)))
            self.count += 1

    def advance(self, steps):
        for _ in range(steps):
            for job, finish in self.engine.step():
                self.take(job, finish)
            self.check()

    def take(self, job, finish):
        self.jobs.remove(job)
        said = job.known[len(job.request.prompt) :]
        whole = response(job.request)
        assert np.array_equal(said, whole[: len(said)])
        assert (finish == "chunk") == (len(said) < len(whole))
        if finish == "chunk":
            self.paused.append(job)

    def resume(self, most):
        back, self.paused = self.paused[:most], self.paused[most:]
        self.jobs += [self.engine.submit(resumed(job)) for job in back]

    def abort(self, which):
        if self.jobs:
            self.engine.batcher.abort(self.jobs.pop(which % len(self.jobs)))

    def update(self, keep_kv):
        self.engine.update(keep_kv=keep_kv)

    def check(self):
        """Require that whatever the tree knows of a running request is what the request holds."""
        pool, slots = self.engine.pool, self.engine.slots
        assert pool.check_integrity() is None
        pool.check(self.engine.version)
        for job in self.engine.batcher.running.values():
            assert job.pages == slots.block_tables[job.slot, : len(job.pages)].tolist()
            if not job.kept_kv:
                published = pool.match(slots.tokens[job.slot, : job.num_published * PAGE_TOKENS])
                assert published == job.pages[: job.num_published]
                pool.release(published)
        assert self.engine.batcher.running or pool.num_available == pool.num_pages


ADVANCE = st.tuples(st.just("advance"), st.integers(1, 12))
SUBMIT = st.tuples(st.just("submit"), st.integers(1, 4), st.integers(0, len(PROMPTS) - 1), st.integers(1, 40))
RESUME = st.tuples(st.just("resume"), st.integers(1, 9))
RARE = st.tuples(st.just("abort"), st.integers(0, 20)) | st.tuples(st.just("update"), st.booleans())


@pytest.mark.parametrize("paths", [0, 1, 3], ids=["no drafts", "chains", "trees"])
@given(
    num_pages=st.sampled_from([12, 20, 100]),
    events=st.lists(st.one_of(ADVANCE, ADVANCE, SUBMIT, RESUME, RARE), min_size=20, max_size=60),
)
def test_nothing_that_is_shared_changes_a_token(paths, num_pages, events):
    requests = Requests(num_pages, paths)
    for name, *details in events:
        getattr(requests, name)(*details)
        requests.check()


@pytest.mark.parametrize("paths", [0, 1, 3], ids=["no drafts", "chains", "trees"])
@settings(max_examples=20)
@given(
    budget=st.integers(1, 40),
    arrivals=st.lists(st.tuples(st.integers(0, len(PROMPTS) - 1), st.integers(0, 50)), min_size=2, max_size=6),
)
def test_what_comes_back_computes_its_last_page_alone(paths, budget, arrivals):
    engine = Engine(200, paths=paths)
    due = deque((at, chunk(i, prompt, budget)) for i, (prompt, at) in enumerate(sorted(arrivals, key=itemgetter(1))))
    now, open_jobs = 0, 0
    while due or open_jobs:
        while due and due[0][0] <= now:
            engine.submit(due.popleft()[1])
            open_jobs += 1
        for job, finish in engine.step():
            open_jobs -= 1
            if len(job.request.generated):
                assert job.prefilled_tokens == job.base - (job.base - 1) // PAGE_TOKENS * PAGE_TOKENS
            if finish == "chunk":
                engine.submit(resumed(job))
                open_jobs += 1
        now += 1
    assert engine.pool.num_available == engine.pool.num_pages


def test_what_a_draft_tree_has_left_is_not_moved_into_pages_of_others():
    """It is moved when the chunk has ended and left, and so has exchanged its last page."""
    engine, ended = Engine(50, paths=3), 0
    for sample in range(300):
        whole = chunk(sample, 0, NEW_TOKENS)
        said = response(whole)
        if said[-1] == STOP and (len(whole.prompt) + len(said)) % PAGE_TOKENS in (1, 2, 3):
            for _ in range(2):
                engine.submit(whole)
                ended += run(engine)
            engine.update(keep_kv=False)
    assert ended > 10


def run(engine):
    """Return how many chunks end."""
    ended = []
    while engine.batcher.waiting or engine.batcher.running:
        ended += engine.step()
        engine.pool.check(engine.version)
    return len(ended)
