"""What a forward pass takes on this device, as the closed form that draft policies predict with.

A pass of R rows over short contexts takes max(w, c R) + s: reading the weights, the rows' arithmetic, and what is the
same for all. Attention over long contexts is not in it; policies correct the form by the steps that they see.
"""

import time
from collections.abc import Callable
from statistics import median

from sestina.core.units import Seconds
from sestina.policies.drafting.cost import StepCost

REPEATS = 5


def measure(run: Callable[[int], None], max_rows: int) -> StepCost:
    """Return the cost of steps; `run` does a forward pass of so many rows, and waits for it."""
    few, many = max(1, max_rows // 8), max_rows
    least_s, few_s, many_s = (_seconds(run, rows) for rows in (1, few, many))
    row_s = max(many_s - few_s, 0.0) / max(many - few, 1) or least_s / many
    step_s = min(max(many_s - row_s * many, 0.0), least_s)
    return StepCost(
        weights_s=least_s - step_s,
        kv_token_s=0.0,
        row_s=row_s,
        row_kv_s=0.0,
        plain_sequence_s=0.0,
        verify_sequence_s=0.0,
        draft_token_s=0.0,
        step_s=step_s,
    )


def _seconds(run: Callable[[int], None], rows: int) -> Seconds:
    run(rows)  # nobody's first pass
    return median(_timed(run, rows) for _ in range(REPEATS))


def _timed(run: Callable[[int], None], rows: int) -> Seconds:
    began_s = time.perf_counter()
    run(rows)
    return time.perf_counter() - began_s
