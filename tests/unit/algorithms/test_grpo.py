import dataclasses

import pytest
import torch

from sestina.algorithms.config import GRPOConfig
from sestina.algorithms.objective import policy_loss
from sestina.algorithms.tokens import PolicyTokens

CONFIG = GRPOConfig(
    kind="grpo",
    batch_size=8,
    group_size=4,
    minibatches=1,
    clip_low=0.2,
    clip_high=0.3,
    advantage_scale="std",
    loss_mean="token",
    kl_coefficient=0.0,
    proximal="behaviour",
    behaviour_weight_cap=5.0,
)


def make(log_ratio, advantages, weights=None, reference=None):
    sampled = torch.full((len(log_ratio),), -1.0, dtype=torch.float64)
    logprobs = (sampled + torch.tensor(log_ratio, dtype=torch.float64)).requires_grad_()
    tokens = PolicyTokens(
        weights=torch.tensor(weights or [1.0] * len(log_ratio), dtype=torch.float64),
        advantages=torch.tensor(advantages, dtype=torch.float64),
        sampled_logprobs=sampled,
        reference_logprobs=None if reference is None else torch.tensor(reference, dtype=torch.float64),
    )
    return logprobs, tokens


def loss_of(logprobs, tokens, config=CONFIG):
    return policy_loss(logprobs, torch.ones_like(logprobs), tokens, config)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "moves"),
    [
        (1.0, 2.0, -2.0, True),
        (1.5, 2.0, -2.6, False),  # clipped above: no gradient
        (1.5, -2.0, 3.0, True),  # the bad one is never clipped above
        (0.5, 2.0, -1.0, True),
        (0.5, -2.0, 1.6, False),
    ],
)
def test_the_clip_bounds_the_gain_and_never_the_loss(ratio, advantage, loss, moves):
    logprobs, tokens = make([float(torch.tensor(ratio).double().log())], [advantage])
    value, sums = loss_of(logprobs, tokens)
    value.backward()
    assert value.item() == pytest.approx(loss)
    assert bool(logprobs.grad) is moves
    assert sums["pg_clipfrac"].item() == (not moves)


def test_tokens_without_weight_change_nothing_even_when_their_logprobs_are_wild():
    logprobs, tokens = make([0.1, 80.0], [1.0, 1.0], weights=[1.0, 0.0])
    value, sums = loss_of(logprobs, tokens)
    value.backward()
    assert value.item() == pytest.approx(-torch.tensor(0.1).exp().item(), rel=1e-6)
    assert logprobs.grad[1] == 0
    assert sums["response_tokens"] == 1
    assert sums["train_rollout_logprob_abs_diff"].item() == pytest.approx(0.1)


def test_weights_scale_the_loss_and_not_the_metrics():
    logprobs, tokens = make([0.0, 0.0], [1.0, 3.0], weights=[0.25, 0.5])
    value, sums = loss_of(logprobs, tokens)
    assert value.item() == pytest.approx(-(0.25 + 1.5))
    assert sums["response_tokens"] == 2


def test_the_penalty_is_zero_at_the_reference_and_grows_away_from_it():
    config = dataclasses.replace(CONFIG, kl_coefficient=0.5)
    logprobs, tokens = make([0.0, 0.0], [0.0, 0.0], reference=[-1.0, -2.0])
    value, sums = loss_of(logprobs, tokens, config)
    value.backward()
    gap = torch.tensor(-1.0).exp().item() + 1 - 1
    assert value.item() == pytest.approx(0.5 * gap)
    assert sums["kl_to_reference"].item() == pytest.approx(gap)
    torch.testing.assert_close(logprobs.grad, torch.tensor([0.0, 0.5 * (1 - torch.tensor(-1.0).exp().item())]).double())
