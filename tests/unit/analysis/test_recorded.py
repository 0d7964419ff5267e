"""The recorded runs of analysis/: real and emulated ones, as this version reads them."""

from pathlib import Path

import pytest

from sestina.analysis.counterfactual import counterfactual
from sestina.analysis.run import read_run
from sestina.controller.plan import planner_of
from sestina.telemetry.replay import replay

DATA = Path(__file__).parents[3] / "analysis" / "data"
RUNS = sorted(path for path in DATA.iterdir() if path.is_dir())
JOURNALS = [path for path in RUNS if (path / "journal.jsonl").exists()]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_what_it_logged_of_lost_time_is_what_its_traces_say(path):
    run = read_run(path)
    for line in run.metrics:
        logged = {name: value for name, value in line.values.items() if name.startswith("perf/idle/")}
        idle = run.idle(line.step) if line.step in run.steps else None
        assert logged == pytest.approx({} if idle is None else idle.metrics())
        assert bool(logged) == (run.config.run.mode == "sync" and line.step > 0)


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.name)
def test_its_journal_replays_with_equal_commands(path):
    run = read_run(path)
    [segment] = run.journal()
    assert len(segment.entries) > 200
    assert replay(segment, planner_of(run.config)) is None


def test_there_is_the_journal_of_a_real_run():
    assert "real" in {read_run(path).origin for path in JOURNALS}


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.name)
def test_it_can_be_foretold_under_another_scheduler(path):
    run = read_run(path)
    for step in run.steps:
        found = counterfactual(run, step)
        assert abs(found.error) < 0.5, "of a machine that others used"
        assert 0 < found.other_s < 2 * found.measured_s
