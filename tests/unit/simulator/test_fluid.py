import dataclasses

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sestina.core.ids import RequestId
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.serving import ServingCost
from sestina.policies.events import KvReport
from sestina.rollout.batcher import WATERMARK
from sestina.simulator.acceptance import NO_DRAFTS, Drafting
from sestina.simulator.chunk import Chunk
from sestina.simulator.cost.step import EngineCost
from sestina.simulator.fluid import FluidInstance, OnUpdate
from sestina.simulator.residents import FluidLimits
from sestina.simulator.resume import Resume

from .test_residents import siblings_of

KV_S, SEQUENCE_S = 1e-3, 0.05
STEP = StepCost(
    weights_s=0.0,
    kv_token_s=KV_S,
    row_s=0.0,
    row_kv_s=0.0,
    plain_sequence_s=SEQUENCE_S,
    verify_sequence_s=SEQUENCE_S,
    draft_token_s=0.0,
)
COST = EngineCost(step=STEP, prefill_row_kv_s=0.0, max_step_tokens=64)
DRAFTS = Drafting(lengths=(0, 4), siblings=(0, 2), rates=((1.0, 1.7), (1.0, 2.3)))


def chunk(group, prompt, tokens, *, sample=0, generated=0, at=0.0, siblings=None):
    return Chunk(
        request=RequestId(group, sample),
        prompt_tokens=prompt,
        generated_tokens=generated,
        tokens=tokens,
        budget_tokens=tokens,
        done=True,
        submitted_s=at,
        siblings=siblings,
    )


def instance(capacity=400, max_running=6, drafting=NO_DRAFTS, cost=COST):
    limits = FluidLimits(kv_capacity_tokens=capacity, max_running=max_running)
    return FluidInstance(0, limits, cost, drafting, Resume(pool=None))


def flown(subject, arrivals):
    """Let chunks arrive at their times; returns each with when it ended, in the order of their ends."""
    ended, coming = [], sorted(arrivals, key=lambda each: each.submitted_s)
    now, due = 0.0, None
    while coming or due is not None:
        if coming and (due is None or coming[0].submitted_s < due):
            now = coming[0].submitted_s
            while coming and coming[0].submitted_s == now:
                subject.submit(coming.pop(0))
        else:
            now = due
            ended += subject.finish()
        due = subject.settle(now)
        assert subject.peak_tokens <= subject.limits.kv_capacity_tokens + 1e-6
        assert subject.num_running <= subject.limits.max_running
    return ended


def stepped(chunks, capacity, max_running):
    """Step by step, every token of it; returns when each chunk ended, and the preemptions."""
    now, preemptions, ends = 0.0, 0, {}
    waiting, running = [(each, 0) for each in chunks], []

    def held():
        return sum(each.prompt_tokens + got for each, got in running)

    while waiting or running:
        while waiting and len(running) < max_running:
            each, got = waiting[0]
            left_free = int(capacity * WATERMARK) if running else 0
            if each.prompt_tokens + got + left_free > capacity - held():
                break
            running.append(waiting.pop(0))
        while held() + len(running) > capacity:
            waiting.insert(0, running.pop())
            preemptions += 1
        now += KV_S * held() + SEQUENCE_S * len(running)
        running = [(each, got + 1) for each, got in running]
        ends |= {each.request: now for each, got in running if got == each.tokens}
        running = [(each, got) for each, got in running if got < each.tokens]
    return ends, preemptions


WORK = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 120)), min_size=1, max_size=14)


@given(work=WORK, capacity=st.integers(190, 700), max_running=st.integers(1, 8))
@example(work=[(1, 1)] * 4 + [(60, 1)] * 3 + [(1, 1)], capacity=190, max_running=7)  # one that gives way, others come
def test_a_fluid_does_what_steps_do(work, capacity, max_running):
    made = [chunk(group, *sizes) for group, sizes in enumerate(work)]
    ends, preemptions = stepped([chunk(group, *sizes) for group, sizes in enumerate(work)], capacity, max_running)
    ended = flown(instance(capacity, max_running), made)
    assert {each.request: each.finished_s for each in ended} == pytest.approx(ends, rel=1e-9)
    assert sum(each.preemptions for each in made) == preemptions


