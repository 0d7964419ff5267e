import json
import math

import pytest

from sestina.core.errors import DataError, RunDirError
from sestina.telemetry.metrics import FILE_NAME, MetricsWriter, read_metrics, series


@pytest.fixture
def write(tmp_path, config):
    def run(*steps, first_step=0):
        writer = MetricsWriter(tmp_path, config, resolved={}, name="toy", first_step=first_step)
        for step in steps:
            writer.log(step, {"rollout/raw_reward": step + first_step / 100})
        writer.close()

    return run


def test_a_step_is_one_line(tmp_path, config):
    writer = MetricsWriter(tmp_path, config, resolved={}, name="toy", first_step=0)
    writer.log(0, {"eval/accuracy": 0.5})
    writer.log(1, {"train/grad_norm": math.nan, "perf/step_s": math.inf, "rollout/preemptions": 3})
    lines = [json.loads(line) for line in (tmp_path / FILE_NAME).read_text().splitlines()]
    writer.close()
    assert [line.pop("time") > 1.6e9 for line in lines] == [True, True]
    assert lines == [
        {"step": 0, "eval/accuracy": 0.5},
        {"step": 1, "train/grad_norm": None, "perf/step_s": None, "rollout/preemptions": 3.0},
    ]
    first, second = read_metrics(tmp_path)
    assert (first.step, first.values) == (0, {"eval/accuracy": 0.5})
    assert math.isnan(second.values["train/grad_norm"])


def test_a_series_has_the_steps_at_which_there_is_a_number(tmp_path, config):
    writer = MetricsWriter(tmp_path, config, resolved={}, name="toy", first_step=0)
    for step, value in enumerate([0.5, math.nan, 0.75]):
        writer.log(step, {"eval/accuracy": value} if value != 0.5 else {"eval/accuracy": value, "perf/step_s": 1.0})
    writer.close()
    assert series(read_metrics(tmp_path), "eval/accuracy") == [(0, 0.5), (2, 0.75)]
    assert series(read_metrics(tmp_path), "perf/step_s") == [(0, 1.0)]
    assert series(read_metrics(tmp_path), "perf/train_s") == []


@pytest.mark.parametrize("name", ["reward", "pipeline/staleness", "rollout", "step"])
def test_a_name_outside_the_namespaces_is_refused_and_not_written(tmp_path, config, name):
    writer = MetricsWriter(tmp_path, config, resolved={}, name="toy", first_step=0)
    with pytest.raises(ValueError, match=f"metric '{name}' must start with one of rollout/, train/, perf/, eval/"):
        writer.log(1, {"rollout/raw_reward": 1.0, name: 1.0})
    writer.log(1, {"rollout/raw_reward": 2.0})
    writer.close()
    assert series(read_metrics(tmp_path), "rollout/raw_reward") == [(1, 2.0)]


@pytest.mark.parametrize("again", [3, 2])
def test_a_step_is_logged_once(tmp_path, config, again):
    writer = MetricsWriter(tmp_path, config, resolved={}, name="toy", first_step=2)
    writer.log(3, {})
    with pytest.raises(ValueError, match=f"step {again} is logged already; the next is 4"):
        writer.log(again, {})
    writer.close()


def test_a_resumed_run_takes_the_place_of_the_steps_it_takes_again(tmp_path, write):
    write(0, 1, 2, 3, 4, 5)
    write(4, 5, 6, first_step=4)
    expected = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4.04), (5, 5.04), (6, 6.04)]
    assert series(read_metrics(tmp_path), "rollout/raw_reward") == expected
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME], "nothing is left aside"


def test_a_cut_last_line_is_dropped_on_resume_and_not_read_before(tmp_path, write):
    write(0, 1, 2)
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:-5])
    assert [line.step for line in read_metrics(tmp_path)] == [0, 1]
    write(2, first_step=2)
    assert [line.step for line in read_metrics(tmp_path)] == [0, 1, 2]


@pytest.mark.parametrize("bad", ['{"step": 1}', '{"step": null, "time": 1}', '{"step": 1, "time": 1, "x": "y"}', "{"])
def test_a_bad_line_is_an_error_that_names_it(tmp_path, write, bad):
    write(0)
    path = tmp_path / FILE_NAME
    before = path.read_text()
    path.write_text(before + bad + "\n")
    with pytest.raises(DataError, match=r"metrics\.jsonl:2: not a line of metrics"):
        read_metrics(tmp_path)
    with pytest.raises(DataError, match=r"metrics\.jsonl:2"):
        write(1, first_step=1)
    assert path.read_text() == before + bad + "\n"


def test_a_directory_without_metrics_is_not_a_run(tmp_path):
    with pytest.raises(RunDirError, match=r"metrics\.jsonl: No such file"):
        read_metrics(tmp_path)
