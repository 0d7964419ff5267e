"""What drafts yielded a recorded run's responses."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.core.errors import DataError
from sestina.core.ids import EVAL_GROUPS, RequestId
from sestina.simulator.acceptance import Drafting
from sestina.simulator.progress import Progress
from sestina.simulator.yields import MOST_CLASSES, read_yields
from sestina.telemetry.traces import ChunkRow, write_step
from tests.unit.simulator.test_fluid import chunk


def row(group, number, tokens, steps, *, drafted=None, sample=0, step=1):
    return ChunkRow(
        step=step, group=group, sample=sample, chunk=number, instance=0, reason="any", budget_tokens=tokens,
        tokens=tokens, finish="chunk", version=1, dispatched_s=0.0, submitted_s=0.0, started_s=0.0, finished_s=1.0,
        received_s=1.0, prefilled_tokens=0, cached_tokens=0, preemptions=0,
        drafted_tokens=2 * (tokens - steps) if drafted is None else drafted, accepted_tokens=tokens - steps,
    )  # fmt: skip


def recorded(folder, *rows, draft_tokens=4):
    for step in sorted({each.step for each in rows}):
        write_step(folder, step, [], [each for each in rows if each.step == step])
    return read_yields(folder, draft_tokens=draft_tokens)


def test_chunks_have_the_yield_of_their_class(tmp_path):
    yields = recorded(tmp_path, row(0, 0, 20, 20), row(0, 1, 20, 10), row(0, 2, 6, 3), row(1, 0, 30, 30))
    plain, quick = 1, 2
    assert yields.classes_of(RequestId(0, 0), 0, 46) == [(20, plain), (46, quick)]
    assert yields.classes_of(RequestId(0, 0), 8, 12) == [(12, plain)]
    assert yields.classes_of(RequestId(0, 0), 20, 30) == [(30, quick)]
    assert yields.classes_of(RequestId(1, 0), 0, 16) == [(16, plain)]
    assert yields.classes_of(RequestId(7, 0), 0, 16) == [(16, 0)], "of one that was not recorded all is the mean"
    assert yields.classes_of(RequestId(1, 0), 30, 40) == [(40, 0)], "nor beyond what was"
    assert yields.tokens_per_step == (76 / 63, 1.0, 2.0)
    assert yields.drafted_per_step == (26 / 63, 0.0, 2.0)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3)), min_size=1, max_size=60))
def test_classes_lose_no_step(tmp_path_factory, parts):
    folder = tmp_path_factory.mktemp("run")
    pieces = [(tokens, max(1, math.ceil(tokens / (1 + kept)))) for tokens, kept in parts]
    rows = [row(0, place, tokens, steps, drafted=3 * steps) for place, (tokens, steps) in enumerate(pieces)]
    yields = recorded(folder, *rows)
    total = sum(tokens for tokens, _ in pieces)
    classes = yields.classes_of(RequestId(0, 0), 0, total)
    assert classes[-1][0] == total
    assert len(yields.tokens_per_step) <= MOST_CLASSES + 1
    begun, steps = 0, 0.0
    for end, number in classes:
        begun, steps = end, steps + (end - begun) / yields.tokens_per_step[number]
    assert steps == pytest.approx(sum(steps for _, steps in pieces))


STAGES = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 2)))


@given(st.lists(st.tuples(st.integers(1, 60), STAGES, st.integers(0, 9)), min_size=1, max_size=6))
def test_chunks_change_their_class_on_the_way(given_chunks):
    """Against requests that are stepped one by one."""
    rates = (1.0, 2.5, 4.0)
    subject = Progress(Drafting(lengths=(4,), siblings=(0,), rates=tuple((rate,) for rate in rates)))
    ends, now, taken = {}, 0, {}
    coming = sorted(range(len(given_chunks)), key=lambda number: given_chunks[number][2])
    chunks = []
    for number, (tokens, stages, _) in enumerate(given_chunks):
        chunks.append(chunk(number, 1, tokens))
        bounds = np.cumsum([length for length, _ in stages]).tolist()
        chunks[-1].classes = [(end, kind) for end, (_, kind) in zip(bounds, stages, strict=True)]
        produced, steps = 0.0, 0
        while produced < tokens - 1e-9:
            kind = next((kind for end, kind in chunks[-1].classes if end > produced + 1e-9), 0)
            produced, steps = produced + rates[kind], steps + 1
        taken[number] = steps
    while coming or any(subject.counts):
        while coming and given_chunks[coming[0]][2] <= now:
            subject.join(chunks[coming.pop(0)])
        until = given_chunks[coming[0]][2] - now if coming else math.inf
        steps = min(until, subject.steps_to_end(0)) if any(subject.counts) else until
        subject.advance(int(steps), 0)
        now += int(steps)
        for each in subject.ended():
            subject.leave(each)
            ends[each.request.group] = now
    assert ends == {number: given_chunks[number][2] + steps for number, steps in taken.items()}


def test_a_recording_that_says_nothing_of_drafts_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has no chunks in traces/; sim.acceptance.recording is the directory of a"):
        read_yields(tmp_path / "nowhere", draft_tokens=4)
    with pytest.raises(DataError, match=r"nothing was drafted in this run; sim.acceptance.recording is one with dra"):
        recorded(tmp_path / "plain", row(0, 0, 20, 20))
    with pytest.raises(DataError, match=r"drafts were longer than sim.acceptance.draft_tokens 2; it is what the recor"):
        recorded(tmp_path / "long", row(0, 0, 20, 5, drafted=15), draft_tokens=2)
    with pytest.raises(DataError, match=r"group 3 is of steps 1 and 2; sim.acceptance.recording takes groups whose"):
        recorded(tmp_path / "twice", row(3, 0, 20, 10), row(3, 0, 20, 10, step=2))


def test_evaluations_do_not_count(tmp_path):
    yields = recorded(tmp_path, row(0, 0, 20, 10), row(EVAL_GROUPS, 0, 20, 20))
    assert yields.tokens_per_step[0] == 2.0
    assert yields.classes_of(RequestId(EVAL_GROUPS, 0), 0, 20) == [(20, 0)]
