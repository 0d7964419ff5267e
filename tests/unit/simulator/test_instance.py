import numpy as np
import pytest

from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest
from sestina.simulator.clock import VirtualClock
from sestina.simulator.instance import EmulatedInstance
from sestina.transport.codec import decode, encode
from sestina.transport.messages import AbortChunks, Bye, StartChunk
from tests.conftest import lively_weights, make_shape
from tests.unit.rollout.helpers import make_engine

SHAPE = make_shape()
OLD, NEW = (lively_weights(SHAPE, seed=seed) for seed in (1, 2))
TOKENS = 6


def make_instance(*, drains):
    ticks = iter(range(1000))
    engine = make_engine(SHAPE, interruption="refuse" if drains else "recompute")
    engine.load_weights(0, OLD)
    return EmulatedInstance(0, engine, VirtualClock(lambda: float(next(ticks))), drains=drains)


def start(group):
    prompt = np.arange(2, 7, dtype=np.int32)
    return encode([
        StartChunk(
            chunk=ChunkRequest(
                id=RequestId(group, 0),
                prompt=prompt,
                generated=np.zeros(0, np.int32),
                max_tokens=TOKENS,
                max_new_tokens=TOKENS,
                temperature=1.0,
            )
        )
    ])  # fmt: skip


def run(instance):
    """Step until nothing is left; returns the results, and the version after each step."""
    results, versions, at = [], [], 0.0
    while instance.has_work:
        over, frame = instance.step(at)
        assert over > at
        at = over
        results += [message.result for message in decode(frame)] if frame else []
        versions.append(instance.engine.version)
    return results, versions


def begun(*, drains):
    instance = make_instance(drains=drains)
    instance.arrive(start(0))
    for _ in range(3):
        instance.step(0.0)
    instance.update(1, NEW)
    instance.arrive(start(1))
    return instance


def versions_of(result):
    return [span.version for span in result.spans if span.num_tokens]


def test_weights_interrupt_what_runs():
    results, versions = run(begun(drains=False))
    assert versions[0] == 1
    assert {result.id.group: versions_of(result) for result in results} == {0: [0, 1], 1: [1]}


def test_an_instance_that_drains_ends_what_it_runs_and_begins_nothing():
    results, versions = run(begun(drains=True))
    assert versions[0] == 0
    assert versions == sorted(versions)
    assert {result.id.group: versions_of(result) for result in results} == {0: [0], 1: [1]}


def test_an_idle_one_takes_them_at_once():
    instance = make_instance(drains=True)
    assert not instance.has_work
    instance.update(1, NEW)
    assert run(instance) == ([], [1])


def test_a_chunk_is_given_back():
    instance = make_instance(drains=False)
    instance.arrive(start(0))
    instance.step(0.0)
    instance.arrive(encode([AbortChunks(ids=(RequestId(0, 0),))]))
    [result], _ = run(instance)
    assert result.finish == "abort"
    instance.arrive(encode([Bye()]))
    with pytest.raises(AssertionError, match="an instance cannot answer Bye"):
        instance.step(9.0)
