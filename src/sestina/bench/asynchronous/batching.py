"""The real trainer's step on heavy-tailed batches: micro-batches by token budget against a fixed number of samples.

The fixed number is what fits the budget when every sample is as long as it may be. Four ranks in data parallel take
turns here, and a step lasts as long as the slowest of them.
"""

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch

from sestina.algorithms.packing import pack
from sestina.bench.asked import at_least, stated
from sestina.bench.packing import sums_lengths
from sestina.bench.rollout.workload import MODEL
from sestina.bench.turns import Say
from sestina.controller.trainer import silence_megatron
from sestina.core.units import Seconds
from sestina.models.shape import read_shape
from sestina.models.weights import read_weights
from sestina.rollout.meter import meter_for
from sestina.telemetry.measurements import Figure
from sestina.transport.messages import SampleBatch

NUM_SAMPLES, REPLICAS = 256, 4
BUDGET, LONGEST = 8192, 528
"""Tokens of a micro-batch, and of the longest sample that may come: conf/exp/quickstart.yaml."""
BATCHES = 5
LEAST_GAIN = 1.25

Packs: TypeAlias = list[list[int]]
"""Micro-batches, each the lengths of its samples."""
TakeStep: TypeAlias = Callable[[Packs], Seconds]


def by_budget(lengths: Sequence[int]) -> list[Packs]:
    """Return each replica's micro-batches under Algorithm 1."""
    packs = [[lengths[i] for i in packed] for packed in pack(lengths, BUDGET, multiple_of=REPLICAS)]
    return [packs[replica::REPLICAS] for replica in range(REPLICAS)]


def by_number(lengths: Sequence[int]) -> list[Packs]:
    """Return each replica's micro-batches of as many samples, in the order in which they come."""
    size, share = BUDGET // LONGEST, len(lengths) // REPLICAS
    own = [list(lengths[replica * share : (replica + 1) * share]) for replica in range(REPLICAS)]
    return [[part[i : i + size] for i in range(0, share, size)] for part in own]


def by_number_padded(lengths: Sequence[int]) -> list[Packs]:
    """The same, every sample padded to its micro-batch's longest."""
    return [[[max(packed)] * len(packed) for packed in packs] for packs in by_number(lengths)]


WAYS: Mapping[str, Callable[[Sequence[int]], list[Packs]]] = {
    "token budget": by_budget,
    "fixed number of samples": by_number,
    "fixed number of samples, padded": by_number_padded,
}


def figures(say: Say) -> Iterator[Figure]:
    """Yield the step's time under each way, and what the budget gains."""
    step, took = _trainer(), {way: list[Seconds]() for way in WAYS}
    step([[LONGEST]])
    for batch in range(BATCHES):
        lengths = sums_lengths(batch)[:NUM_SAMPLES]
        for way, split in WAYS.items():
            took[way].append(max(step(packs) for packs in split(lengths)))
        say(f"batch {batch + 1}/{BATCHES}: " + ", ".join(f"{way} {took[way][-1]:.3f} s" for way in WAYS))
    budget, *others = WAYS
    for way in WAYS:
        yield stated(f"micro-batches by {way}: trainer's step, median of {BATCHES}", statistics.median(took[way]), "s")
    for way, bound in zip(others, (LEAST_GAIN, None), strict=True):
        gains = [other / own for other, own in zip(took[way], took[budget], strict=True)]
        name = f"micro-batches by token budget over {way}"
        yield at_least(f"{name}: speed, median of {BATCHES}", statistics.median(gains), "x", bound)
        yield stated(f"{name}: lowest", min(gains), "x")
        yield stated(f"{name}: highest", max(gains), "x")


def _trainer() -> TakeStep:
    """Make this process a trainer of one rank; returns what takes a step of micro-batches."""
    silence_megatron()
    import torch.distributed as dist  # noqa: PLC0415 - from here on Megatron, silenced

    from sestina.trainer.backend import open_backend  # noqa: PLC0415
    from sestina.trainer.groups import open_groups  # noqa: PLC0415
    from sestina.trainer.microbatch import align, build  # noqa: PLC0415
    from sestina.trainer.recipe import Recipe  # noqa: PLC0415
    from sestina.trainer.trainer import Trainer, likelihood  # noqa: PLC0415

    recipe, shape = Recipe(), read_shape(MODEL)
    config = recipe.trainer(recipe.optimizer(1e-6, decay_steps=None))
    backend = open_backend("cpu", 0)
    open_groups(config, backend, dist.HashStore(), rank=0, seed=1, limit_s=60)
    trainer, meter = Trainer(config, shape, backend, read_weights(MODEL, shape)), meter_for("cpu")

    def step(packs: Packs) -> Seconds:
        lengths = [length for packed in packs for length in packed]
        samples = align(_batch(lengths), np.zeros(len(lengths), np.float32), np.ones(len(lengths), np.bool_))
        bounds = np.cumsum([0, *map(len, packs)]).tolist()
        began_s = meter()
        chosen = [list(range(*pair)) for pair in itertools.pairwise(bounds)]
        batches = [build(samples, own, "token", 1, torch.device("cpu")) for own in chosen]
        trainer.step(batches, likelihood, temperature=1.0)
        return meter() - began_s

    return step


def _batch(lengths: Sequence[int]) -> SampleBatch:
    """Return samples of these lengths, all but the first token of each a response; which tokens takes no time."""
    count, tokens = len(lengths), np.random.default_rng(0).integers(0, 70, sum(lengths), np.int32)
    return SampleBatch(
        groups=np.arange(count, dtype=np.int32),
        prompt_lengths=np.ones(count, np.int32),
        response_lengths=np.array(lengths, np.int32) - 1,
        tokens=tokens,
        logprobs=np.zeros(len(tokens) - count, np.float32),
        rewards=np.zeros(count, np.float32),
    )
