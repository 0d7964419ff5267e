import pytest

from sestina.policies.context import FAIR_EVERY
from sestina.policies.events import GroupSpec, InstanceUp
from sestina.policies.instances import Instances
from sestina.policies.planner import build_planner
from sestina.policies.request_buffer import RequestBuffer

NUM_GROUPS, NUM_SAMPLES = 4, 4
assert NUM_GROUPS * NUM_SAMPLES < FAIR_EVERY


@pytest.mark.parametrize("kind", ["divided", "context", "oracle"])
def test_what_comes_next_is_foretold_in_order(kind):
    scheduler = build_planner(kind, chunk_tokens=8, seed=0)._scheduler
    buffer, instances = RequestBuffer(), Instances()
    instances.add(InstanceUp(instance=0, kv_capacity_tokens=10**6, page_tokens=16, max_running=100))
    entries = []
    for number in range(NUM_GROUPS):
        lengths = tuple(10 * (number + 2) % 37 + sample for sample in range(NUM_SAMPLES))
        entries += buffer.add(
            0,
            GroupSpec(
                group=number, prompt_tokens=5, num_samples=NUM_SAMPLES, max_new_tokens=90 + number, lengths=lengths
            ),
        )
    for number, entry in enumerate(entries):
        entry.generated_tokens = number * 7 % 11
        scheduler.push(entry)
    assert [e.id for e in scheduler.upcoming(3)] == [e.id for e in scheduler.upcoming(100)][:3]
    foretold = [e.id for e in scheduler.upcoming(100)]
    placed = []
    while (placement := scheduler.next(instances)) is not None:
        placed.append(placement.entry.id)
    assert len(placed) == len(entries)
    assert foretold == placed
    assert scheduler.upcoming(3) == []


def test_a_group_scheduler_lets_nobody_wait():
    planner = build_planner("group", chunk_tokens=8, seed=0)
    assert planner.upcoming(3) == []
