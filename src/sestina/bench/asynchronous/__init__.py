"""`make bench-async`: what it is worth that rollout does not wait for the trainer.

overlap.py   12 emulated instances and 4 trainer shares under bounds of staleness, interrupted and not
limit.py     what a bound of staleness allows at most, of what a run at eta = 0 took
batching.py  the trainer's step on micro-batches by token budget against a fixed number of samples
"""

from collections.abc import Sequence

from sestina.bench.asynchronous import batching, overlap
from sestina.bench.turns import Say
from sestina.telemetry.measurements import Figure

SEEDS = (1, 2, 3)


def measure(say: Say, seeds: Sequence[int] = SEEDS) -> list[Figure]:
    """Take every figure; raises RunError when a run fails."""
    return [*overlap.figures(say, seeds), *batching.figures(say)]
