"""From identical weights, every parallel layout gives the same losses, gradient norms and weights."""

import numpy as np
import pytest
import torch
from transformers import Qwen2ForCausalLM

from tests.integration.cases import load_batch
from tests.integration.trainers import make_bench, sequence_logprobs

pytestmark = pytest.mark.megatron
SLOW = pytest.mark.slow

TRAIN = [["train", f"batch{i}.npz"] for i in range(3)]
LAYOUTS = {
    "TP2": {"num_ranks": 2, "tensor_parallel": 2},
    "TP2 with sequence parallelism": {"num_ranks": 2, "tensor_parallel": 2, "sequence_parallel": True},
    "PP2": {"num_ranks": 2, "pipeline_parallel": 2},
    "DP2": {"num_ranks": 2},
    "DP2 with distributed optimizer": {"num_ranks": 2, "distributed_optimizer": True},
    "recompute": {"recompute": "full"},
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return make_bench(tmp_path_factory.mktemp("trainers"))


@pytest.fixture(scope="module")
def one_rank(bench):
    seen = bench.run([["export", "before.pt"], *TRAIN, ["export", "after.pt"]])
    return seen, bench.tensors("before.pt"), bench.tensors("after.pt")


FAST = ("TP2 with sequence parallelism", "DP2 with distributed optimizer")


@pytest.mark.parametrize("layout", [name if name in FAST else pytest.param(name, marks=SLOW) for name in LAYOUTS])
def test_layouts_agree_on_loss_gradient_norm_and_weights(bench, one_rank, layout):
    expected, before, after = one_rank
    seen = bench.run([["export", "b.pt"], *TRAIN, ["export", "a.pt"]], **LAYOUTS[layout])
    for step, (found, wanted) in enumerate(zip(seen, expected, strict=True)):
        assert found.keys() == wanted.keys()
        for name in wanted:
            assert found[name] == pytest.approx(wanted[name], rel=2e-4, abs=2e-6), f"{name} of step {step}"
    weights = bench.tensors("b.pt")
    assert list(weights) == list(before)
    assert all(torch.equal(weights[name], before[name]) for name in before)
    trained = bench.tensors("a.pt")
    for name, tensor in after.items():
        torch.testing.assert_close(trained[name], tensor, rtol=0, atol=4e-6, msg=name)


def test_training_moves_every_tensor(one_rank):
    _, before, after = one_rank
    assert all(not torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("loss_mean", "kl_coefficient"),
    [
        ("token", 0.4),
        pytest.param("sequence", 0.0, marks=SLOW),
        pytest.param("token", 0.0, marks=SLOW),
        pytest.param("sequence", 0.4, marks=SLOW),
    ],
)
def test_the_gradient_is_that_of_a_dense_float64_reference(bench, loss_mean, kl_coefficient):
    algorithm = {"loss_mean": loss_mean, "kl_coefficient": kl_coefficient}
    steps = [["train", "batch1.npz"], ["export", "weights.pt"], ["gradients", "gradients.pt"]]
    bench.run(steps, algorithm=algorithm)
    found = bench.tensors("gradients.pt.0")
    initial = Qwen2ForCausalLM.from_pretrained(bench.folder / "model").double()
    reference = Qwen2ForCausalLM.from_pretrained(bench.folder / "model")
    reference.load_state_dict(bench.tensors("weights.pt"), strict=False)
    reference.double()
    batch = load_batch(bench.folder / "batch0.npz")
    dense_loss(reference, initial, batch, loss_mean, kl_coefficient).backward()
    for name, parameter in reference.named_parameters():
        expected = parameter.grad
        scale = expected.abs().max().item()
        torch.testing.assert_close(found[name].double(), expected, rtol=1e-3, atol=2e-5 * scale + 1e-7, msg=name)


@SLOW
@pytest.mark.parametrize("layout", ["TP2", "PP2"])
def test_gradients_agree_tensor_by_tensor(bench, layout):
    bench.run([["gradients", "one.pt"]])
    bench.run([["gradients", "two.pt"]], **LAYOUTS[layout])
    one, two = bench.tensors("one.pt.0"), bench.tensors("two.pt.0")
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-3, atol=1e-6, msg=name)


def dense_loss(model, initial, batch, loss_mean, kl_coefficient):
    """GRPO written out sample by sample."""
    starts = np.concatenate([[0], np.cumsum(batch.prompt_lengths + batch.response_lengths)])
    drawn = np.concatenate([[0], np.cumsum(batch.response_lengths)])
    losses, tokens, sequences = [], 0, 0
    for i, reward in enumerate(batch.rewards):
        group = batch.rewards[batch.groups == batch.groups[i]].astype(np.float64)
        group = group[~np.isnan(group)]
        if np.isnan(reward):
            continue
        spread = group.std(ddof=1)
        advantage = (reward - group.mean()) / (spread + 1e-6) if spread else 0.0
        sequence, first = batch.tokens[starts[i] : starts[i + 1]], batch.prompt_lengths[i] - 1
        logprobs = sequence_logprobs(model, sequence)[first:]
        gap = sequence_logprobs(initial, sequence)[first:].detach() - logprobs
        sampled = torch.from_numpy(batch.logprobs[drawn[i] : drawn[i + 1]]).double()
        ratio = (logprobs - sampled).exp()
        loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.3) * advantage) + kl_coefficient * (
            gap.exp() - gap - 1
        )
        losses.append(loss.sum() if loss_mean == "token" else loss.mean())
        tokens, sequences = tokens + len(loss), sequences + 1
    return sum(losses) / (tokens if loss_mean == "token" else sequences)