ARRIVALS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 60), st.integers(1, 120), st.floats(0, 40)), min_size=1, max_size=14
)


@settings(deadline=None)
@given(work=ARRIVALS, drafting=st.sampled_from([NO_DRAFTS, DRAFTS]))
def test_every_chunk_ends_once_with_its_tokens_and_within_room(work, drafting):
    prompts = {}
    made = [
        chunk(group, prompts.setdefault(group, prompt), tokens, sample=number, at=at)
        for number, (group, prompt, tokens, at) in enumerate(work)
    ]
    subject = instance(drafting=drafting)
    ended = flown(subject, made)
    assert sorted(each.request for each in ended) == sorted(each.request for each in made)
    assert all(each.produced == each.tokens for each in made)
    assert all(each.submitted_s <= each.started_s <= each.finished_s for each in made)
    assert (subject.num_running, subject.held_tokens) == (0, 0)
    if drafting is NO_DRAFTS:
        assert all(each.steps == each.tokens and not each.accepted_tokens for each in made if not each.preemptions)


TEXTS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=40), min_size=2, max_size=5)


@settings(deadline=None)
@given(
    groups=st.lists(TEXTS, min_size=1, max_size=3),
    drafting=st.sampled_from([NO_DRAFTS, DRAFTS]),
    capacity=st.integers(70, 200),
    changes=st.lists(st.floats(0, 30), max_size=2),
    keep_kv=st.booleans(),
)
def test_siblings_that_begin_alike_end_as_all_do(groups, drafting, capacity, changes, keep_kv):
    """With preemptions, drafts and new weights: each once, within room, and nothing is held at the end."""
    subject = FluidInstance(
        0, FluidLimits(kv_capacity_tokens=capacity, max_running=6), COST, drafting, Resume(pool=None),
        OnUpdate(keep_kv=keep_kv),
    )  # fmt: skip
    made = [
        chunk(group, 10, len(text), sample=sample, siblings=siblings)
        for group, texts in enumerate(groups)
        for siblings in [siblings_of(texts)]
        for sample, text in enumerate(texts)
    ]
    for each in made:
        subject.submit(each)
    ended, due = [], subject.settle(0.0)
    for version, at in enumerate(sorted(changes), start=1):
        while due is not None and due <= at:
            ended += subject.finish()
            due = subject.settle(due)
        subject.update(version, 0.5)
        due = subject.settle(at)
    while due is not None:
        ended += subject.finish()
        due = subject.settle(due)
        assert -1e-6 <= subject.held_tokens <= capacity + 1e-6
    assert sorted(each.request for each in ended) == sorted(each.request for each in made)
    assert all(each.prefilled_tokens >= 0 and each.produced == each.tokens for each in made)
    assert (subject.held_tokens, subject.kv().peak_tokens) == (0, 0)


def test_a_group_holds_its_prompt_once_and_reads_it_for_each():
    subject = instance()
    for sample in (0, 1):
        subject.submit(chunk(7, 100, 10, sample=sample))
    ends = subject.settle(0.0)
    assert subject.held_tokens == 100
    assert ends == pytest.approx(sum(2 * SEQUENCE_S + KV_S * (200 + 2 * step) for step in range(10)))
    ended = subject.finish()
    assert [each.cached_tokens for each in ended] == [0, 100]
    assert [each.prefilled_tokens for each in ended] == [100, 0]


def test_who_comes_back_finds_what_nobody_needed():
    subject = instance(capacity=200)
    first = chunk(1, 30, 50)
    first.done = False
    subject.submit(first)
    subject.settle(0.0)
    subject.finish()
    again = chunk(1, 30, 10, generated=50)
    subject.submit(again)
    subject.settle(100.0)
    assert (again.cached_tokens, again.prefilled_tokens) == (80, 0)
    subject.finish()
    other = chunk(2, 190, 5)
    subject.submit(other)
    subject.settle(200.0)
    subject.finish()
    last = chunk(1, 30, 10, generated=60)
    subject.submit(last)
    subject.settle(300.0)
    assert (last.cached_tokens, last.prefilled_tokens) == (0, 90)


