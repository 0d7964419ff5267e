import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sestina.core.errors import DeadlineError, UserError, WeightsError
from sestina.weights.group import UpdateGroup
from sestina.weights.rendezvous import connect_store, open_store
from sestina.weights.update import buckets_of, checksum, layout_of, publish, receive

CPU = torch.device("cpu")


@pytest.fixture
def group():
    """A real gloo group of one trainer and two rollout members, in threads of this process."""
    rendezvous = open_store("127.0.0.1", 10)
    members: dict[int, UpdateGroup] = {}

    def join(rank):
        store = rendezvous.store if rank == 0 else connect_store(rendezvous.host, rendezvous.port, 10)
        members[rank] = UpdateGroup(store, rank=rank, world_size=3, device=CPU, limit_s=2)

    run_all(join, 3)
    return [members[rank] for rank in range(3)]


def run_all(work, count):
    errors = {}

    def guarded(rank):
        try:
            work(rank)
        except Exception as error:  # noqa: BLE001 - handed to the test
            errors[rank] = error

    threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return errors


def tensors_of(dtype):
    generator = torch.Generator().manual_seed(0)
    shapes = {"a": (7, 5), "b": (3,), "c": (64, 64), "d": (1,)}
    return {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in shapes.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bucket_bytes", [8, 200, 1 << 20])
def test_every_member_receives_the_same_bits(group, dtype, bucket_bytes):
    tensors = tensors_of(dtype)
    layout = layout_of({k: v.shape for k, v in tensors.items()}, dtype, bucket_bytes)
    received = {}

    def work(rank):
        if rank == 0:
            received[0] = publish(group[0], layout, 5, tensors.items())
        else:
            received[rank] = receive(group[rank], layout, 5, keep_on=CPU)

    assert not run_all(work, 3)
    assert received[0] >= sum(t.nbytes for t in tensors.values())
    for rank in (1, 2):
        assert received[rank].keys() == tensors.keys()
        assert all(torch.equal(received[rank][name], tensors[name]) for name in tensors)


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=20), bucket_bytes=st.integers(8, 400))
def test_buckets_keep_order_and_size(sizes, bucket_bytes):
    layout = layout_of({str(i): (n,) for i, n in enumerate(sizes)}, torch.float32, bucket_bytes)
    buckets = buckets_of(layout)
    assert [entry for bucket in buckets for entry in bucket] == list(layout.tensors)
    for bucket in buckets:
        assert len(bucket) == 1 or sum(-(-4 * e.shape[0] // 8) * 8 for e in bucket) <= bucket_bytes


@given(words=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20), data=st.data())
def test_one_changed_word_changes_the_checksum(words, data):
    bucket = torch.tensor(words).view(torch.uint8)
    at = data.draw(st.integers(0, len(words) - 1))
    change = data.draw(st.integers(1, 255))
    damaged = bucket.clone()
    damaged[8 * at] = int(damaged[8 * at]) ^ change
    assert checksum(damaged) != checksum(bucket)


def exchange(group, layout, tensors, *, sent=1, expected=1):
    def work(rank):
        if rank == 0:
            publish(group[0], layout, sent, tensors.items())
        else:
            receive(group[rank], layout, expected, keep_on=CPU)

    return run_all(work, 3)


def test_another_version_is_refused(group):
    tensors = tensors_of(torch.float32)
    layout = layout_of({k: v.shape for k, v in tensors.items()}, torch.float32, 100)
    errors = exchange(group, layout, tensors, sent=3, expected=4)
    assert set(errors) == {1, 2}
    assert "expected version 4, received version 3" in str(errors[1])


def test_damage_on_the_way_is_noticed(group, monkeypatch):
    tensors = tensors_of(torch.float32)
    layout = layout_of({k: v.shape for k, v in tensors.items()}, torch.float32, 100)
    broadcast = group[2].broadcast

    def flip_a_bit(tensor, what):
        broadcast(tensor, what)
        if "bucket 2" in what:
            tensor[11] ^= 4

    monkeypatch.setattr(group[2], "broadcast", flip_a_bit)
    errors = exchange(group, layout, tensors)
    assert set(errors) == {2}
    assert "checksums differ in buckets [2]" in str(errors[2])


def test_a_tensor_out_of_place_is_refused(group):
    tensors = tensors_of(torch.float32)
    layout = layout_of({k: v.shape for k, v in tensors.items()}, torch.float32, 1 << 20)
    tensors["b"] = torch.zeros(4)
    errors = exchange(group, layout, tensors)
    assert "expected b (3,), the model gave b (4,)" in str(errors[0])


def test_a_sender_that_does_not_come_is_reported_in_time(group):
    layout = layout_of({"a": (4,)}, torch.float32, 100)
    start = time.monotonic()
    errors = run_all(lambda rank: receive(group[rank], layout, 1, keep_on=CPU) if rank == 1 else None, 2)
    assert isinstance(errors[1], WeightsError)
    assert "bucket 0 of version 1 did not get through within 2 s" in str(errors[1])
    assert time.monotonic() - start < 15


def test_members_that_do_not_join_are_reported():
    rendezvous = open_store("127.0.0.1", 1)
    with pytest.raises(WeightsError, match="not all 2 ranks joined"):
        UpdateGroup(rendezvous.store, rank=0, world_size=2, device=CPU, limit_s=1)
    port = open_store("127.0.0.1", 1).port
    with pytest.raises(DeadlineError, match=r"the rendezvous at 127.0.0.1"):
        connect_store("127.0.0.1", port - 1 if port > 1024 else port + 1, 1)


def test_an_address_that_is_not_this_nodes_is_named():
    with pytest.raises(UserError, match="weights.host: this node cannot be reached at '203.0.113.7': Cannot assign"):
        open_store("203.0.113.7", 1)
