"""Training continues from a checkpoint as if it had not stopped, under the same layout or another."""

import pytest
import torch

from tests.integration.trainers import make_bench

pytestmark = [pytest.mark.megatron, pytest.mark.slow]

DISTRIBUTED = {"num_ranks": 2, "distributed_optimizer": True}


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return make_bench(tmp_path_factory.mktemp("checkpoints"))


@pytest.mark.parametrize("layout", [{}, DISTRIBUTED], ids=["one rank", "DP2 with distributed optimizer"])
def test_a_resumed_trainer_is_bit_identical(bench, layout):
    bench.run([["train", "batch0.npz"], ["train", "batch1.npz"], ["export", "straight.pt"]], **layout)
    bench.run([["train", "batch0.npz"], ["save", "step1"]], **layout)
    seen = bench.run([["load", "step1"], ["train", "batch1.npz"], ["export", "resumed.pt"]], **layout)
    assert seen[0] == {"version": 7}
    straight, resumed = bench.tensors("straight.pt"), bench.tensors("resumed.pt")
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        ({"num_ranks": 2, "tensor_parallel": 2}, {}),
        (DISTRIBUTED, {}),
        (DISTRIBUTED, {"num_ranks": 2, "pipeline_parallel": 2}),
    ],
    ids=["TP2 to one rank", "DP2 distributed to one rank", "DP2 distributed to PP2"],
)
def test_a_checkpoint_loads_under_another_layout(bench, saved, loaded):
    if loaded.get("pipeline_parallel") or saved is DISTRIBUTED:
        loaded = {**loaded, "distributed_optimizer": True}
    steps = [["train", "batch0.npz"], ["save", "other"], ["train", "batch1.npz"], ["export", "straight.pt"]]
    straight = bench.run(steps, **saved)
    resumed = bench.run([["load", "other"], ["train", "batch1.npz"], ["export", "resumed.pt"]], **loaded)
    assert resumed[-1]["train/grad_norm"] == pytest.approx(straight[-1]["train/grad_norm"], rel=2e-4)
    for name, tensor in bench.tensors("straight.pt").items():
        torch.testing.assert_close(bench.tensors("resumed.pt")[name], tensor, rtol=0, atol=2e-5, msg=name)
