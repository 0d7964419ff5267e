import itertools
import json
import numbers
from dataclasses import replace

import pytest

from sestina.analysis.perfetto import write_timeline
from sestina.analysis.run import read_run
from sestina.telemetry.traces import write_step

REQUIRED = {"X": {"name", "cat", "ts", "dur", "pid", "tid"}, "M": {"name", "pid", "args"}, "C": {"name", "ts", "args"}}
"""By phase, as the Trace Event Format has it: complete events, metadata, counters."""


@pytest.fixture(scope="module")
def timeline(divided, tmp_path_factory):
    path = tmp_path_factory.mktemp("timeline") / "timeline.json"
    assert write_timeline(divided, path) > 0
    return json.loads(path.read_text())


def test_it_is_of_the_documented_format(timeline):
    assert timeline["displayTimeUnit"] in ("ms", "ns")
    for event in timeline["traceEvents"]:
        assert REQUIRED[event["ph"]] <= event.keys()
        assert isinstance(event["pid"], int)
        assert all(isinstance(event[name], numbers.Real) for name in ("ts", "dur") if name in event)
        assert event.get("dur", 0) >= 0
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
        if event["ph"] == "C":
            assert all(isinstance(value, numbers.Real) for value in event["args"].values())


def test_every_chunk_is_there_and_slices_of_a_thread_nest_or_follow(timeline, divided):
    slices = [event for event in timeline["traceEvents"] if event["ph"] == "X"]
    assert sum(event["pid"] > 0 for event in slices) == divided.chunks.num_rows
    threads = {}
    for event in slices:
        if event["pid"]:
            threads.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in threads.values():
        spans.sort()
        assert all(before[1] <= after[0] + 1e-2 for before, after in itertools.pairwise(spans))


def test_the_controllers_thread_has_the_steps_and_their_phases(timeline, divided):
    mine = [event for event in timeline["traceEvents"] if event["ph"] == "X" and event["pid"] == 0]
    assert [event["name"] for event in mine if event["cat"] == "step"] == ["step 1", "step 2"]
    first = [event for event in mine if event["args"]["step"] == 1]
    assert [event["name"] for event in first] == ["step 1", "rollout", "train", "weights"]
    assert first[0]["ts"] == 0
    assert sum(event["dur"] for event in first[1:]) == pytest.approx(first[0]["dur"], abs=1)
    assert first[2]["dur"] == pytest.approx(0.5e6, abs=1)


def test_nothing_of_an_asynchronous_run_is_before_its_first_offer(left, tmp_path):
    run = left("asynchronous", "run.mode=async", "algorithm=ppo", "algorithm.batch_size=32")
    requests, chunks = run.rows_of(1)
    late = [replace(requests[0], offered_s=requests[0].finished_s), *requests[1:]]
    write_step(run.path, 1, late, chunks)
    write_timeline(read_run(run.path), tmp_path / "timeline.json")
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    assert min(event["ts"] for event in events) == 0


def test_counters_come_down_to_nothing(timeline):
    counters = {}
    for event in timeline["traceEvents"]:
        if event["ph"] == "C":
            counters[event["pid"]] = event["args"]["chunks"]
    assert counters == {1: 0, 2: 0, 3: 0}
