"""Drafting in the embedded engine against none: whole heavy-tailed rollouts at several batches, tokens held equal.

subjects.py  the models: the built-in task's, and one of 60 M parameters whose text can be drafted
asked.py     prompts in groups, with forced lengths of a heavy tail
lengths.py   those lengths
race.py      all ways of drafting at once, in slices of time
"""

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from sestina.bench.asked import at_least, stated
from sestina.bench.speculation.asked import requests_of
from sestina.bench.speculation.race import Rollout, engine_of, race
from sestina.bench.speculation.subjects import BUILT_IN, CHAIN, WHOLE, Subject
from sestina.bench.turns import Say
from sestina.rollout.speculation.config import DraftConfig, Source
from sestina.telemetry.measurements import Figure

LEAST_ADAPTIVE, LEAST_GROUPED = 0.98, 1.3


def ways_of(sources: Sequence[Source]) -> dict[str, DraftConfig]:
    """Return no drafts, and each source with drafts of 8 in every step and with its adaptive policy."""

    def way(source: Source, *, adaptive: bool) -> DraftConfig:
        length = "mba" if adaptive else "fixed"
        return DraftConfig(
            source=source, length=length, toggle="always", guard=adaptive, max_tokens=8, paths=1, min_token_prob=0.1
        )

    ways = {"none": way("none", adaptive=False)}
    for source in sources:
        ways |= {f"{source}, always": way(source, adaptive=False), f"{source}, adaptive": way(source, adaptive=True)}
    return ways


def measure(say: Say, subjects: Sequence[Subject] = (BUILT_IN, CHAIN, WHOLE)) -> list[Figure]:
    """Race all ways on every model and batch; raises RunError when drafting changes a token."""
    torch.set_num_threads(1)
    figures: list[Figure] = []
    for subject in subjects:
        with tempfile.TemporaryDirectory() as folder:
            model = subject.write(Path(folder))
            for batch in subject.batches:
                figures += _figures(subject, batch, _turns(subject, model, batch, say))
    return figures


def _turns(subject: Subject, model: Path, batch: int, say: Say) -> list[dict[str, Rollout]]:
    ways = ways_of(subject.sources)
    engines = {way: engine_of(model, draft, batch) for way, draft in ways.items()}
    turns: list[dict[str, Rollout]] = []
    for turn in range(subject.turns):
        turns.append(race(engines, requests_of(subject, batch, turn)))
        none = turns[-1]["none"]
        ratios = ", ".join(f"{way} {none.cpu_s / rollout.cpu_s:.2f}" for way, rollout in turns[-1].items())
        say(f"{subject.name}, batch {batch}: none {none.num_tokens / none.wall_s:.0f} tokens/s; {ratios} x")
    return turns


def _figures(subject: Subject, batch: int, turns: Sequence[Mapping[str, Rollout]]) -> list[Figure]:
    name = f"{subject.name}, batch {batch}"
    rate = statistics.median(turn["none"].num_tokens / turn["none"].wall_s for turn in turns)
    figures = [stated(f"{name}: none", rate, "tokens/s")]
    for way in turns[0]:
        if way == "none":
            continue
        ratios = [turn["none"].cpu_s / turn[way].cpu_s for turn in turns]
        walls = [turn["none"].wall_s / turn[way].wall_s for turn in turns]
        bound = LEAST_ADAPTIVE if way.endswith("adaptive") else None
        if way == "grouped, adaptive" and batch == subject.whole_rollout:
            bound = LEAST_GROUPED
        drafted = statistics.mean(turn[way].acceptance_length for turn in turns)
        figures += [
            at_least(f"{name}: {way} over none, by CPU time, median", statistics.median(ratios), "x", bound),
            stated(f"{name}: {way}, lowest", min(ratios), "x"),
            stated(f"{name}: {way}, highest", max(ratios), "x"),
            stated(f"{name}: {way}, by the clock, median", statistics.median(walls), "x"),
            stated(f"{name}: {way}, acceptance length", drafted, "tokens"),
        ]
    return figures
