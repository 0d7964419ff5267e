import io
import math
from dataclasses import replace

import pytest
from PIL import Image
from rich.console import Console

from sestina.core.errors import RunDirError
from sestina.telemetry.figure import draw
from sestina.telemetry.idle import Idle
from sestina.telemetry.metrics import MetricsWriter
from sestina.telemetry.report import summary
from sestina.telemetry.sweep import CAUSES
from sestina.telemetry.traces import write_step

from .helpers import Rollouts, step_values, write_run


def text_of(run_dir):
    console = Console(record=True, width=110, file=io.StringIO())
    console.print(summary(run_dir))
    return console.export_text()


def row(text, label):
    (line,) = (line for line in text.splitlines() if line.strip().startswith(label))
    return line.strip().removeprefix(label).strip()


@pytest.fixture
def log(tmp_path, config):
    def write(*steps):
        writer = MetricsWriter(tmp_path, config, resolved={}, name="toy", first_step=0)
        for step, values in steps:
            writer.log(step, values)
        writer.close()

    return write


def test_the_report_says_what_was_learnt_and_where_time_went(tmp_path, log):
    log(
        (0, {"eval/accuracy": 0.25, "eval/correct_response_len/mean": 20.0}),
        (1, step_values(0.125)),
        (2, step_values(0.5, **{"rollout/tail_share": 0.75, "eval/accuracy": 0.5})),
        (3, step_values(0.75, **{"eval/accuracy": 0.625, "eval/correct_response_len/mean": 31.0})),
    )
    text = text_of(tmp_path)
    assert f"{tmp_path.name}: 3 steps" in text
    assert row(text, "reward  ") == "0.125 -> 0.750  (steps 1 -> 3)"
    assert row(text, "accuracy, held-out") == "0.250 -> 0.625  (steps 0 -> 3)"
    assert row(text, "length of correct answers, held-out") == "20.0 -> 31.0  (steps 0 -> 3)"
    assert row(text, "length of correct answers, training") == "30.0 -> 30.0  (steps 1 -> 3)"
    assert row(text, "time in steps") == "10s, 3.40 s each"
    assert row(text, "rollout") == "5.7s (56 %), 1.90 s each"
    assert row(text, "train ") == "3.6s (35 %), 1.20 s each"
    assert row(text, "weights") == "0.3s (3 %), 0.10 s each"
    assert row(text, "other") == "0.6s (6 %), 0.20 s each"
    assert row(text, "tokens generated") == "24,000, 4211 per second of rollout"
    assert row(text, "after 90 % of responses were finished") == "42 % of rollout time"
    assert row(text, "preemptions") == "6"
    assert row(text, "reward failures") == "3"


def test_what_instances_lost_is_told_by_cause(tmp_path, log):
    idle = Idle(area_s=20.0, useful_s=12.0, lost_s={cause: 0.5 * n for n, cause in enumerate(CAUSES)} | {"rest": -6.0})
    log((1, step_values(0.5, **idle.metrics())), (2, step_values(0.5, **idle.metrics())))
    text = text_of(tmp_path)
    assert row(text, "instance-seconds without a token") == "9.0 of 40.0 (22 %)"
    assert row(text, "imbalance of instances") == "1.0 (2 %)"
    assert row(text, "training") == "5.0 (12 %)"


def test_where_losses_are_unknown_nothing_is_said_of_them(tmp_path, log):
    log((1, step_values(0.5)))
    assert "without a token" not in text_of(tmp_path)


def test_the_tail_is_weighed_by_the_time_of_its_rollout(tmp_path, log):
    log(
        (1, step_values(1, **{"rollout/tail_share": 0.5, "perf/rollout_s": 1.0})),
        (2, step_values(1, **{"rollout/tail_share": 0.1, "perf/rollout_s": 3.0})),
        (3, step_values(1, **{"rollout/tail_share": math.nan, "perf/rollout_s": 100.0})),
    )
    assert row(text_of(tmp_path), "after 90 % of responses were finished") == "20 % of rollout time"


def test_what_was_not_measured_is_said_so(tmp_path, log):
    values = step_values(0.5, **{"rollout/correct_response_len/mean": math.nan})
    log((1, {name: value for name, value in values.items() if name != "rollout/tail_share"}))
    text = text_of(tmp_path)
    assert row(text, "accuracy, held-out") == "not measured"
    assert row(text, "length of correct answers, training") == "not measured"
    assert row(text, "after 90 % of responses were finished") == "not measured"


def test_a_run_without_a_step_has_no_report(tmp_path, log):
    log((0, {"eval/accuracy": 0.25}))
    with pytest.raises(RunDirError, match="no step was taken"):
        summary(tmp_path)


def pixels(path):
    with Image.open(path) as image:
        assert image.format == "PNG"
        return {colour for _, colour in image.convert("RGB").getcolors(1 << 24)}, image.size


def test_a_run_is_drawn_from_its_directory(tmp_path, config):
    write_run(tmp_path / "toy", config, num_steps=4, eval_every=2)
    draw(tmp_path / "toy", tmp_path / "run.png")
    colours, (width, height) = pixels(tmp_path / "run.png")
    assert (width, height) == (1800, 750)
    reward, accuracy, tail = (0x1F, 0x6F, 0xB4), (0xD9, 0x73, 0x0D), (0xF6, 0xE2, 0xDC)
    instances = {(0x44, 0x77, 0xAA), (0xEE, 0x88, 0x66), (0x22, 0x88, 0x33)}
    assert {reward, accuracy, tail} | instances <= colours
    assert not list(tmp_path.glob(".*"))


def test_a_run_without_evaluation_or_traces_is_drawn_too(tmp_path, log):
    log((1, step_values(-3.0)), (2, step_values(4.0)))
    draw(tmp_path, tmp_path / "run.png")
    colours, _ = pixels(tmp_path / "run.png")
    assert (0x1F, 0x6F, 0xB4) in colours
    assert (0xF6, 0xE2, 0xDC) not in colours


def test_a_run_with_neither_reward_nor_accuracy_nor_time_is_drawn_too(tmp_path, log):
    log((1, {"perf/step_s": 1.0}))
    (request, *_), _ = Rollouts().step(1)
    write_step(tmp_path, 1, [replace(request, offered_s=5.0, started_s=5.0, finished_s=5.0)], [])
    draw(tmp_path, tmp_path / "run.png")
    assert pixels(tmp_path / "run.png")[1] == (1800, 750)


def test_evaluation_is_not_drawn_as_rollout(tmp_path, log):
    log((1, step_values(0.5)))
    requests, chunks = Rollouts().step(1)
    write_step(tmp_path, 1, [replace(r, evaluation=True) for r in requests], chunks)
    draw(tmp_path, tmp_path / "run.png")
    colours, _ = pixels(tmp_path / "run.png")
    assert (0x22, 0x88, 0x33) not in colours


def test_a_run_without_metrics_is_not_drawn(tmp_path, log):
    log()
    with pytest.raises(RunDirError, match="no metrics were logged"):
        draw(tmp_path, tmp_path / "run.png")
    assert not (tmp_path / "run.png").exists()


def test_an_asynchronous_run_has_no_span_of_rollout(tmp_path, log):
    log((1, step_values(0.5, **{"async/staleness_max": 1.0})), (2, step_values(0.5, **{"async/staleness_max": 3.0})))
    text = text_of(tmp_path)
    assert "per second of step" in row(text, "tokens generated")
    assert row(text, "staleness at most") == "3 versions"
    assert "after 90 %" not in text
