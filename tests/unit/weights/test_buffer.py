"""Versions that arrive while nobody waits for them, over a real gloo group."""

import time

import pytest
import torch

from sestina.core.errors import DeadlineError, WeightsError
from sestina.weights.buffer import WeightBuffer
from sestina.weights.update import layout_of, publish
from tests.unit.weights.test_update import group, tensors_of  # noqa: F401 - a fixture

TENSORS = tensors_of(torch.float32)
LAYOUT = layout_of({name: tensor.shape for name, tensor in TENSORS.items()}, torch.float32, 200)


@pytest.fixture
def members(group):  # noqa: F811 - the fixture
    buffers = [WeightBuffer() for _ in range(2)]
    yield group, buffers
    for buffer in buffers:
        buffer.close()


def announce(members, version):
    joined, buffers = members
    for member, buffer in zip(joined[1:], buffers, strict=True):
        buffer.receive(version, member, LAYOUT)


def send(members, version):
    announce(members, version)
    publish(members[0][0], LAYOUT, version, ((name, tensor + version) for name, tensor in TENSORS.items()))


def arrivals(buffer, count):
    found, until = [], time.monotonic() + 10
    while len(found) < count and time.monotonic() < until:
        found += buffer.arrived()
        time.sleep(0.001)
    return found


def test_two_versions_are_kept_until_they_are_taken(members):
    for version in (1, 2):
        send(members, version)
    for buffer in members[1]:
        said = arrivals(buffer, 2)
        assert [each.version for each in said] == [1, 2]
        assert said[0].num_bytes == sum(tensor.nbytes for tensor in TENSORS.values())
        for version in (1, 2):
            taken = buffer.take(version, 5)
            assert all(torch.equal(taken[name], tensor + version) for name, tensor in TENSORS.items())
        with pytest.raises(AssertionError, match="weights of version 1 were never announced"):
            buffer.take(1, 5)


def test_one_may_be_taken_before_it_has_been_said_to_be_there(members):
    send(members, 1)
    for buffer in members[1]:
        buffer.take(1, 5)
        assert [each.version for each in arrivals(buffer, 1)] == [1]


def test_what_is_two_versions_old_is_forgotten(members):
    for version in (1, 2, 3):
        send(members, version)
        assert [len(arrivals(buffer, 1)) for buffer in members[1]] == [1, 1]
    for buffer in members[1]:
        with pytest.raises(AssertionError, match="weights of version 1 were never announced"):
            buffer.take(1, 5)
        buffer.take(2, 5)


def test_a_version_that_does_not_come_is_named(members):
    announce(members, 4)
    with pytest.raises(DeadlineError, match="weights of version 4 to arrive"):
        members[1][0].take(4, 0.1)
    with pytest.raises(WeightsError, match="bucket 0 of version 4 did not get through"):
        arrivals(members[1][0], 1)
