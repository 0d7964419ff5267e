import io
import shutil
from dataclasses import replace

import pytest
from PIL import Image

from sestina.analysis.choice import pictures_of
from sestina.analysis.figures.acceptance_by_place import acceptance_by_place
from sestina.analysis.figures.acceptance_by_siblings import acceptance_by_siblings
from sestina.analysis.figures.acceptance_over_time import acceptance_over_time
from sestina.analysis.figures.chunk_sizes import chunk_sizes
from sestina.analysis.figures.completion import completion
from sestina.analysis.figures.losses import losses
from sestina.analysis.figures.occupancy import occupancy
from sestina.analysis.figures.scheduling import scheduling
from sestina.analysis.figures.staleness import staleness
from sestina.analysis.figures.timeline import timeline
from sestina.analysis.figures.toggle_map import toggle_map
from sestina.analysis.picture import AREAS, LINES, Picture
from sestina.analysis.run import read_run
from sestina.core.errors import DataError
from sestina.policies.drafting.calibration import StepPoint, predicted_s
from sestina.telemetry.traces import write_step
from tests.unit.rollout.test_calibration import WRITTEN

from .helpers import leave_run

SPEC = {
    "spec/grouped/acceptance_at_1": 0.5,
    "spec/grouped/acceptance_at_2": 0.25,
    "spec/grouped/acceptance_siblings_0": 0.1,
    "spec/grouped/acceptance_siblings_4_7": 0.4,
}
ASYNC = ("run.mode=async", "algorithm=ppo", "algorithm.batch_size=32")


@pytest.fixture(scope="module")
def context(left):
    return left("context", "rollout=context", "rollout.chunk_tokens=16")


@pytest.fixture(scope="module")
def stale(left):
    return [
        left(f"stale{bound}", *ASYNC, f"async.max_staleness={bound}", values={"async/selection_bias": 0.1 * bound})
        for bound in (4, 0)
    ]


@pytest.fixture(scope="module")
def drafted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "drafted"
    leave_run(folder, "draft=grouped", values=SPEC)
    run = read_run(folder)
    requests, chunks = run.rows_of(2)
    half = [replace(row, drafted_tokens=row.tokens, accepted_tokens=row.tokens // 2) for row in chunks]
    write_step(folder, 2, requests, half)
    return read_run(folder)


def looked_at(picture):
    """What any figure must have: ink, names and units on its axes, a sentence under it."""
    assert isinstance(picture, Picture)
    with Image.open(io.BytesIO(picture.png())) as image:
        assert image.format == "PNG"
        assert len(image.convert("L").getcolors(256)) > 10
    own = [axes for axes in picture.figure.axes if axes.get_label() != "<colorbar>"]
    assert all(axes.get_ylabel() or axes.get_yticklabels() for axes in own)
    assert own[-1].get_xlabel() or own[-1].get_xticklabels()
    assert len(picture.caption) > 40
    return picture.caption


def test_styles_differ_without_their_colours():
    assert len({str(style["linestyle"]) for style in LINES}) == len(LINES)
    assert len({(style["hatch"], style["facecolor"]) for style in AREAS}) == len(AREAS)
    assert len({style["hatch"] for style in AREAS}) >= len(AREAS) - 1


def test_figures_of_the_tail(divided, context):
    caption = looked_at(completion([divided, context]))
    requests, _ = divided.rows_of(2)
    assert "divided " in caption
    assert "context " in caption
    last = max(requests, key=lambda row: row.finished_s)
    assert f"g{last.group}/s{last.sample} with {last.response_tokens} tokens" in looked_at(timeline(divided))
    assert looked_at(occupancy([divided, context], step=1)).count(" %") == 3
    assert "training" in looked_at(losses([divided, context]))


def test_bars_of_losses_fill_the_whole(divided):
    picture = losses([divided])
    [axes] = picture.figure.axes
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(100)


def test_figures_of_sweeps(divided, context, stale):
    assert "16 tokens" in looked_at(chunk_sizes([divided, context])) or "64 tokens" in chunk_sizes([divided]).caption
    left_panel = chunk_sizes([divided, context]).figure.axes[0].lines[0]
    assert list(left_panel.get_xdata()) == [16, 64]
    assert "at a bound of 4 compared with 0" in looked_at(staleness(stale))
    assert list(staleness(stale).figure.axes[2].lines[0].get_ydata()) == pytest.approx([0, 0.4])
    assert "Against divided" in looked_at(scheduling([divided, context]))
    assert "% of tail" in scheduling([divided, context]).caption
    with pytest.raises(DataError, match=r"run\.mode is 'sync'; a sweep of staleness needs 'async'"):
        staleness([divided])
    with pytest.raises(DataError, match="losses are known of synchronous runs alone"):
        losses(stale)


def test_a_change_of_tail_is_stated_where_there_is_one(divided, context, stale, tmp_path):
    few = shutil.copytree(divided.path, tmp_path / "few")
    for step in divided.steps:
        requests, chunks = divided.rows_of(step)
        write_step(few, step, requests[:9], chunks)
    for runs in ([read_run(few), context], [divided, stale[0]]):
        caption = scheduling(runs).caption
        assert "times the throughput" in caption
        assert "tail" not in caption


def test_figures_of_drafts(drafted, divided):
    assert "drafted, grouped 50 %" in looked_at(acceptance_by_place([drafted]))
    [line] = acceptance_by_place([drafted]).figure.axes[0].lines
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([1, 2], [50, 25])
    looked_at(acceptance_by_siblings([drafted]))
    [line] = acceptance_by_siblings([drafted]).figure.axes[0].lines
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([0, 3], [10, 40])
    assert " at first and " in looked_at(acceptance_over_time([drafted]))
    assert 1.5 < max(acceptance_over_time([drafted]).figure.axes[0].lines[0].get_ydata()) <= 2
    for draw in (acceptance_by_place, acceptance_by_siblings):
        with pytest.raises(DataError, match="no run among divided has drafted"):
            draw([divided])
    with pytest.raises(DataError, match="nothing was drafted in step 2"):
        acceptance_over_time([divided])


def test_a_toggle_map_has_the_points_that_were_measured():
    points = tuple(
        _timed(kind, batch, length) for kind, length in (("plain", 0), ("verify", 4)) for batch in (1, 8, 32)
    )
    more = tuple(replace(point, sequence_tokens=512) for point in points)
    calibration = replace(WRITTEN, points=points + more)
    assert "6 of 6 measured points are on the side foretold" in looked_at(
        toggle_map(calibration, length=4, acceptance=0.5)
    )
    with pytest.raises(DataError, match=r"drafts of 7 tokens were not measured; allowed are lengths \[4\]"):
        toggle_map(calibration, length=7, acceptance=0.5)


def _timed(kind, batch, length):
    point = StepPoint(kind=kind, batch=batch, sequence_tokens=64, length=length, seconds=1.0, held_out=False)
    return replace(point, seconds=predicted_s(WRITTEN.cost, point))


def test_what_says_nothing_is_left_out_with_its_reason(divided, stale):
    found = list(pictures_of([divided]))
    assert {each.name for each in found if isinstance(each, Picture)} == {
        "completion",
        "timeline",
        "occupancy",
        "losses",
    }
    lines = [each for each in found if isinstance(each, str)]
    assert "acceptance_by_place: no run drafts" in lines
    assert any("fewer than two asynchronous runs differ in async.max_staleness" in line for line in lines)
    names = [each.name for each in pictures_of(stale) if isinstance(each, Picture)]
    assert "staleness" in names
    assert "losses" not in names
