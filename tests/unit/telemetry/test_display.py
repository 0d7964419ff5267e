import io
from dataclasses import replace

import pytest
from rich.console import Console

from sestina.telemetry.display import LiveDisplay, duration, plain_line, render

from .helpers import summary_of
from .test_status import STATUS


def shown(status, now=1040.0, width=100):
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(render(status, now))
    return console.export_text()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (3.44, "3.4s"), (9.97, "10s"), (59.6, "1m00s"), (95, "1m35s"), (3599.7, "1h00m"), (7500, "2h05m")],
)
def test_durations_read_as_people_say_them(seconds, text):
    assert duration(seconds) == text


def test_the_line_of_a_step():
    assert plain_line(summary_of(12, **{"eval/accuracy": 0.742})) == (
        "step 12/40  reward 0.731  accuracy 0.742  len 38.2  4210 tok/s  "
        "3.4 s (rollout 1.9, train 1.2, weights 0.1)  ETA 1m35s"
    )
    assert "accuracy" not in plain_line(summary_of(12))


def test_the_display_says_what_the_run_does():
    text = shown(STATUS)
    first, *lines = text.splitlines()
    assert "toy" in first
    assert "step 11/40" in first
    assert "running" in first
    assert "\u2501" in lines[0], "a progress bar"
    assert "40s  ETA 1m35s" in lines[0]
    for words in ("reward 0.731", "accuracy (held-out) 0.742", "tokens/s 4210", "step 3.4 s", STATUS.phase):
        assert words in text
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "no status" not in text


def test_the_latest_steps_are_rows_with_accuracy_where_it_was_measured():
    rows = [line.strip("\u2502 ").split() for line in shown(STATUS).splitlines()]
    assert ["10", "0.731", "0.742", "38.2", "4210", "3.4", "1.9", "1.2", "0.1"] in rows
    assert ["11", "0.731", "38.2", "4210", "3.4", "1.9", "1.2", "0.1"] in rows


def test_progress_grows_with_the_steps():
    def bar(step):
        file = io.StringIO()
        console = Console(width=100, file=file, force_terminal=True, color_system="truecolor")
        console.print(render(replace(STATUS, step=step), 1040.0))
        return file.getvalue().splitlines()[1]

    assert len({bar(step) for step in (0, 10, 20, 40)}) == 4


def test_a_silent_run_shows_its_age_and_an_ended_one_does_not():
    assert "no status" not in shown(STATUS, now=1050.0)
    assert "no status for 13s: the controller (pid 77) is silent" in shown(STATUS, now=1053.0)
    ended = shown(replace(STATUS, state="failed", phase="rollout 1 failed"), now=2003.0)
    assert "no status" not in ended
    assert "failed" in ended.splitlines()[0]
    assert "rollout 1 failed" in ended
    assert "ETA" not in ended
    assert " 40s " in ended.splitlines()[1], "what the run took, not the time since"


def test_before_the_first_step_there_are_no_numbers():
    text = shown(replace(STATUS, step=0, rows=(), accuracy=None, eta_s=None, phase="starting 5 ranks"))
    assert "reward -" in text
    assert "accuracy (held-out) -" in text
    assert "starting 5 ranks" in text
    assert "waiting for the run's first status" in shown(None)


def test_a_phase_is_text_not_markup_and_is_cut_where_the_line_ends():
    text = shown(replace(STATUS, phase="reading [bold]x[/bold] " + "y" * 200), width=60)
    assert "[bold]x[/bold]" in text
    assert all(len(line) <= 60 for line in text.splitlines())
    assert len(text.splitlines()) == len(shown(STATUS, width=60).splitlines())


def test_the_live_display_redraws_and_leaves_the_last_status():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100)
    with LiveDisplay(console) as display:
        display.update(None, 1000.0)
        display.update(STATUS, 1040.0)
        display.update(replace(STATUS, step=12, state="finished"), 1041.0)
    text = file.getvalue()
    assert text.index("first status") < text.index("step 11/40") < text.index("step 12/40")
    assert text.rstrip().endswith("\x1b[?25h"), "the cursor is back"
