"""Micro-batches by token budget against a fixed number of samples, on heavy-tailed lengths.

The fixed number is what fits the budget when every sample is as long as the longest; such a micro-batch is padded to
its own longest sample.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sestina.algorithms.packing import pack
from sestina.bench.asked import at_most, below, stated
from sestina.bench.turns import Say
from sestina.core.units import Seconds
from sestina.data.sums import SumsGenerator, solution
from sestina.telemetry.measurements import Figure

MOST_IMBALANCE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSet:
    """Batches of sample lengths and the budget they are packed into."""

    name: str
    lengths: Callable[[int], list[int]]
    """Number of a batch -> tokens of each of its samples."""
    budget: int
    """Tokens in a micro-batch."""
    num_batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """What one batch came to."""

    micro_batches: int
    fewest: int
    """Micro-batches that any packing needs."""
    fixed: int
    """Micro-batches of a fixed number of samples."""
    imbalance: float
    """(most - fewest tokens of a micro-batch) / mean"""
    padding: float
    """Share of computed positions that hold no token."""
    fixed_padding: float
    pack_s: Seconds


def sums_lengths(batch: int) -> list[int]:
    """Return the lengths of 512 samples of the built-in task, 8 to a prompt, as conf/algorithm/grpo.yaml has them."""
    generator = SumsGenerator(seed=batch, max_terms=52, tail=1.1, held_out=False)
    rng = np.random.default_rng(batch)
    problems = [generator.problem(i // 8) for i in range(512)]
    return [len(p.text) + len(solution(p, rng, hurried_share=0.3, slip_rate=0.1)) + 1 for p in problems]


def pareto_lengths(batch: int) -> list[int]:
    """Return 512 x 16 lengths, Pareto from 500 tokens with exponent 1.2, cut at 27000."""
    drawn = 500 * (1 + np.random.default_rng(batch).pareto(1.2, 512 * 16))
    return np.minimum(drawn, 27000).astype(np.int64).tolist()


SETS = (
    LengthSet(name="sums, budget 2048", lengths=sums_lengths, budget=2048, num_batches=20),
    LengthSet(name="sums, budget 8192", lengths=sums_lengths, budget=8192, num_batches=20),
    LengthSet(name="Pareto, budget 32768", lengths=pareto_lengths, budget=32768, num_batches=3),
)


def measure(say: Say, sets: Sequence[LengthSet] = SETS) -> list[Figure]:
    """Pack every batch of every set."""
    figures: list[Figure] = []
    for length_set in sets:
        packed: list[Packed] = []
        for batch in range(length_set.num_batches):
            packed.append(_pack(length_set.lengths(batch), length_set.budget))
            say(f"{length_set.name}: batch {batch + 1}/{length_set.num_batches}: {_line(packed[-1])}")
        figures += _figures(length_set.name, packed)
    return figures


def _pack(lengths: list[int], budget: int) -> Packed:
    start = time.perf_counter()
    batches = pack(lengths, budget)
    pack_s = time.perf_counter() - start
    sizes = np.array(lengths)
    per_batch = budget // max(lengths)
    fixed = [sizes[i : i + per_batch] for i in range(0, len(sizes), per_batch)]
    totals = [int(sizes[batch].sum()) for batch in batches]
    return Packed(
        micro_batches=len(batches),
        fewest=-(-sum(lengths) // budget),
        fixed=len(fixed),
        imbalance=float((max(totals) - min(totals)) / np.mean(totals)),
        padding=1 - sum(lengths) / sum(totals),
        fixed_padding=1 - sum(lengths) / sum(len(part) * int(part.max()) for part in fixed),
        pack_s=pack_s,
    )


def _line(packed: Packed) -> str:
    return f"{packed.micro_batches} micro-batches, fixed {packed.fixed}, imbalance {packed.imbalance:.4f}"


def _figures(name: str, packed: list[Packed]) -> list[Figure]:
    worst, positions = f"worst of {len(packed)}", "of positions"
    against_fixed = max(p.micro_batches / p.fixed for p in packed)
    against_fewest = max(p.micro_batches / p.fewest for p in packed)
    fixed_padding = statistics.mean(p.fixed_padding for p in packed)
    return [
        at_most(f"{name}: padding, {worst}", max(p.padding for p in packed), positions, 0),
        stated(f"{name}: padding of a fixed number, mean", fixed_padding, positions),
        at_most(f"{name}: imbalance, {worst}", max(p.imbalance for p in packed), "of mean", MOST_IMBALANCE),
        below(f"{name}: micro-batches over a fixed number's, {worst}", against_fixed, "x", 1),
        stated(f"{name}: micro-batches over the fewest possible, {worst}", against_fewest, "x"),
        stated(f"{name}: micro-batches, mean", statistics.mean(p.micro_batches for p in packed), "per batch"),
        stated(f"{name}: time to pack, median", statistics.median(p.pack_s for p in packed), "s"),
    ]
