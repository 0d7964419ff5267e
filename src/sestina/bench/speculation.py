"""Drafting in the embedded engine against none: a rollout of the built-in task at several batches, tokens held equal.

Groups of 8 responses at temperature 1 with the lengths that they come to have, so that a batch empties over a long
tail. `adaptive` is the marginal-benefit length under the guard, which is to lose nothing; `always` drafts 8 tokens in
every step. Ways are taken in turns, so that what else the machine does falls on all.
"""

import dataclasses
import statistics
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from sestina.bench.asked import at_least, stated
from sestina.bench.turns import Say
from sestina.core.errors import RunError
from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest, ChunkResult
from sestina.core.units import Seconds, TokenArray
from sestina.data.prompt_set import encode
from sestina.data.sums import SumsGenerator
from sestina.models.shape import ModelShape, read_shape
from sestina.models.tokenizer import Tokenizer
from sestina.models.weights import read_weights
from sestina.rollout.config import TorchEngineConfig
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.suffix import SuffixSpeculator
from sestina.rollout.torch_engine import TorchEngine
from sestina.telemetry.measurements import Figure

MODEL = Path("assets/sums")
BATCHES = (1, 4, 16, 64, 128)
GROUP_SIZE = 8
GROUPS = 16
"""In one rollout; at the smallest batches a part of them, so that turns stay short."""
MAX_NEW_TOKENS = 400
TURNS = 5
LEAST_ADAPTIVE = 0.98

ADAPTIVE = DraftConfig(
    source="grouped",
    length="mba",
    toggle="always",
    guard=True,
    max_tokens=8,
    paths=1,
    min_token_prob=0.1,
    thresholds_slack=0.1,
    aimd_start=2,
    aimd_step=2,
    history_bytes=1 << 32,
)
WAYS: Mapping[str, DraftConfig | None] = {
    "none": None,
    "self, adaptive": dataclasses.replace(ADAPTIVE, source="self"),
    "grouped, adaptive": ADAPTIVE,
    "grouped, always": dataclasses.replace(ADAPTIVE, length="fixed", guard=False),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Rollout:
    """What one rollout came to."""

    results: dict[RequestId, ChunkResult]
    seconds: Seconds

    @property
    def num_tokens(self) -> int:
        """Of all responses."""
        return sum(len(result.tokens) for result in self.results.values())

    @property
    def acceptance_length(self) -> float:
        """Tokens of a response in one step."""
        accepted = sum(result.accepted_tokens for result in self.results.values())
        return self.num_tokens / (self.num_tokens - accepted)


def measure(say: Say) -> list[Figure]:
    """Take the turns of every batch; raises RunError when drafting changes a token."""
    torch.set_num_threads(1)
    shape = read_shape(MODEL)
    tokenizer = Tokenizer(MODEL, model_vocab_size=shape.vocab_size)
    generator = SumsGenerator(seed=7, max_terms=52, tail=1.1, held_out=False)  # lengths of conf/data/sums.yaml
    raw = generator.prompts(GROUPS * TURNS)
    prompts = [prompt.tokens for prompt in encode(raw, tokenizer, max_prompt_tokens=512)]
    figures: list[Figure] = []
    for batch in BATCHES:
        engines = {way: _engine(shape, tokenizer.eos_id, draft, batch) for way, draft in WAYS.items()}
        groups = max(1, min(GROUPS, 4 * batch // GROUP_SIZE))
        figures += _figures(batch, [_turn(engines, prompts, turn, groups, say) for turn in range(TURNS)])
    return figures


def _turn(
    engines: Mapping[str, TorchEngine], prompts: list[TokenArray], turn: int, groups: int, say: Say
) -> dict[str, Rollout]:
    """Decode the same with every engine, beginning with another one each turn."""
    names = list(engines)
    ordered = names[turn % len(names) :] + names[: turn % len(names)]
    asked = [
        _request(turn * GROUPS + g, s, prompts[turn * GROUPS + g]) for g in range(groups) for s in range(GROUP_SIZE)
    ]
    taken = {name: _decode(engines[name], asked) for name in ordered}
    for name, rollout in taken.items():
        for id, result in rollout.results.items():
            if not np.array_equal(result.tokens, taken["none"].results[id].tokens):
                raise RunError(f"{name}: response {id} has other tokens than without drafts")
    say(", ".join(f"{name} {taken[name].num_tokens / taken[name].seconds:.0f}" for name in names) + " tokens/s")
    return taken


def _decode(engine: TorchEngine, requests: list[ChunkRequest]) -> Rollout:
    results: dict[RequestId, ChunkResult] = {}
    began_s = time.perf_counter()
    for request in requests:
        engine.submit(request)
    while not engine.idle:
        results |= {result.id: result for result in engine.step()}
    return Rollout(results, time.perf_counter() - began_s)


def _figures(batch: int, turns: list[dict[str, Rollout]]) -> list[Figure]:
    name = f"batch {batch}"
    rate = statistics.median(turn["none"].num_tokens / turn["none"].seconds for turn in turns)
    figures = [stated(f"{name}: none", rate, "tokens/s")]
    for way in WAYS:
        if way == "none":
            continue
        ratios = [turn["none"].seconds / turn[way].seconds for turn in turns]
        bound = LEAST_ADAPTIVE if way.endswith("adaptive") else None
        median = statistics.median(ratios)
        figures += [
            at_least(f"{name}: {way} over none, median of {len(turns)} turns", median, "x", bound),
            stated(f"{name}: {way} over none, lowest", min(ratios), "x"),
            stated(f"{name}: {way} over none, highest", max(ratios), "x"),
            stated(f"{name}: {way}, acceptance length", statistics.mean(t[way].acceptance_length for t in turns), ""),
        ]
    return figures


def _request(group: int, sample: int, prompt: TokenArray) -> ChunkRequest:
    return ChunkRequest(
        id=RequestId(group, sample),
        prompt=prompt,
        generated=np.zeros(0, np.int32),
        max_tokens=MAX_NEW_TOKENS,
        max_new_tokens=MAX_NEW_TOKENS,
        temperature=1.0,
    )


def _engine(shape: ModelShape, stop_token: int, draft: DraftConfig | None, batch: int) -> TorchEngine:
    config = TorchEngineConfig(
        kind="torch", device="cpu", dtype="float32", kv_capacity_tokens=65536, max_running=batch, max_step_tokens=2048
    )
    speculator = None if draft is None else SuffixSpeculator(draft, vocab_size=shape.vocab_size, num_slots=batch)
    engine = TorchEngine(config, shape, max_context_tokens=1024, seed=1, stop_token=stop_token, speculator=speculator)
    engine.load_weights(0, read_weights(MODEL, shape))
    return engine
