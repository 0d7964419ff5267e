import pytest
import torch
import torch.distributed as dist

from sestina.trainer.logprobs import logprobs_and_entropy


@pytest.fixture(scope="module")
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_against_dense_float64(group, temperature, scale):
    generator = torch.Generator().manual_seed(0)
    logits = (scale * torch.randn(40, 17, generator=generator)).requires_grad_()
    targets = torch.randint(0, 17, (40,), generator=generator)
    exact = logits.detach().double().requires_grad_()
    table = (exact / temperature).log_softmax(-1)
    expected = table.gather(-1, targets[:, None])[:, 0]
    weights = torch.randn(40, generator=generator)
    (expected * weights).sum().backward()
    before = logits.detach().clone()
    logprobs, entropy = logprobs_and_entropy(logits, targets, temperature=temperature, group=group)
    (logprobs * weights).sum().backward()
    torch.testing.assert_close(logprobs.double(), expected, rtol=1e-6, atol=2e-5)
    torch.testing.assert_close(entropy.double(), -(table.exp() * table).sum(-1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logits.grad.double(), exact.grad, rtol=1e-4, atol=1e-6)
    assert torch.equal(logits, before)
    assert not entropy.requires_grad