def test_finished_siblings_quicken_a_response():
    always = Drafting(lengths=(4,), siblings=(0, 1), rates=((2.0,), (4.0,)))
    subject = instance(drafting=always)
    one = chunk(1, 10, 100)
    subject.submit(one)
    late = subject.settle(0.0)
    subject.reclass(one, 1)
    assert subject.settle(0.0) < late
    subject.finish()
    assert (one.steps, one.drafted_tokens, one.accepted_tokens) == (25, 100, 75)


def test_a_request_holds_whole_pages():
    """Of a prompt of 40 two pages are the group's; each request has the rest, and leaves half a page unused."""
    subject = FluidInstance(
        0, FluidLimits(kv_capacity_tokens=400, max_running=6, page_tokens=16), COST, NO_DRAFTS, Resume(pool=None)
    )
    for sample in (0, 1):
        subject.submit(chunk(7, 40, 10, sample=sample))
    subject.settle(0.0)
    assert subject.held_tokens == 32 + 2 * (8 + 7.5)
    subject.finish()
    assert subject.held_tokens == 0


def test_it_says_what_its_chunks_can_come_to_hold():
    """Pages of each in whole, waiting ones too; the prompt's whole pages once."""
    limits = FluidLimits(kv_capacity_tokens=400, max_running=2, page_tokens=16)
    subject = FluidInstance(0, limits, COST, NO_DRAFTS, Resume(pool=None))
    assert subject.kv() == KvReport(peak_tokens=0, capacity_tokens=400)
    for sample in range(3):
        subject.submit(chunk(7, 40, 10, sample=sample))
    subject.settle(0.0)
    assert subject.kv().peak_tokens == 3 * 64 - 32
    subject.finish()
    assert subject.kv().peak_tokens == 64
    waiting = chunk(8, 40, 10)
    subject.submit(waiting)
    assert subject.kv().peak_tokens == 2 * 64
    assert not subject.abort(waiting)
    assert subject.kv().peak_tokens == 64


def test_whole_pages_are_found_again():
    subject = FluidInstance(
        0, FluidLimits(kv_capacity_tokens=400, max_running=6), COST, NO_DRAFTS, Resume(pool=None, page_tokens=16)
    )
    first = chunk(1, 30, 50)
    first.done = False
    subject.submit(first)
    subject.settle(0.0)
    subject.finish()
    again = chunk(1, 30, 10, generated=50)
    subject.submit(again)
    subject.settle(100.0)
    assert (again.cached_tokens, again.prefilled_tokens) == (64, 16)  # of 80, whose last token draws the next


def test_chunks_that_join_add_to_the_step_that_decodes():
    """One joining step for both, each chunk's own part, and a further pass where rows are too many for one."""
    serving = ServingCost(chunk_s=3.0, text_token_s=0.0, join_s=100.0, row_s=1.0, row_kv_s=0.0)
    step = dataclasses.replace(STEP, step_s=7.0)
    cost = EngineCost(step=step, prefill_row_kv_s=0.0, max_step_tokens=64, serving=serving)
    decoding_s = 2 * SEQUENCE_S + 7.0
    for prompt, joining_s in ((21, 100.0 + 2 * 23), (41, 2 * 100.0 + 7.0 + 2 * 43)):
        subject = instance(cost=cost)
        for group in (1, 2):
            subject.submit(chunk(group, prompt, 1))
        assert subject.settle(0.0) == pytest.approx(joining_s + decoding_s + KV_S * 2 * prompt)


def test_drafts_that_are_not_found_take_no_time():
    found = Drafting(lengths=(4,), siblings=(0, 2), rates=((2.0,), (3.0,)), drafted=(0.25, 0.75))
    assert found.drafts(0, (3, 1)) == pytest.approx(4 * (3 * 0.25 + 0.75) / 4)
    assert dataclasses.replace(found, drafted=()).drafts(0, (3, 1)) == 4
    subject = instance(drafting=dataclasses.replace(found, siblings=(0,), rates=((2.0,),), drafted=(0.25,)))
    one = chunk(1, 10, 100)
    subject.submit(one)
    subject.settle(0.0)
    subject.finish()
    assert (one.steps, one.drafted_tokens) == (50, 50)


SERVING = ServingCost(chunk_s=0.0, text_token_s=0.0, join_s=0.0, row_s=0.0, row_kv_s=0.0)
LIMITED = Drafting(
    lengths=(0, 1, 2, 3, 4), siblings=(0,), rates=((1.0, 1.5, 2.0, 2.5, 3.0),), drafted=(0.5,), choices=(4,)
)


