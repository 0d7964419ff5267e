import dataclasses

from sestina.bench import simulator
from sestina.bench.simulator import ITERATIONS, config_of, grown, measure
from tests.unit.bench.helpers import by_name


def test_iterations_are_those_of_the_paper():
    qwen, kimi = (config_of(iteration) for iteration in ITERATIONS)
    assert (qwen.algorithm.batch_size, qwen.rollout.num_instances, qwen.rollout.expected_tokens) == (9600, 16, 7615)
    assert (kimi.algorithm.batch_size, kimi.rollout.expected_tokens) == (6400, 38959)
    million = grown(1_000_000, 4096)
    assert (million.algorithm.batch_size, million.rollout.num_instances) == (1_000_000, 4096)


def test_every_figure_is_taken(monkeypatch):
    monkeypatch.setattr(simulator, "TURNS", 1)
    small = dataclasses.replace(
        ITERATIONS[0], overrides=(*ITERATIONS[0].overrides, "algorithm.batch_size=1024"), schedulers=("context",)
    )
    lines = []
    found = by_name(measure(lines.append, [small], [(256, 2)]))
    assert len(lines) == 2
    assert found["Qwen2-VL-72B, context: CPU time, median of 1"].met
    assert found["growth, 256 requests on 2 instances: memory"].met
    assert found["growth, 256 requests on 2 instances: CPU time for each chunk"].value > 0
