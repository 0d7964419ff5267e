import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sestina.algorithms.advantages import group_advantages

NAN = float("nan")
REWARD = st.floats(-5, 5, width=32) | st.just(NAN)


def test_by_hand():
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 1.0, NAN, 0.5])
    groups = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2])
    result = group_advantages(rewards, groups, "std")
    half = 0.5 / np.sqrt(1 / 3)
    np.testing.assert_allclose(result.values, [half, -half, -half, half, 0, 0, 0, 0], rtol=1e-5)
    assert result.counted.tolist() == [True] * 6 + [False, True]
    assert (result.num_groups, result.num_equal_groups) == (3, 2)


@given(
    rewards=st.lists(st.lists(REWARD, min_size=2, max_size=6), min_size=1, max_size=5),
    scale=st.sampled_from(["std", "none"]),
)
def test_against_numpy_group_by_group(rewards, scale):
    flat = torch.tensor([r for group in rewards for r in group])
    groups = torch.tensor([i for i, group in enumerate(rewards) for _ in group])
    result = group_advantages(flat, groups, scale)
    assert result.counted.tolist() == (~flat.isnan()).tolist()
    for i, group in enumerate(rewards):
        values = result.values[groups == i].numpy()
        valid = np.array([r for r in group if not math.isnan(r)], np.float64)
        spread = valid.std(ddof=1) if len(valid) > 1 else 0.0
        if spread < 1e-6:
            assert not values.any()
            continue
        expected = [
            (r - valid.mean()) / (spread + 1e-6 if scale == "std" else 1) if not math.isnan(r) else 0.0 for r in group
        ]
        np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e6])
def test_equal_rewards_teach_nothing_whatever_their_rounding(value):
    result = group_advantages(torch.full((7,), value), torch.zeros(7, dtype=torch.long), "std")
    assert not result.values.any()
    assert result.num_equal_groups == 1
