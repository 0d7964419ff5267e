"""Rejection sampling gives the model's distribution whatever was drafted, and accepts as much as can be."""

import pytest
import torch

from sestina.core.ids import RequestId
from sestina.core.noise import request_key
from sestina.rollout.noise_torch import exponentials
from sestina.rollout.quantized.rejection import Drawn, redraw

DRAWS, VOCAB = 20_000, 7


def p_value(statistic, freedom):
    """Of a chi-square test."""
    return float(torch.special.gammaincc(torch.tensor(freedom / 2).double(), statistic / 2))


def fit(tokens, p):
    """How likely tokens drawn from p are as far from it."""
    expected = p * len(tokens)
    counts = torch.bincount(tokens, minlength=VOCAB)
    return p_value(((counts - expected).square() / expected).sum(), VOCAB - 1)


@pytest.fixture(scope="module")
def keys():
    return torch.tensor([request_key(11, RequestId(i, 0)) - (1 << 63) for i in range(DRAWS)])


CASES = [(0.5, 0.3), (1.0, 0.0), (1.0, 0.3), (1.0, 3.0), (2.0, 1.0)]


@pytest.mark.parametrize(("temperature", "difference"), CASES)
def test_what_comes_is_distributed_as_the_model(keys, temperature, difference):
    """The draft is drawn with the noise of its position, as the drafter does; `difference` sets it apart."""
    generator = torch.Generator().manual_seed(4)
    model = torch.randn(VOCAB, generator=generator)
    drafter = model + difference * torch.randn(VOCAB, generator=generator)
    p, q = (torch.softmax(logits.double() / temperature, -1) for logits in (model, drafter))
    positions = torch.arange(DRAWS, dtype=torch.int32) % 50
    drafted = (exponentials(keys, positions, VOCAB) / q).argmin(-1)
    drawn = Drawn(
        tokens=drafted,
        logits=drafter.expand(DRAWS, VOCAB),
        temperature=torch.full((DRAWS,), temperature),
        keys=keys,
        positions=positions,
    )
    tokens, logprobs = redraw(model.expand(DRAWS, VOCAB), drawn)
    assert fit(tokens, p) > 0.01
    assert torch.allclose(logprobs.double(), p.log()[tokens], atol=1e-5)
    accepted = (tokens == drafted).double().mean()
    overlap = torch.minimum(p, q).sum()
    assert abs(accepted - overlap) < 4 * (overlap * (1 - overlap) / DRAWS).sqrt() + 1e-9
    if difference >= 0.3:
        assert fit(drafted, p) < 1e-6, "the test would not see drafts taken as they are"
