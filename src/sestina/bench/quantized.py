"""The quantised drafter against none: what a step takes, what is accepted, tokens per second.

The built-in task with its model, and at forced lengths a model of 60 million random weights, which agree with their
rounded ones less than trained weights do. Drafts of 5 in every step. Coupled tokens must equal those without drafts.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from sestina.bench.asked import stated
from sestina.bench.turns import Say
from sestina.core.errors import RunError
from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest, ChunkResult
from sestina.core.units import Seconds, TokenArray
from sestina.data.prompt_set import encode
from sestina.data.sums import SumsGenerator
from sestina.models.shape import ModelShape, read_shape
from sestina.models.tokenizer import Tokenizer
from sestina.models.weights import random_weights, read_weights
from sestina.rollout.config import TorchEngineConfig
from sestina.rollout.quantized.speculator import QuantizedSpeculator
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.torch_engine import TorchEngine
from sestina.telemetry.measurements import Figure

SMALL = Path("assets/sums")
LARGER = ModelShape(
    vocab_size=4096, hidden_size=768, num_layers=9, num_heads=12, num_kv_heads=4, head_size=64, ffn_size=2048,
    max_positions=1024, rope_theta=10000.0, norm_eps=1e-6, tied=True,
)  # fmt: skip
LIVELY = 2.0
"""Times the usual deviation of random weights, so that some tokens are likelier than others."""

BATCHES = (1, 8)
TURNS = 5
PROMPT_TOKENS = 16

FOUR = DraftConfig(
    source="quantized", length="fixed", toggle="always", guard=False, max_tokens=5, paths=1, min_token_prob=0.0
)
WAYS: Mapping[str, DraftConfig | None] = {
    "none": None,
    "4 bits": FOUR,
    "4 bits, rejection": replace(FOUR, acceptance="rejection"),
    "8 bits": replace(FOUR, bits=8),
    "8 bits, rejection": replace(FOUR, bits=8, acceptance="rejection"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model and what it decodes."""

    name: str
    shape: ModelShape
    weights: Mapping[str, torch.Tensor]
    prompts: Sequence[TokenArray]
    new_tokens: int
    stop_token: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """What one turn came to."""

    results: dict[RequestId, ChunkResult]
    steps_s: list[Seconds]

    @property
    def acceptance(self) -> float:
        """Accepted over drafted tokens."""
        drafted, accepted = (
            sum(getattr(result, name) for result in self.results.values())
            for name in ("drafted_tokens", "accepted_tokens")
        )
        return accepted / drafted


def measure(say: Say) -> list[Figure]:
    """Take the turns of both models at every batch; raises RunError when coupled drafts change a token."""
    torch.set_num_threads(1)
    return [figure for case in (_built_in(), _larger()) for figure in _case(case, say)]


def _built_in() -> Case:
    shape = read_shape(SMALL)
    tokenizer = Tokenizer(SMALL, model_vocab_size=shape.vocab_size)
    generator = SumsGenerator(seed=7, max_terms=52, tail=1.1, held_out=False)  # lengths of conf/data/sums.yaml
    prompts = encode(generator.prompts(TURNS * max(BATCHES)), tokenizer, max_prompt_tokens=512)
    return Case(
        name="built-in model",
        shape=shape,
        weights=read_weights(SMALL, shape),
        prompts=[prompt.tokens for prompt in prompts],
        new_tokens=400,
        stop_token=tokenizer.eos_id,
    )


def _larger() -> Case:
    rng = np.random.default_rng(1)
    prompts = rng.integers(0, LARGER.vocab_size, (TURNS * max(BATCHES), PROMPT_TOKENS)).astype(np.int32)
    return Case(
        name="60 M model",
        shape=LARGER,
        weights={name: LIVELY * w if w.ndim > 1 else w for name, w in random_weights(LARGER, seed=1).items()},
        prompts=list(prompts),
        new_tokens=40,
        stop_token=-1,
    )


def _case(case: Case, say: Say) -> list[Figure]:
    name = case.name
    engines = {way: _engine(case, draft) for way, draft in WAYS.items()}
    for way, engine in engines.items():
        say(f"{name}, {way}: {engine.info().drafter or 'no drafter'}")
    figures: list[Figure] = []
    for batch in BATCHES:
        turns = [_turn(engines, case, batch, turn) for turn in range(TURNS)]
        figures += _figures(f"{name}, batch {batch}", turns)
        say(", ".join(f"{figure.name}: {figure.value:.3g}" for figure in figures[-len(WAYS) :]))
    return figures


def _turn(engines: Mapping[str, TorchEngine], case: Case, batch: int, turn: int) -> dict[str, Decoded]:
    asked = [
        ChunkRequest(
            id=RequestId(turn, sample),
            prompt=case.prompts[turn * batch + sample],
            generated=np.zeros(0, np.int32),
            max_tokens=case.new_tokens,
            max_new_tokens=case.new_tokens,
            temperature=1.0,
        )
        for sample in range(batch)
    ]
    names = list(engines)
    ordered = names[turn % len(names) :] + names[: turn % len(names)]
    taken = {way: _decode(engines[way], asked) for way in ordered}
    for way in (way for way in names if "rejection" not in way):
        for id, result in taken[way].results.items():
            if not np.array_equal(result.tokens, taken["none"].results[id].tokens):
                raise RunError(f"{way}: response {id} has other tokens than without drafts")
    return taken


def _decode(engine: TorchEngine, requests: list[ChunkRequest]) -> Decoded:
    results: dict[RequestId, ChunkResult] = {}
    steps_s: list[Seconds] = []
    for request in requests:
        engine.submit(request)
    while not engine.idle:
        began_s = time.perf_counter()
        results |= {result.id: result for result in engine.step()}
        steps_s.append(time.perf_counter() - began_s)
    return Decoded(results, steps_s)


def _figures(name: str, turns: list[dict[str, Decoded]]) -> list[Figure]:
    figures: list[Figure] = []
    for way in WAYS:
        step_s = statistics.median(s for turn in turns for s in turn[way].steps_s[1:])
        figures.append(stated(f"{name}, {way}: step", 1e3 * step_s, "ms"))
        if way == "none":
            continue
        ratios = [sum(turn["none"].steps_s) / sum(turn[way].steps_s) for turn in turns]
        figures += [
            stated(f"{name}, {way}: accepted of drafted", statistics.mean(turn[way].acceptance for turn in turns), ""),
            stated(f"{name}, {way}: over none, median of {len(turns)} turns", statistics.median(ratios), "x"),
            stated(f"{name}, {way}: over none, lowest", min(ratios), "x"),
            stated(f"{name}, {way}: over none, highest", max(ratios), "x"),
        ]
    return figures


def _engine(case: Case, draft: DraftConfig | None) -> TorchEngine:
    config = TorchEngineConfig(
        kind="torch", device="cpu", dtype="float32", kv_capacity_tokens=8192, max_running=8, max_step_tokens=256
    )
    drafter = None if draft is None else partial(QuantizedSpeculator, draft)
    engine = TorchEngine(
        config, case.shape, max_context_tokens=1024, seed=1, stop_token=case.stop_token, drafter=drafter
    )
    engine.load_weights(0, case.weights)
    return engine
