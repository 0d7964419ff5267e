import numpy as np
import pytest
import torch

from sestina.core.ids import RequestId
from sestina.core.noise import derive, exponentials, request_key
from sestina.rollout import _native, ops_torch


def test_keys_of_different_paths_differ():
    keys = {request_key(seed, RequestId(g, s)) for seed in range(3) for g in range(40) for s in range(8)}
    keys |= {derive(seed, g) for seed in range(3) for g in range(40)}
    assert len(keys) == 3 * 40 * 8 + 3 * 40


def test_noise_is_standard_exponential_over_every_axis():
    rng = np.random.default_rng(0)
    by_entry = exponentials(int(rng.integers(1 << 62)), 3, 50_000)
    by_position = np.array([exponentials(12345, p, 1)[0] for p in range(20_000)])
    by_group = np.array([exponentials(request_key(7, RequestId(g, 1)), 5, 1)[0] for g in range(20_000)])
    for draws in (by_entry, by_position, by_group):
        assert draws.min() > 0
        # Kolmogorov-Smirnov at p = 0.001
        order = np.sort(1 - np.exp(-draws))
        distance = np.abs(order - (np.arange(len(order)) + 0.5) / len(order)).max()
        assert distance < 1.95 / len(order) ** 0.5


def test_torch_and_numpy_noise_agree():
    keys = [request_key(1, RequestId(g, g % 3)) for g in range(6)]
    positions = torch.arange(6, dtype=torch.int32) * 100
    theirs = ops_torch.exponentials(torch.from_numpy(np.array(keys, np.uint64).view(np.int64)), positions, 257)
    ours = np.stack([exponentials(k, int(p), 257) for k, p in zip(keys, positions, strict=True)])
    np.testing.assert_allclose(theirs.numpy(), ours, rtol=1e-14)


def native_sample(logits, temperature, keys, positions):
    tokens, logprobs = torch.empty(len(logits), dtype=torch.int32), torch.empty(len(logits))
    rows, vocab = logits.shape
    args = (logits.contiguous(), temperature, keys, positions)
    _native.sample(*(a.data_ptr() for a in args), rows, vocab, tokens.data_ptr(), logprobs.data_ptr())
    return tokens, logprobs


@pytest.mark.parametrize("vocab", [5, 16, 61, 300])
def test_native_draws_follow_the_definition(vocab):
    generator = torch.Generator().manual_seed(vocab)
    logits = 3 * torch.randn(500, vocab, generator=generator)
    temperature = torch.rand(500, generator=generator) + 0.3
    temperature[::7] = 0
    keys = torch.randint(-(1 << 62), 1 << 62, (500,), generator=generator)
    positions = torch.randint(0, 9000, (500,), generator=generator, dtype=torch.int32)
    tokens, logprobs = native_sample(logits, temperature, keys, positions)
    scale = torch.where(temperature > 0, temperature, 1.0)[:, None]
    expected = torch.log_softmax(logits.double() / scale, -1)
    for row in range(500):
        noise = exponentials(int(keys[row]) % (1 << 64), int(positions[row]), vocab)
        race = np.log(noise) - expected[row].numpy()
        best = int(logits[row].argmax()) if temperature[row] == 0 else int(race.argmin())
        assert int(tokens[row]) == best
    chosen = expected.gather(-1, tokens.long()[:, None])[:, 0]
    assert (logprobs - chosen).abs().max() < 2e-6


def test_native_draws_have_the_distribution_of_the_logits():
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5]).repeat(20_000, 1)
    keys = torch.from_numpy(np.array([derive(3, g) for g in range(20_000)], np.uint64).view(np.int64))
    tokens, _ = native_sample(logits, torch.full((20_000,), 0.8), keys, torch.zeros(20_000, dtype=torch.int32))
    expected = 20_000 * torch.softmax(logits[0] / 0.8, -1)
    chi_square = ((torch.bincount(tokens, minlength=5) - expected) ** 2 / expected).sum()
    assert chi_square < 18.5  # p = 0.001 with 4 degrees of freedom
