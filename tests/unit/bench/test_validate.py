"""The arithmetic of predictions held against runs; the runs themselves are in the slow tier."""

from dataclasses import replace

import pytest

from sestina.bench import validate
from sestina.bench.validate import Compared, figures_of, speculation_of
from sestina.bench.validate.outturn import errors_of, mean_of, outturn_of, spread_of
from sestina.bench.validate.picture import draw
from sestina.bench.validate.settings import SETTINGS, Setting, drafting_of, recording_of
from sestina.bench.validate.takes import Take, pace_of, repeated
from sestina.bench.validate.worlds import Clocked
from tests.unit.bench.helpers import by_name

PLAIN = Setting(scheduler="divided", instances=2)
DRAFTED = Setting(scheduler="divided", instances=2, drafts=("self", 4))


def take(makespan, pace=1.0):
    return Take(outturn={"makespan": makespan, "tail share": 0.2}, pace=pace)


def compared(setting, predicted, *makespans):
    outturn = {"makespan": predicted, "tail share": 0.1}
    clocked = Clocked(predicted=outturn, emulated={"makespan": 1.0, "tail share": 0.1})
    return Compared(
        setting=setting, predicted=outturn, takes=[take(makespan) for makespan in makespans], clocked=clocked
    )


def test_an_outturn_is_read_off_completions():
    outturn = outturn_of([0.1 * number for number in range(1, 101)])
    assert outturn["makespan"] == pytest.approx(10.0)
    assert outturn["p50 completion"] == pytest.approx(5.05)
    assert outturn["p99 completion"] == pytest.approx(9.901)
    assert outturn["tail share"] == pytest.approx(0.1)


def test_errors_are_of_the_measured_value_whatever_their_sign():
    assert errors_of({"a": 8.0, "b": 3.0}, {"a": 10.0, "b": 2.0}) == pytest.approx({"a": 0.2, "b": 0.5})
    assert mean_of([{"a": 1.0}, {"a": 3.0}]) == {"a": 2.0}
    assert spread_of([{"a": 1.0}, {"a": 3.0}, {"a": 2.0}]) == {"a": 1.0}


def test_every_value_is_asked_of_and_its_spread_stands_beside_it():
    found = by_name(list(figures_of([compared(PLAIN, 1.05, 0.9, 1.1)])))
    name = PLAIN.name
    assert found[f"{name}: makespan, predicted off by"].value == pytest.approx(0.05)
    assert found[f"{name}: makespan, predicted off by"].met
    assert found[f"{name}: makespan, runs apart by"].value == pytest.approx(0.2)
    assert found[f"{name}: tail share, predicted off by"].met is False
    assert found[f"{name}: makespan, in calibrated time off by"].value == pytest.approx(0.05)
    assert found["1 settings: tail share in calibrated time, within 0.1"].value == 1
    assert found[f"{name}: steps of a recording's runs, over the calibration's"].value == 1
    assert found["1 settings: tail share, within 0.1"].value == 0


def test_verdicts_on_drafts_are_compared_where_there_is_one_without():
    pairs = [compared(PLAIN, 1.0, 1.0), compared(DRAFTED, 0.8, 1.2)]
    found = by_name(list(speculation_of(pairs)))
    assert found[f"{DRAFTED.name}: speedup of drafts, measured"].value == pytest.approx(1 / 1.2)
    assert found[f"{DRAFTED.name}: speedup of drafts, predicted"].value == pytest.approx(1.25)
    assert found[f"{DRAFTED.name}: speedup of drafts, same verdict on whether they pay"].met is False
    assert not list(speculation_of(pairs[1:]))


def test_recordings_and_runs_take_turns():
    turns = []

    def pace(number):
        turns.append(("recording", number))
        return 1.0 + number

    def run(number):
        turns.append(("run", number))
        return {"makespan": 0.1 * number}

    takes = repeated(pace, run, 3)
    assert turns == [(kind, number) for number in range(3) for kind in ("recording", "run")]
    assert [each.pace for each in takes] == [1.0, 2.0, 3.0]
    assert pace_of(takes) == 2.0


def test_nothing_is_predicted_from_itself():
    assert len(SETTINGS) >= 12
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)
    assert not {recording_of(setting) for setting in SETTINGS} & set(SETTINGS)
    drafting = {replace(drafting_of(setting), step_tokens=setting.step_tokens) for setting in SETTINGS}
    assert not drafting & set(SETTINGS)


def test_a_picture_is_drawn(tmp_path):
    one, other = {"makespan": 1.0, "tail share": 0.2}, {"makespan": 1.1, "tail share": 0.1}
    assert draw({"a": (one, other)}, tmp_path / "p.png").stat().st_size > 1000


@pytest.mark.slow
def test_a_setting_is_predicted_from_the_calibration_alone(monkeypatch, tmp_path):
    monkeypatch.setattr(validate, "PICTURE", tmp_path / "validate.png")
    monkeypatch.setattr("sestina.bench.validate.worlds.RUNS", tmp_path / "runs")
    monkeypatch.setattr("sestina.controller.calibrate.OUT", tmp_path)
    monkeypatch.setattr("sestina.rollout.calibration.survey.ROUNDS", 1)
    setting = Setting(scheduler="divided", instances=2, drafts=("self", 4))
    found = by_name(validate.measure(lambda line: None, [setting], takes=1))
    assert found[f"{setting.name}: makespan, measured"].value > 0
    assert found[f"{setting.name}: makespan, predicted off by"].value < 1
    assert found[f"{setting.name}: makespan, in calibrated time off by"].value < 0.1
    assert (tmp_path / "validate.png").exists()
