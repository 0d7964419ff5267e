import dataclasses
import math

import numpy as np
import pytest

from sestina.controller.sample import Sample
from sestina.controller.unfinished import Place, read_unfinished, take_up, write_unfinished
from sestina.core.errors import RunDirError
from sestina.core.ids import RequestId
from sestina.policies.events import Begun, Dispatch
from tests.unit.controller.test_batch import chunk, finished

PLACE = Place(step=3, version=2, fingerprint="f", digest="d")


def fresh(sample):
    return Sample(
        id=sample.id,
        step=3,
        prompt=sample.prompt,
        max_new_tokens=9,
        temperature=1.0,
        offered_s=500.0,
    )


@pytest.fixture
def left():
    """Rewarded, complete, in the middle of a response, in the middle of its second chunk, not begun."""
    rewarded = finished(1, 0, [[1, 2], [3]], 0.5)
    failed = finished(1, 1, [[4]], float("nan"), kind="timeout")
    complete = finished(1, 2, [[5, 6]], 1.0)
    complete.outcome = None
    partial = fresh(finished(1, 3, [[9]], 1.0))
    dispatch = Dispatch(request=partial.id, instance=1, max_tokens=5, reason="least-loaded")
    partial.start(dispatch, now=1.0)
    partial.absorb(chunk(partial.id, [7, 8], finish="abort", end_s=2.0), ahead_s=0.0, now=3.0)
    running = fresh(finished(1, 4, [[9]], 1.0))
    running.start(dispatch, now=1.0)
    return [rewarded, failed, complete, partial, running]


def restored(path, left, now=1000.0):
    samples = {sample.id: fresh(sample) for sample in left}
    return samples, take_up(samples, read_unfinished(path, PLACE, now))


def test_what_is_taken_up_is_what_was_left(tmp_path, left):
    path = tmp_path / "unfinished.msgpack"
    assert write_unfinished(path, PLACE, left, 20.0) == 3 + 1 + 2 + 2
    samples, begun = restored(path, left)
    assert begun == (
        Begun(request=RequestId(1, 0), generated_tokens=3, done=True, rewarded=True),
        Begun(request=RequestId(1, 1), generated_tokens=1, done=True, rewarded=True),
        Begun(request=RequestId(1, 2), generated_tokens=2, done=True, rewarded=False),
        Begun(request=RequestId(1, 3), generated_tokens=2, done=False, rewarded=False),
    )
    for before in left[:4]:
        after = samples[before.id]
        np.testing.assert_array_equal(after.tokens, before.tokens)
        np.testing.assert_array_equal(after.logprobs, before.logprobs)
        assert after.tokens.dtype == np.int32
        assert [part.version for part in after.parts] == [part.version for part in before.parts]
        assert after.restored_tokens == before.num_tokens
    assert samples[RequestId(1, 0)].reward == 0.5
    assert math.isnan(samples[RequestId(1, 1)].reward)
    assert samples[RequestId(1, 1)].outcome.kind == "timeout"
    assert samples[RequestId(1, 4)].restored_tokens == 0
    continued = samples[RequestId(1, 3)].start(left[3]._dispatched or Dispatch(
        request=RequestId(1, 3), instance=0, max_tokens=5, reason="bound"), now=1001.0)  # fmt: skip
    assert continued.generated.tolist() == [7, 8]


def test_the_time_between_is_left_out(tmp_path, left):
    """Instants of another process, perhaps of another machine, become instants of this one."""
    path = tmp_path / "unfinished.msgpack"
    write_unfinished(path, PLACE, left, 20.0)
    samples, _ = restored(path, left, now=1000.0)
    before, after = left[0], samples[left[0].id]
    assert after.offered_s - 1000.0 == before.offered_s - 20.0
    assert after.rewarded_s - 1000.0 == before.rewarded_s - 20.0
    assert [row.finished_s - 980.0 for row in after.chunks] == [row.finished_s for row in before.chunks]
    assert [(row.restored, earlier.restored) for row, earlier in zip(after.chunks, before.chunks, strict=True)] == [
        (True, False)
    ] * 2
    assert after.row().num_chunks == 2


@pytest.mark.parametrize("other", [{"step": 4}, {"version": 3}, {"fingerprint": "g"}, {"digest": "e"}])
def test_tokens_of_another_place_are_not_taken_up(tmp_path, left, other):
    path = tmp_path / "unfinished.msgpack"
    write_unfinished(path, PLACE, left, 20.0)
    assert read_unfinished(path, dataclasses.replace(PLACE, **other), 0.0) == {}


def test_nothing_kept_and_something_else_in_its_place(tmp_path):
    path = tmp_path / "unfinished.msgpack"
    assert read_unfinished(path, PLACE, 0.0) == {}
    path.write_bytes(b"nonsense")
    with pytest.raises(RunDirError, match="unfinished.msgpack: not what a stopped run leaves"):
        read_unfinished(path, PLACE, 0.0)