@given(
    st.integers(1, 8), st.integers(1, 60), st.booleans(), st.lists(st.integers(0, 4), min_size=1, max_size=4), st.data()
)
def test_drafts_are_as_long_as_there_are_rows_for(batch, rows, joined, lengths, data):
    drafting = dataclasses.replace(LIMITED, choices=tuple(sorted(set(lengths))))
    cost = dataclasses.replace(COST, max_step_tokens=rows, serving=SERVING)
    room = max(0, rows - batch) // (2 if joined else 1)
    index = drafting.choose(cost, batch, 100.0, (batch,), joined=joined)
    assert index == 0 or batch * 0.5 * index <= room
    assert index <= max(drafting.choices)
    if len(drafting.choices) == 1:
        [wanted] = drafting.choices
        assert index == max([0, *(length for length in range(wanted + 1) if batch * 0.5 * length <= room)])


def test_chunks_that_join_a_step_take_rows_of_drafts():
    """Four responses, of each two tokens found: 8 rows, as decoding leaves, but for 4 in the first step."""
    cost = dataclasses.replace(COST, max_step_tokens=12, serving=SERVING)
    subject = instance(drafting=LIMITED, cost=cost)
    chunks = [chunk(group, 10, 14) for group in range(4)]
    for each in chunks:
        subject.submit(each)
    subject.settle(0.0)
    while subject.num_running:
        subject.finish()
        subject.settle(0.0)
    # Two tokens and one draft once, then 3 tokens and two drafts: 14 tokens after 5 steps.
    assert {(each.steps, each.drafted_tokens) for each in chunks} == {(5, 1 + 4 * 2)}


@pytest.mark.parametrize(
    ("on_update", "versions", "again"),
    [(OnUpdate(), [0, 1], True), (OnUpdate(keep_kv=True), [0, 1], False), (OnUpdate(drains=True), [0], False)],
)
def test_new_weights_interrupt_what_runs_or_wait_for_it(on_update, versions, again):
    limits = FluidLimits(kv_capacity_tokens=400, max_running=6)
    subject = FluidInstance(0, limits, COST, NO_DRAFTS, Resume(pool=None), on_update)
    runs, waits = chunk(0, 10, 50), chunk(1, 10, 5)
    subject.submit(runs)
    subject.settle(0.0)
    subject.update(1, 0.5)
    subject.submit(waits)
    now = 1.0
    while (due := subject.settle(now)) is not None:
        subject.finish()
        now = due
    assert [span.version for span in runs.spans] == versions
    assert [span.kept_kv for span in runs.spans] == [False, on_update.keep_kv][: len(versions)]
    assert sum(span.num_tokens for span in runs.spans) == 50
    drawn = runs.spans[0].num_tokens
    assert (runs.cached_tokens, runs.prefilled_tokens) == (0, 10 + (10 + drawn if again else 0))
    assert [span.version for span in waits.spans] == [1]
    assert waits.started_s >= subject.loaded_s
    assert subject.loaded_s == pytest.approx((runs.finished_s if on_update.drains else 1.0) + 0.5, abs=0.1)


def test_a_chunk_that_is_aborted_ends_with_its_next_token():
    subject = instance(max_running=1)
    runs, waits = chunk(0, 10, 50), chunk(1, 10, 5)
    for each in (runs, waits):
        subject.submit(each)
    subject.settle(0.0)
    assert not subject.abort(waits)
    assert subject.abort(runs)
    due = subject.settle(1.0)
    assert subject.finish() == [runs]
    assert (runs.done, runs.tokens) == (True, sum(span.num_tokens for span in runs.spans))
    assert due < 1.3
    assert subject.settle(due) is None


def test_the_longest_response_fits_the_least_capacity():
    """A prompt of 64 and 192 tokens fill 16 pages of 16 to the last; no half page is left unused then."""
    limits = FluidLimits(kv_capacity_tokens=256, max_running=6, page_tokens=16)
    subject = FluidInstance(0, limits, COST, NO_DRAFTS, Resume(pool=None))
    longest = chunk(1, 64, 192)
    subject.submit(longest)
    subject.settle(0.0)
    assert subject.finish() == [longest]
