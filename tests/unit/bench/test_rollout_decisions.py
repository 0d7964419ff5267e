from sestina.bench.rollout.decisions import GROUP_SIZE, LIMIT, Load, Rollout, measure, response_lengths
from tests.unit.bench.helpers import by_name

SMALL = Load(num_groups=40, num_instances=2, max_running=4, num_decisions=50, num_turns=3)


def test_every_scheduler_is_measured():
    lines = []
    found = by_name(measure(lines.append, SMALL))
    assert len(lines) == 3
    context = found["context, 640 requests buffered: by CPU time, median of 3"]
    assert context.must == ">= 50000"
    lowest = found["context, 640 requests buffered: by CPU time, lowest"].value
    assert 0 < lowest <= context.value <= found["context, 640 requests buffered: by CPU time, highest"].value


def test_a_rollout_keeps_every_instance_full_until_nothing_waits():
    rollout = Rollout("context", SMALL)
    tokens = sum(sum(lengths) for lengths in rollout._lengths)
    rollout.decide(500)
    assert len(rollout._running) == 8
    assert 0 < sum(sum(lengths) for lengths in rollout._lengths) < tokens


def test_lengths_are_alike_within_a_group_and_heavy_tailed_between_groups():
    lengths = response_lengths(2000)
    assert lengths == response_lengths(2000)
    assert {len(group) for group in lengths} == {GROUP_SIZE}
    means = sorted(sum(group) / GROUP_SIZE for group in lengths)
    assert means[-20] > 10 * means[1000]
    assert max(max(group) for group in lengths) <= LIMIT
