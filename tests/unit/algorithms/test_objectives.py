"""Every objective against a dense reference in float64, written once more from the papers, and finite differences."""

import math

import pytest
import torch

from sestina.algorithms.config import DAPOConfig, GRPOConfig, GSPOConfig, PPOConfig, RLOOConfig
from sestina.algorithms.estimates import advantages
from sestina.algorithms.objective import policy_loss
from sestina.algorithms.tokens import PolicyTokens

SHARED = {
    "batch_size": 12,
    "group_size": 4,
    "minibatches": 1,
    "clip_low": 0.2,
    "clip_high": 0.28,
    "loss_mean": "token",
    "kl_coefficient": 0.0,
    "proximal": "behaviour",
    "behaviour_weight_cap": 1.4,
}
KINDS = {
    "grpo": (GRPOConfig, {"advantage_scale": "std"}),
    "ppo": (PPOConfig, {}),
    "rloo": (RLOOConfig, {}),
    "dapo": (DAPOConfig, {"dynamic_sampling": False, "overlong_tokens": 4, "overlong_penalty": 0.5}),
    "gspo": (GSPOConfig, {"advantage_scale": "none"}),
}
LENGTHS = [1, 3, 9, 12, 5, 5, 2, 7, 10, 4, 11, 6]
MAX_TOKENS = 12


def make(kind, **changes):
    config, own = KINDS[kind]
    return config(kind=kind, **{**SHARED, **own, **changes})


def rewards():
    generator = torch.Generator().manual_seed(3)
    drawn = torch.rand(len(LENGTHS), generator=generator).round(decimals=2)
    drawn[5] = math.nan
    return drawn


GROUPS = torch.arange(len(LENGTHS)) // 4


def found_advantages(config):
    lengths = torch.tensor(LENGTHS)
    return advantages(
        config, rewards=rewards(), groups=GROUPS, lengths=lengths, drawn=lengths, max_tokens=MAX_TOKENS
    ).values.double()


