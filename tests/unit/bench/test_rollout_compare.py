from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from sestina.bench.rollout.compare import BASELINE, Plan, _check_equal, compare, figures_of
from sestina.bench.rollout.picture import draw
from sestina.bench.rollout.workload import MOONLIGHT, QWEN2_VL, evenly_bound
from sestina.core.errors import RunError
from sestina.policies.events import BatchOffered, GroupSpec, InstanceUp
from sestina.policies.planner import build_planner
from tests.unit.bench.helpers import by_name

TINY = replace(QWEN2_VL, num_groups=4, group_size=4, mean_tokens=20, max_tokens=60, chunk_tokens=16)
PLAN = Plan(
    workloads=(TINY,), ways=(BASELINE, "divided", "context", "oracle", "context, KV pool"), seeds=(1,), num_instances=2
)


@pytest.mark.parametrize("workload", [QWEN2_VL, MOONLIGHT])
def test_lengths_have_the_mean_and_the_longest_that_are_asked(workload):
    lengths = np.array(workload.lengths(3))
    assert lengths.shape == (workload.num_groups, workload.group_size)
    assert lengths.mean() == pytest.approx(workload.mean_tokens, rel=0.02)
    assert lengths.max() == workload.max_tokens
    assert lengths.min() >= 1
    logs = np.log(lengths)
    assert logs.mean(axis=1).std() > 1.5 * logs.std(axis=1).mean(), "members of a group are alike"


def test_the_baseline_binds_as_many_groups_to_each_instance():
    numbers = evenly_bound(12, 4, seed=9)
    planner = build_planner("group", chunk_tokens=1, seed=9)
    for instance in range(4):
        planner.handle(InstanceUp(instance=instance, kv_capacity_tokens=64, page_tokens=16, max_running=1), 0.0)
    groups = tuple(GroupSpec(group=n, prompt_tokens=1, num_samples=1, max_new_tokens=1) for n in numbers)
    bound = Counter(command.instance for command in planner.handle(BatchOffered(batch=0, groups=groups), 0.0))
    assert bound == {0: 3, 1: 3, 2: 3, 3: 3}


def test_ways_are_compared_and_drawn(tmp_path):
    lines = []
    outturns = compare(PLAN, lines.append)
    assert len(lines) == 5
    found = by_name(list(figures_of(outturns)))
    gain = found["Qwen2-VL-72B: divided over group, throughput, median of 1 seeds"]
    base, divided = (outturns["Qwen2-VL-72B"][way][0] for way in (BASELINE, "divided"))
    assert gain.value == pytest.approx(base.makespan_s / divided.makespan_s)
    assert (gain.must, gain.met) == (">= 1.3", gain.value >= 1.3)
    assert found["Qwen2-VL-72B: context, preemptions"].value == 0
    pooled = "Qwen2-VL-72B: context, KV pool"
    assert found[f"{pooled}, resumed chunks"].value > 0
    assert found[f"{pooled}, resumed chunks that prefilled again, all seeds"].value == 0
    assert found[f"{pooled}, moved"].value > 0
    assert found[f"{pooled}, share of the instances' time that moving took"].must == "<= 0.01"
    assert "Qwen2-VL-72B: context over oracle, throughput" in found
    assert base.tokens == np.sum(TINY.lengths(1))
    assert draw(outturns, tmp_path / "made" / "rollout.png").read_bytes().startswith(b"\x89PNG")
    other = replace(divided, tokens_crc32=divided.tokens_crc32 + 1)
    with pytest.raises(RunError, match="Qwen2-VL-72B: tokens differ between ways of scheduling"):
        _check_equal("Qwen2-VL-72B", {BASELINE: [base], "divided": [other]})
