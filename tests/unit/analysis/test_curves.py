import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.analysis.curves import completed, happened, kv_tokens, lanes_of, origin_of, running
from tests.unit.telemetry.helpers import Rollouts


@pytest.fixture(scope="module")
def step():
    return Rollouts().step(1)


def area(curve):
    at, values = curve
    return float((np.diff(at) * values[:-1]).sum())


def test_curves_say_what_the_rows_say(step):
    requests, chunks = step
    origin_s = origin_of(requests, "sync")
    assert area(running(chunks, origin_s)) == pytest.approx(sum(row.finished_s - row.started_s for row in chunks))
    at, share = completed(requests, origin_s)
    assert share[-1] == 1
    assert at[-1] == max(row.finished_s for row in requests) - origin_s
    _, counts = happened([row.finished_s for row in chunks], [row.tokens for row in chunks], origin_s)
    assert counts[-1] == sum(row.response_tokens for row in requests)


def test_an_asynchronous_step_begins_with_its_first_offer(step):
    first, *others = step[0]
    requests = [replace(first, offered_s=first.offered_s - 3), *others]
    assert origin_of(requests, "sync") - origin_of(requests, "async") == 3


def test_a_chunk_holds_its_context_and_what_it_has_grown_by(step):
    requests, chunks = step
    mine = [row for row in chunks if (row.group, row.sample) == (chunks[0].group, chunks[0].sample)]
    for row in mine:
        before = 20 + sum(other.tokens for other in mine if other.chunk < row.chunk)
        alone = replace(row, started_s=0.0, finished_s=10.0)
        others = [other for other in mine if other.chunk < row.chunk]
        gone = [replace(other, started_s=-2.0, finished_s=-1.0) for other in others]
        at, held = kv_tokens(requests, [*gone, alone], 0.0, points=101)
        assert held[0] == before
        assert held[50] == pytest.approx(before + row.tokens / 2)
        assert held[-1] == 0, at


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), max_size=30))
def test_chunks_of_a_lane_follow_each_other_and_no_lane_is_spare(spans):
    row = Rollouts().step(1, num_groups=1, samples=1)[1][0]
    chunks = [replace(row, started_s=float(start), finished_s=float(start + length)) for start, length in spans]
    lanes = lanes_of(chunks)
    for lane in set(lanes):
        mine = sorted((c.started_s, c.finished_s) for c, at in zip(chunks, lanes, strict=True) if at == lane)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(mine))
    if all(length for _, length in spans) and spans:
        most = max(sum(c.started_s <= at < c.finished_s for c in chunks) for at in range(30))
        assert max(lanes) + 1 == most
