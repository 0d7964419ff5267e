"""Effective training throughput, tokens trained on in a second of a whole run, under bounds of staleness.

Everything is emulated (docs/decisions/0023, 0028): instances, trainer and controller under virtual clocks, which
advance by what their work really takes on a core of this machine. A run counts from its first token to its last
weights, with the time in which rollout gets ahead and the time in which nothing is left to admit.

What rollout can gain is decided by its share of a synchronous step, 63 to 91 % in what the papers train. On a CPU,
where training on a token costs more than drawing it, only small batches are like that: here 16 responses, of eight
prompts, since it is the prompt that says how long a response is, and batches of few prompts are tenfold longer or
shorter than the next. Larger ones, in which the trainer has more to do than rollout, stand beside. The learning rate
leaves lengths as they are.

What a bound allows at most, whatever rollout does, is computed of each seed's own times at eta = 0 (limit.py) and
stated beside what was reached.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sestina.bench.asked import at_least, stated
from sestina.bench.asynchronous.limit import RunSpans, gain_of_trainer, gain_within, spans_of
from sestina.bench.command import emulate_all
from sestina.bench.turns import Say
from sestina.core.units import Seconds
from sestina.telemetry.measurements import Figure
from sestina.telemetry.metrics import StepMetrics, series

RUNS = Path("runs/bench/async")
LIMIT_S: Seconds = 1800.0
SETTINGS = (
    "+exp=quickstart",
    "run.mode=async",
    "eval.every=0",
    'telemetry.wandb="off"',
    "rollout.num_instances=12",
    "sim.trainer_shares=4",
    "trainer.optimizer.learning_rate=1.0e-7",
    "algorithm.proximal=loglinear",
    "reward.num_workers=1",
)
SMALL = ("algorithm.batch_size=16", "algorithm.group_size=2", "run.steps=32")
LEAST_GAIN: Mapping[int, float | None] = {0: None, 1: 1.6, 2: None, 4: 2.0, 8: None}
"""By eta, over eta = 0."""
LARGE, FAR = {32: 32, 128: 8}, 4
"""Steps by responses of a batch in groups of 8, of the same prompts; and the bound they are taken under."""
LARGER = {
    f"batches of {size}, eta {eta}": (
        f"algorithm.batch_size={size}",
        f"run.steps={steps}",
        f"async.max_staleness={eta}",
    )
    for size, steps in LARGE.items()
    for eta in (0, FAR)
}
WHOLE = (*SMALL, "async.max_staleness=4", "rollout.chunk_tokens=400")
"""Responses in one chunk each, so that nothing but weights interrupts them."""
UPDATES = {
    "whole responses, interrupted": (*WHOLE, "sim.updates=interrupt"),
    "whole responses, not interrupted": (*WHOLE, "sim.updates=drain"),
    "chunks of 64, not interrupted": (*SMALL, "async.max_staleness=4", "sim.updates=drain"),
}
LEAST_INTERRUPTED = 1.1

Runs = Mapping[str, list[StepMetrics]]


def figures(say: Say, seeds: Sequence[int]) -> Iterator[Figure]:
    """Emulate every run and yield what is asked of them; raises RunError when one fails."""
    ways = {f"eta {eta}": (*SMALL, f"async.max_staleness={eta}") for eta in LEAST_GAIN} | UPDATES | LARGER
    jobs = {_name(way, seed): (*SETTINGS, *changes, f"seed={seed}") for seed in seeds for way, changes in ways.items()}
    runs = emulate_all(RUNS, jobs, say, limit_s=LIMIT_S)
    for eta, bound in LEAST_GAIN.items():
        yield from _describe(f"eta {eta}", runs, seeds)
        if eta:
            yield from _gain(f"eta {eta}", "eta 0", runs, seeds, bound)
            yield from _within(f"eta {eta}", "eta 0", eta, runs, seeds)
    most = statistics.median(gain_of_trainer(_spans("eta 0", runs, seed)) for seed in seeds)
    yield stated(f"a trainer that never waits: over eta 0, median of {len(seeds)} seeds", most, "x")
    interrupted, *others = UPDATES
    yield from _describe(interrupted, runs, seeds)
    for way, bound in zip(others, (LEAST_INTERRUPTED, None), strict=True):
        yield from _describe(way, runs, seeds)
        yield from _gain(interrupted, way, runs, seeds, bound)
    for size in LARGE:
        base, ahead = f"batches of {size}, eta 0", f"batches of {size}, eta {FAR}"
        yield from _describe(base, runs, seeds)
        yield from _describe(ahead, runs, seeds)
        yield from _gain(ahead, base, runs, seeds, None)
        yield from _within(ahead, base, FAR, runs, seeds)


def throughput(lines: list[StepMetrics]) -> float:
    """Return the tokens that a run trained on in a second."""
    return _sum(lines, "perf/rollout_tokens") / _sum(lines, "perf/step_s")


def _describe(way: str, runs: Runs, seeds: Sequence[int]) -> Iterator[Figure]:
    found = [runs[_name(way, seed)] for seed in seeds]
    busy = [_sum(lines, "perf/train_s") / _sum(lines, "perf/step_s") for lines in found]
    stale = [value for lines in found for _, value in series(lines, "async/staleness_mean")]
    cut = [_sum(lines, "async/interruptions") / len(lines) for lines in found]
    rate = statistics.median(map(throughput, found))
    yield stated(f"{way}: effective training throughput, median of {len(seeds)} seeds", rate, "tokens/s")
    yield stated(f"{way}: trainer at work", statistics.median(busy), "of the time")
    yield stated(f"{way}: staleness, mean", statistics.mean(stale), "versions")
    yield stated(f"{way}: interruptions", statistics.median(cut), "per step")


def _gain(way: str, base: str, runs: Runs, seeds: Sequence[int], bound: float | None) -> Iterator[Figure]:
    gains = [_gain_of(way, base, runs, seed) for seed in seeds]
    yield at_least(f"{way}: over {base}, median of {len(gains)} seeds", statistics.median(gains), "x", bound)
    yield stated(f"{way}: over {base}, lowest", min(gains), "x")
    yield stated(f"{way}: over {base}, highest", max(gains), "x")


def _within(way: str, base: str, eta: int, runs: Runs, seeds: Sequence[int]) -> Iterator[Figure]:
    most = [gain_within(_spans(base, runs, seed), eta) for seed in seeds]
    reached = [_gain_of(way, base, runs, seed) / limit for seed, limit in zip(seeds, most, strict=True)]
    yield stated(f"{way}: over {base}, most that the bound allows", statistics.median(most), "x")
    yield stated(f"{way}: reached of what the bound allows", statistics.median(reached), "of it")


def _gain_of(way: str, base: str, runs: Runs, seed: int) -> float:
    return throughput(runs[_name(way, seed)]) / throughput(runs[_name(base, seed)])


def _spans(way: str, runs: Runs, seed: int) -> RunSpans:
    name = _name(way, seed)
    return spans_of(RUNS / name, runs[name])


def _name(way: str, seed: int) -> str:
    return f"{way.replace(',', '').replace(' ', '-')}-{seed}"


def _sum(lines: list[StepMetrics], name: str) -> float:
    return sum(value for _, value in series(lines, name))
