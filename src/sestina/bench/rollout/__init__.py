"""`make bench-rollout`: what scheduling is worth, and what it costs.

workload.py   iterations in the shape of Seer's, scaled down
emulation.py  one of them on 16 emulated instances: real engines and tokens, virtual clocks
compare.py    the baseline, divided, context, oracle, with a KV pool, for five seeds
drafted.py    grouped drafts with a model whose steps read weights, and whose text can be drafted
pipelined.py  ten steps, one ahead of a trainer: HistoPipe against sub-batches that are dealt out
ranks.py      one and three real ranks beside as many emulated instances
scale.py      what context reaches of the oracle with few groups and with many, simulated
decisions.py  decisions per second with a million requests buffered
picture.py    responses left over time
"""

from pathlib import Path

from sestina.bench.rollout import decisions, drafted, pipelined, ranks, scale
from sestina.bench.rollout.compare import Plan, compare, figures_of
from sestina.bench.rollout.picture import draw
from sestina.bench.turns import Say
from sestina.telemetry.measurements import Figure

PICTURE = Path("out/measurements/rollout.png")


def measure(say: Say) -> list[Figure]:
    """Take every figure, and draw; raises RunError when scheduling changes a token."""
    outturns = compare(Plan(), say)
    say(f"figure: {draw(outturns, PICTURE)}")
    return [
        *figures_of(outturns),
        *drafted.figures(say),
        *scale.figures(say),
        *pipelined.figures(say),
        *ranks.figures(say),
        *decisions.measure(say),
    ]
