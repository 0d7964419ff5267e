"""The embedded engine against transformers' `generate`: one model, one thread, float32, the same number of tokens.

Every turn has prompts of its own, no two alike, so the engine's prefix cache spares it nothing; greedy decoding shows
that both compute the same model.
"""

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from sestina.bench.asked import at_least, at_most, stated
from sestina.bench.decoders import Decoder, EngineDecoder, GenerateDecoder, common_prefixes, decode
from sestina.bench.turns import Say, Turns, Work, take_turns
from sestina.core.units import TokenArray
from sestina.models.shape import ModelShape
from sestina.models.weights import random_weights, write_model
from sestina.telemetry.measurements import Figure

SMALL = ModelShape(
    vocab_size=80, hidden_size=128, num_layers=4, num_heads=8, num_kv_heads=1, head_size=16, ffn_size=128,
    max_positions=1024, rope_theta=10000.0, norm_eps=1e-6, tied=True,
)  # fmt: skip
"""The shape that quickstart trains."""

LARGER = ModelShape(
    vocab_size=512, hidden_size=256, num_layers=6, num_heads=8, num_kv_heads=2, head_size=32, ffn_size=512,
    max_positions=1024, rope_theta=10000.0, norm_eps=1e-6, tied=True,
)  # fmt: skip

LIVELY = 7.5
"""Times the usual deviation of random weights; below it, greedy decoding says one token over and over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model and the batches it decodes."""

    name: str
    shape: ModelShape
    speedups: Mapping[int, float | None]
    """Batch size -> speed-up asked for."""
    turns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is decoded."""

    prompt_tokens: int = 32
    new_tokens: int = 256
    greedy_batch: int = 8
    greedy_prefix: int = 32
    """Greedy tokens that must agree from the start of every response; later ones may part at a near-tie."""


CASES = (
    Case(name="quickstart model", shape=SMALL, speedups={1: 2.0, 8: None, 64: 3.0}, turns=7),
    Case(name="larger model", shape=LARGER, speedups={1: None, 8: None, 64: None}, turns=3),
)


def measure(say: Say, cases: Sequence[Case] = CASES, effort: Effort | None = None) -> list[Figure]:
    """Compare both on every case, on one thread from here on; raises RunError when one decodes too few tokens."""
    torch.set_num_threads(1)
    figures: list[Figure] = []
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder)
            write_model(directory, case.shape, _weights(case.shape).items())
            figures += _case(case, effort or Effort(), directory, say)
    return figures


def _case(case: Case, effort: Effort, directory: Path, say: Say) -> list[Figure]:
    theirs = GenerateDecoder(directory, new_tokens=effort.new_tokens)
    greedy = _greedy(case, effort, theirs, _engine(directory, effort.greedy_batch, effort), say)
    speeds: list[Figure] = []
    spared = 0
    for batch, asked in case.speedups.items():
        ours = _engine(directory, batch, effort)
        name = f"{case.name}, batch {batch}"
        turns = take_turns(
            _work(ours, case.shape, batch, effort),
            _work(theirs, case.shape, batch, effort),
            turns=case.turns,
            name=name,
            say=say,
        )
        speeds += _speeds(name, turns, batch * effort.new_tokens, asked)
        spared += ours.spared_tokens
    return [greedy, at_most(f"{case.name}: taken from the prefix cache", spared, "tokens", 0), *speeds]


def _engine(directory: Path, batch: int, effort: Effort) -> EngineDecoder:
    return EngineDecoder(directory, batch=batch, prompt_tokens=effort.prompt_tokens, new_tokens=effort.new_tokens)


def _work(decoder: Decoder, shape: ModelShape, batch: int, effort: Effort) -> Work:
    def turn(number: int) -> None:
        prompts = _prompts(shape, batch, effort.prompt_tokens, number)
        decode(decoder, prompts, 1.0, new_tokens=effort.new_tokens)

    return turn


def _speeds(name: str, turns: Turns, num_tokens: int, asked: float | None) -> list[Figure]:
    count = len(turns.speedups)
    return [
        at_least(f"{name}: engine over generate, median of {count}", turns.speedup, "x", asked),
        stated(f"{name}: lowest", min(turns.speedups), "x"),
        stated(f"{name}: highest", max(turns.speedups), "x"),
        stated(f"{name}: by CPU time, median", turns.cpu_speedup, "x"),
        stated(f"{name}: engine", num_tokens / statistics.median(s.wall_s for s in turns.ours), "tokens/s"),
        stated(f"{name}: generate", num_tokens / statistics.median(s.wall_s for s in turns.theirs), "tokens/s"),
    ]


def _greedy(case: Case, effort: Effort, theirs: Decoder, ours: Decoder, say: Say) -> Figure:
    prompts = _prompts(case.shape, effort.greedy_batch, effort.prompt_tokens, 0)
    tokens, other = (decode(decoder, prompts, 0.0, new_tokens=effort.new_tokens) for decoder in (ours, theirs))
    agreeing = common_prefixes(tokens, other)
    variety = min(len(np.unique(response)) for response in tokens)
    say(
        f"{case.name}: greedy tokens agree for {agreeing} of {effort.new_tokens}, "
        f"at least {variety} different ones in each response"
    )
    name = f"{case.name}: greedy tokens that agree, shortest of {effort.greedy_batch} responses"
    return at_least(name, min(agreeing), f"of {effort.new_tokens}", effort.greedy_prefix)


def _prompts(shape: ModelShape, batch: int, prompt_tokens: int, turn: int) -> TokenArray:
    rng = np.random.default_rng([turn, batch])
    return rng.integers(0, shape.vocab_size, (batch, prompt_tokens)).astype(np.int32)


def _weights(shape: ModelShape) -> dict[str, torch.Tensor]:
    return {name: LIVELY * w if w.ndim > 1 else w for name, w in random_weights(shape, seed=1).items()}