def dense_advantages(config):
    """One sample after the other, in Python."""
    drawn = [float(r) for r in rewards()]
    if config.kind == "dapo":
        over = [max(0, n - (MAX_TOKENS - config.overlong_tokens)) / config.overlong_tokens for n in LENGTHS]
        drawn = [r - config.overlong_penalty * min(1, x) for r, x in zip(drawn, over, strict=True)]
    if config.kind == "ppo":
        tokens = [r for r, n in zip(drawn, LENGTHS, strict=True) for _ in range(n) if not math.isnan(r)]
        mean = sum(tokens) / len(tokens)
        std = math.sqrt(sum((r - mean) ** 2 for r in tokens) / len(tokens))
        return torch.tensor([0.0 if math.isnan(r) else (r - mean) / (std + 1e-6) for r in drawn]).double()
    values = []
    for i, reward in enumerate(drawn):
        group = [r for j, r in enumerate(drawn) if j // 4 == i // 4 and not math.isnan(r)]
        others = [r for j, r in enumerate(drawn) if j // 4 == i // 4 and j != i and not math.isnan(r)]
        if math.isnan(reward):
            values.append(0.0)
        elif config.kind == "rloo":
            values.append(reward - sum(others) / len(others))
        else:
            mean = sum(group) / len(group)
            std = math.sqrt(sum((r - mean) ** 2 for r in group) / (len(group) - 1))
            values.append((reward - mean) / (std + 1e-6 if getattr(config, "advantage_scale", "std") == "std" else 1))
    return torch.tensor(values).double()


@pytest.mark.parametrize("kind", KINDS)
def test_advantages_are_those_of_the_reference(kind):
    torch.testing.assert_close(found_advantages(make(kind)), dense_advantages(make(kind)), atol=1e-6, rtol=1e-5)


def test_equal_rewards_have_no_advantage_and_do_not_blow_up():
    for kind in ("grpo", "rloo", "gspo", "ppo"):
        found = advantages(
            make(kind),
            rewards=torch.full((8,), 0.1),
            groups=torch.arange(8) // 4,
            lengths=torch.tensor([1, 2, 3, 4, 5, 6, 7, 8]),
            drawn=torch.tensor([1, 2, 3, 4, 5, 6, 7, 8]),
            max_tokens=MAX_TOKENS,
        )
        assert not found.values.any()
        assert found.num_equal_groups == 2


def test_observed_tokens_are_of_the_length_and_not_of_the_mean():
    def found(kind, drawn):
        lengths = torch.tensor([MAX_TOKENS, 4, 4, 4])
        given = {"rewards": torch.tensor([1.0, 0, 0, 0]), "groups": torch.zeros(4, dtype=torch.long)}
        return advantages(make(kind), **given, lengths=lengths, drawn=drawn, max_tokens=MAX_TOKENS).values

    whole, part = torch.tensor([MAX_TOKENS, 4, 4, 4]), torch.tensor([1, 4, 4, 4])
    assert not torch.equal(found("ppo", whole), found("ppo", part)), "normalised over the tokens that are trained on"
    assert torch.equal(found("dapo", whole), found("dapo", part)), "the limit is of the whole response"


class Packed:
    """Sequences of a prompt position and their responses, as a micro-batch holds them."""

    def __init__(self, values, *, spread=0.25):
        generator = torch.Generator().manual_seed(9)

        def noise():
            return spread * torch.randn(sum(LENGTHS) + len(LENGTHS), generator=generator, dtype=torch.float64)

        self.sequences = torch.cat([torch.full((n + 1,), i) for i, n in enumerate(LENGTHS)])
        self.weights = torch.cat([torch.tensor([0.0] + [1.0] * n) for n in LENGTHS]).double()
        self.weights[self.sequences == 5] = 0  # its reward failed
        self.advantages = values[self.sequences]
        self.behaviour = -1 + noise()
        self.proximal = self.behaviour + noise()
        self.logprobs = self.proximal + noise()
        self.ages = torch.randint(0, 5, self.behaviour.shape, generator=generator).double()

    def tokens(self):
        return PolicyTokens(
            weights=self.weights,
            advantages=self.advantages,
            sampled_logprobs=self.behaviour,
            proximal_logprobs=self.proximal,
            ages=self.ages,
            sequences=self.sequences,
        )

    def loss(self, config, logprobs):
        return policy_loss(logprobs, torch.zeros_like(logprobs), self.tokens(), config)[0]


def dense_loss(packed, config, logprobs, frozen):
    """Token by token; `frozen`: logprobs where the paper takes no gradient."""
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(logprobs)):
        if not packed.weights[i]:
            continue
        behaviour, age = packed.behaviour[i], packed.ages[i]
        match config.proximal:
            case "behaviour":
                proximal = behaviour
            case "recomputed":
                proximal = packed.proximal[i]
            case "loglinear":
                proximal = behaviour + age / (age + 1) * (frozen[i] - behaviour)
        ratio = (logprobs[i] - proximal).exp()
        if config.kind == "gspo":
            own = [j for j in range(len(logprobs)) if packed.sequences[j] == packed.sequences[i] and packed.weights[j]]
            anchors = packed.behaviour if config.proximal == "behaviour" else packed.proximal
            mean = sum(float(frozen[j] - anchors[j]) for j in own) / len(own)
            ratio = math.exp(mean) * (logprobs[i] - frozen[i]).exp()
        advantage = packed.advantages[i]
        bounded = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
        weight = min(math.exp(proximal - behaviour), config.behaviour_weight_cap)
        total = total - packed.weights[i] * weight * torch.minimum(ratio * advantage, bounded * advantage)
    return total


CASES = [(kind, proximal) for kind in KINDS for proximal in ("behaviour", "recomputed", "loglinear")]
CASES.remove(("gspo", "loglinear"))


@pytest.mark.parametrize(("kind", "proximal"), CASES)
def test_losses_and_gradients_are_those_of_the_reference(kind, proximal):
    config = make(kind, proximal=proximal)
    packed = Packed(dense_advantages(config))
    found, expected = (packed.logprobs.clone().requires_grad_() for _ in range(2))
    loss = packed.loss(config, found)
    reference = dense_loss(packed, config, expected, packed.logprobs)
    torch.testing.assert_close(loss, reference)
    loss.backward()
    reference.backward()
    torch.testing.assert_close(found.grad, expected.grad)
    assert not found.grad[packed.weights == 0].any()


@pytest.mark.parametrize(("kind", "proximal"), CASES)
def test_gradients_are_those_of_finite_differences(kind, proximal):
    config = make(kind, proximal=proximal)
    packed = Packed(dense_advantages(config))
    logprobs = packed.logprobs.clone().requires_grad_()
    packed.loss(config, logprobs).backward()
    step = 1e-6
    for i in range(0, len(logprobs), 8):
        nudge = torch.zeros_like(packed.logprobs)
        nudge[i] = step
        up, down = (dense_loss(packed, config, packed.logprobs + s * nudge, packed.logprobs) for s in (1, -1))
        assert float(logprobs.grad[i]) == pytest.approx(float(up - down) / (2 * step), abs=1e-7)


def test_a_response_clipped_as_a_whole_is_the_sequence_objective():
    """GSPO, equation 5, written with whole responses: the sum over a response's tokens has its value and gradient."""
    config = make("gspo", clip_low=0.05, clip_high=0.06, loss_mean="sequence")
    packed = Packed(dense_advantages(config))
    lengths = torch.tensor(LENGTHS).double()[packed.sequences]
    packed.weights = packed.weights / lengths
    found, whole = (packed.logprobs.clone().requires_grad_() for _ in range(2))
    packed.loss(config, found).backward()
    total = torch.zeros((), dtype=torch.float64)
    for number in range(len(LENGTHS)):
        own = (packed.sequences == number) & (packed.weights > 0)
        if own.any():
            ratio = ((whole - packed.behaviour)[own].mean()).exp()
            advantage = packed.advantages[own][0]
            total = total - torch.minimum(ratio * advantage, ratio.clamp(0.95, 1.06) * advantage)
    total.backward()
    torch.testing.assert_close(packed.loss(config, packed.logprobs), total.detach())
    torch.testing.assert_close(found.grad, whole.grad)


def test_fresh_tokens_make_both_proximal_policies_the_same():
    """On the weights that sampled, pi_prox is pi_behave: recomputing and the line agree, and weigh nothing."""
    packed = Packed(dense_advantages(make("ppo")))
    packed.ages.zero_()
    packed.proximal = packed.behaviour
    losses = [packed.loss(make("ppo", proximal=p), packed.logprobs) for p in ("behaviour", "recomputed", "loglinear")]
    assert losses[0] == losses[1] == losses[2]


def test_the_cap_is_logged():
    config = make("ppo", proximal="recomputed")
    packed = Packed(dense_advantages(config), spread=0.6)
    _, sums = policy_loss(packed.logprobs, torch.zeros_like(packed.logprobs), packed.tokens(), config)
    raw = (packed.proximal - packed.behaviour).exp()[packed.weights > 0]
    assert sums["behaviour_weight_capped"] == (raw >= 1.4).sum()
    assert sums["behaviour_weight"].item() == pytest.approx(raw.clamp(max=1.4).sum().item())
    assert 0 < sums["behaviour_weight_capped"] < len(raw)


def test_the_difference_to_the_rollout_is_taken_where_the_weights_are_the_same():
    packed = Packed(dense_advantages(make("ppo")))
    tokens = packed.tokens()
    _, sums = policy_loss(packed.logprobs, torch.zeros_like(packed.logprobs), tokens, make("ppo"))
    fresh = (packed.weights > 0) & (packed.ages == 0)
    assert sums["fresh_token_ratio"] == fresh.sum()
    gap = (packed.logprobs - packed.behaviour)[fresh].abs().sum()
    assert sums["train_rollout_logprob_abs_diff"].item() == pytest.approx(gap.item())
