"""Drafting in the embedded engine against none: whole heavy-tailed rollouts at several batches, tokens held equal.

subjects.py  the models: the built-in task's, and one of 60 M parameters whose text can be drafted
asked.py     prompts in groups, with forced lengths of a heavy tail
lengths.py   those lengths
race.py      all ways of drafting at once, in slices of time
epoch.py     what the same prompts were answered before, for drafts from histories
"""

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf

from sestina.bench.asked import at_least, stated
from sestina.bench.speculation.asked import requests_of
from sestina.bench.speculation.epoch import remember
from sestina.bench.speculation.race import SEED_BEFORE, Rollout, engine_of, race
from sestina.bench.speculation.subjects import BUILT_IN, CHAIN, WHOLE, Subject
from sestina.bench.turns import Say
from sestina.rollout.speculation.config import DraftConfig, Source
from sestina.rollout.speculation.desk import DraftDesk
from sestina.telemetry.measurements import Figure

LEAST_ADAPTIVE, LEAST_GROUPED = 0.98, 1.3
AGAIN = "none, again"
SETTINGS = Path("conf/draft")


def ways_of(sources: Sequence[Source]) -> dict[str, DraftConfig]:
    """Return no drafts, twice, and each source with drafts of 8 in every step and with the policy it comes with.

    What none gains on none is what chance does.
    """
    ways = {"none": shipped("none"), AGAIN: shipped("none")}
    for source in sources:
        own = shipped(source)
        always = replace(own, length="fixed", toggle="always", guard=False, max_tokens=8)
        ways |= {f"{source}, always": always, f"{source}, adaptive": own}
    return ways


def shipped(source: Source) -> DraftConfig:
    """Return what `draft=SOURCE` stands for."""
    composed = OmegaConf.merge(*(OmegaConf.load(SETTINGS / f"{name}.yaml") for name in ("none", source)))
    assert isinstance(composed, DictConfig)
    return DraftConfig(**{str(key): value for key, value in composed.items() if key != "defaults"})


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
    desks = {way: DraftDesk() for way in ways}
    engines = {way: engine_of(model, draft, batch, desks[way]) for way, draft in ways.items()}
    before = engine_of(model, ways["none"], batch, seed=SEED_BEFORE)
    past = [desk for desk in desks.values() if desk.take_history is not None]
    turns: list[dict[str, Rollout]] = []
    for turn in range(subject.turns):
        requests = requests_of(subject, batch, turn)
        if past:
            remember(past, before, requests)
        turns.append(race(engines, requests))
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
        if way == "grouped, adaptive" and subject.gains:
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
