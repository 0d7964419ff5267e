"""Fixtures shared by every tier: a tiny model, and one thread per process."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")

import pytest
import torch
from hypothesis import settings

from sestina.models.shape import ModelShape
from sestina.models.weights import random_weights

settings.register_profile("sestina", deadline=None, max_examples=60)
settings.load_profile("sestina")
torch.set_num_threads(1)


def make_shape(**changes) -> ModelShape:
    sizes = {
        "vocab_size": 61,
        "hidden_size": 64,
        "num_layers": 3,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_size": 16,
        "ffn_size": 96,
        "max_positions": 512,
        "rope_theta": 10000.0,
        "norm_eps": 1e-6,
        "tied": True,
    }
    return ModelShape(**{**sizes, **changes})


@pytest.fixture
def shape() -> ModelShape:
    return make_shape()


@pytest.fixture
def weights(shape):
    return lively_weights(shape)


def lively_weights(shape: ModelShape, seed: int = 0, scale: float = 0.15):
    """Random weights with biases and logits far enough from zero that mistakes show."""
    tensors = random_weights(shape, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    for name, tensor in tensors.items():
        if name.endswith("norm.weight"):
            tensor += 0.1 * torch.randn(tensor.shape, generator=generator)
        else:
            tensor.copy_(scale * torch.randn(tensor.shape, generator=generator))
    return tensors
