import pytest

from sestina.bench import staleness
from sestina.bench.asynchronous import batching, overlap
from sestina.bench.packing import sums_lengths
from sestina.telemetry.metrics import StepMetrics
from tests.unit.bench.helpers import write_groups

SEEDS = (1, 2)


def lines(tokens, seconds):
    names = ("perf/train_s", "perf/rollout_s", "async/staleness_mean", "async/interruptions", "eval/accuracy")
    values = dict.fromkeys(names, 0.5) | {"perf/rollout_tokens": tokens, "perf/step_s": seconds}
    return [StepMetrics(step=step, time=0.0, values=values) for step in range(1, 4)]


def test_a_runs_throughput_is_of_its_whole_time():
    fast = StepMetrics(step=4, time=0.0, values={"perf/rollout_tokens": 900.0, "perf/step_s": 1.0})
    assert overlap.throughput([*lines(10.0, 2.0), fast]) == pytest.approx(930 / 7)


def test_gains_are_of_equal_seeds(tmp_path, monkeypatch):
    asked = {}

    def emulate(runs, jobs, _say, *, limit_s):
        asked.update(jobs)
        for name in jobs:
            for step in range(1, 4):
                write_groups(runs / name, step, begins_s=float(step), groups={step: (0.5, 10)})
        return {name: lines(100.0, 1.0 if "max_staleness=0" in " ".join(jobs[name]) else 0.5) for name in jobs}

    monkeypatch.setattr(overlap, "emulate_all", emulate)
    monkeypatch.setattr(overlap, "RUNS", tmp_path)
    figures = {figure.name: figure for figure in overlap.figures(print, SEEDS)}
    assert len(asked) == 2 * 12
    assert asked["eta-4-2"][-2:] == ("async.max_staleness=4", "seed=2")
    assert figures["eta 4: over eta 0, median of 2 seeds"].value == 2.0
    assert figures["eta 4: over eta 0, median of 2 seeds"].met
    assert figures["whole responses, interrupted: over whole responses, not interrupted, lowest"].value == 1.0
    assert figures["eta 0: trainer at work"].value == 0.5
    assert figures["eta 1: over eta 0, most that the bound allows"].value == pytest.approx(3.0 / 2.0)
    assert figures["eta 1: reached of what the bound allows"].value == pytest.approx(2.0 / 1.5)
    assert figures["a trainer that never waits: over eta 0, median of 2 seeds"].value == 2.0


@pytest.mark.parametrize("split", [batching.by_budget, batching.by_number])
def test_replicas_share_every_sample(split):
    lengths = sums_lengths(3)[: batching.NUM_SAMPLES]
    shares = split(lengths)
    assert len(shares) == batching.REPLICAS
    assert sorted(length for packs in shares for packed in packs for length in packed) == sorted(lengths)
    assert max(sum(packed) for packs in shares for packed in packs) <= batching.BUDGET
    padded = batching.by_number_padded(lengths)
    assert [[len(packed) for packed in packs] for packs in padded] == [
        [len(packed) for packed in packs] for packs in batching.by_number(lengths)
    ]
    assert all(len(set(packed)) == 1 for packs in padded for packed in packs)


def test_the_ablation_is_judged_at_one_staleness_and_drawn(tmp_path, monkeypatch):
    def emulate(_runs, jobs, _say, *, limit_s):
        return {name: ended(0.80 if name.startswith("decoupled-4") else 0.82) for name in jobs}

    def ended(accuracy):
        before = StepMetrics(step=0, time=0.0, values={"eval/accuracy": 0.5})
        return [before, StepMetrics(step=9, time=0.0, values={"eval/accuracy": accuracy, "async/staleness_mean": 3.0})]

    monkeypatch.setattr(staleness, "emulate_all", emulate)
    monkeypatch.setattr(staleness, "PICTURE", tmp_path / "out" / "staleness.png")
    figures = {figure.name: figure for figure in staleness.measure(print, SEEDS)}
    judged = figures["decoupled, eta 4: accuracy less that of eta 0"]
    assert judged.value == pytest.approx(-0.02)
    assert judged.met
    assert figures["before training: held-out accuracy"].value == 0.5
    assert figures["naive, eta 16: held-out accuracy, mean of 2 seeds"].value == 0.82
    assert "naive, eta 0: lowest" not in figures
    assert (tmp_path / "out" / "staleness.png").read_bytes().startswith(b"\x89PNG")
