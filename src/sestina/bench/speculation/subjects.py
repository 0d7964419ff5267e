"""The models that rollouts are decoded with.

The larger one, and that of `bench.rollout.drafted`, has random weights, and text that can be drafted all the same: its
embedding is louder than what its layers add to it, and the row of its output for the successor of a token, in a fixed
cycle of all tokens, points along that token's embedding. At temperature 1 a token is followed by its successor about
FOLLOW of the time, by any other one else. What a response has said is therefore said again by its siblings; all
arithmetic of a model of this size is done.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from sestina.bench.speculation.lengths import Cut, Stretched
from sestina.models.shape import ModelShape
from sestina.models.weights import random_weights, write_model
from sestina.rollout.speculation.config import Source

BUILT_IN_MODEL = Path("assets/sums")
FOLLOW = 0.95
LOUD = 250.0
"""Times the usual deviation, of the embedding."""

SHAPE_60M = ModelShape(
    vocab_size=64, hidden_size=640, num_layers=14, num_heads=10, num_kv_heads=2, head_size=64, ffn_size=1792,
    max_positions=1024, rope_theta=10000.0, norm_eps=1e-6, tied=False,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model, and the rollouts it decodes."""

    name: str
    write: Callable[[Path], Path]
    """Returns the directory of the model, written into the folder given unless it lies elsewhere."""
    vocab_size: int
    batches: tuple[int, ...]
    gains: bool = False
    """Whether grouped drafts are to gain, and not only to lose nothing."""
    lengths: Cut | Stretched
    waves: int
    """Responses over the batch."""
    least: int = 4
    """Responses of the smallest rollout: a short one is no longer than what beginning it takes."""
    turns: int
    group_size: int = 8
    sources: tuple[Source, ...] = ("self", "grouped", "history", "quantized")


def write_chain(folder: Path, shape: ModelShape | None = None) -> Path:
    """Write a model whose text can be drafted, of 60 M parameters unless `shape` says otherwise; returns `folder`."""
    shape = shape or SHAPE_60M
    tensors = random_weights(shape, seed=1)
    embedding = tensors["model.embed_tokens.weight"]
    embedding *= LOUD
    order = torch.randperm(shape.vocab_size, generator=torch.Generator().manual_seed(2))
    gain = math.log(FOLLOW / (1 - FOLLOW) * shape.vocab_size)
    head = torch.empty_like(embedding)
    towards = embedding / embedding.norm(dim=1, keepdim=True)
    head[order.roll(-1)] = towards[order] * gain / math.sqrt(shape.hidden_size)
    write_model(folder, shape, (tensors | {"lm_head.weight": head}).items())
    return folder


BUILT_IN = Subject(
    name="built-in model",
    write=lambda folder: BUILT_IN_MODEL,
    vocab_size=80,
    batches=(1, 4, 16, 64, 128),
    lengths=Cut(median_tokens=48, most_tokens=400),
    waves=4,
    least=64,
    turns=3,
)
CHAIN = Subject(
    name="60 M parameters",
    write=write_chain,
    vocab_size=SHAPE_60M.vocab_size,
    batches=(1, 8, 64),
    lengths=Cut(median_tokens=40, most_tokens=192),
    waves=1,
    turns=1,
)
WHOLE = Subject(
    name="60 M parameters, whole rollout",
    write=write_chain,
    vocab_size=SHAPE_60M.vocab_size,
    batches=(64,),
    gains=True,
    lengths=Stretched(mean_tokens=60, longest_over_mean=5.4),
    waves=1,
    turns=3,
    group_size=16,
    sources=("grouped",),
)
"""Four groups with the size and the tail of Seer's Qwen2-VL-72B (arXiv 2511.14617v3, table 3); some 140 s of CPU."""
