"""Rounded weights are near enough, in the codes that kernels take."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sestina.rollout.quantized.rounding import round_to_nearest

BFLOAT16 = 2.0**-8


@given(
    bits=st.sampled_from([4, 8]),
    group=st.sampled_from([2, 32, 128]),
    seed=st.integers(0, 2**20),
    scale=st.sampled_from([1e-6, 0.02, 1.0, 1e4]),
    shift=st.sampled_from([0.0, 0.5, -3.0]),
)
def test_no_weight_moves_by_more_than_half_a_step(bits, group, seed, scale, shift):
    generator = torch.Generator().manual_seed(seed)
    weights = scale * (torch.randn(6, 2 * group, generator=generator) + shift)
    rounded = round_to_nearest(weights, bits, group)
    groups = weights.unflatten(1, (-1, group))
    # Half a step, and what scale and zero point lose in bfloat16 over the whole range of codes.
    room = 0.5 * rounded.scales.float() + 2 * BFLOAT16 * groups.abs().amax(2)
    moved = (rounded.weights() - weights).abs().unflatten(1, (-1, group)).amax(2)
    assert (moved <= room * 1.001).all()
    least, largest = {4: (-8, 7), 8: (-127, 127)}[bits]
    assert rounded.codes.min() >= least
    assert rounded.codes.max() <= largest


def test_eight_bits_are_nearer_than_four():
    weights = torch.randn(16, 256, generator=torch.Generator().manual_seed(0))
    four, eight = ((round_to_nearest(weights, bits, 128).weights() - weights).square().mean() for bits in (4, 8))
    assert eight < four / 50


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("value", [0.0, 1.5, -2.25])
def test_equal_weights_stay_what_they_are(bits, value):
    weights = torch.full((3, 64), value)
    assert torch.allclose(round_to_nearest(weights, bits, 32).weights(), weights, rtol=0.005)
