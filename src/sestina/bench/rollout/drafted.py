"""Grouped drafts where they can pay: the iteration of `compare` with another model, on a quarter of the instances.

The built-in model says nothing about what drafts are worth. What it decodes past its own end of sequence cannot be
drafted, and it fits into a core's caches: its steps read no weights from memory, so that verified rows share nothing
but what a step costs outside the model. Seer's decoding reads weights, which a few more rows share. Here a model has
more weights than the last cache holds (49 MB in float32, of 32 MiB), random ones, and its text is said again by
siblings (`write_chain`). A core's arithmetic is soon the limit all the same: verifying five drafted tokens for each of
8 to 16 requests costs about three plain steps, where a GPU's would hardly differ. Its text is therefore easier to draft
than Seer's (figure 11: 2.15 tokens a step), and what is compared with the paper is what drafts bring, not how many
tokens that takes.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sestina.bench.asked import stated
from sestina.bench.rollout.compare import BASELINE, Plan, compare, figures_of, gain_over
from sestina.bench.rollout.workload import MODEL, QWEN2_VL
from sestina.bench.speculation.subjects import write_chain
from sestina.bench.turns import Say
from sestina.models.shape import ModelShape, read_shape
from sestina.telemetry.measurements import Figure

SHAPE = ModelShape(
    vocab_size=read_shape(MODEL).vocab_size, hidden_size=512, num_layers=4, num_heads=8, num_kv_heads=2, head_size=64,
    ffn_size=1536, max_positions=1024, rope_theta=10000.0, norm_eps=1e-6, tied=False,
)  # fmt: skip
WORKLOAD = replace(
    QWEN2_VL,
    name=f"Qwen2-VL-72B, model of {SHAPE.num_parameters / 1e6:.0f} M parameters",
    num_groups=QWEN2_VL.num_groups // 4,
)
SCHEDULED, DRAFTED = "context", "context, grouped drafts"
PLAN = Plan(workloads=(WORKLOAD,), ways=(BASELINE, SCHEDULED, DRAFTED), seeds=(1, 2, 3), num_instances=4)
"""Some four minutes of CPU time."""
LEAST_GAIN = {DRAFTED: 1.9}


def figures(say: Say, plan: Plan = PLAN, shape: ModelShape = SHAPE) -> Iterator[Figure]:
    """Yield what is asked; raises RunError when a way changes a token."""
    with tempfile.TemporaryDirectory() as folder:
        model = write_chain(Path(folder) / "model", shape)
        outturns = compare(replace(plan, workloads=tuple(replace(each, model=model) for each in plan.workloads)), say)
    yield from figures_of(outturns, LEAST_GAIN)
    for name, ways in outturns.items():
        gain = gain_over(ways[SCHEDULED], ways[DRAFTED])
        yield stated(f"{name}: {DRAFTED} over {SCHEDULED}, throughput, median", gain, "x")
