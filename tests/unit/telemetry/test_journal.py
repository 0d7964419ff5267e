import json
import os
import signal
import subprocess
import sys

import pytest

from sestina.core.errors import DataError
from sestina.core.ids import RequestId
from sestina.policies.events import Reward, SampleRewarded
from sestina.policies.planner import build_planner
from sestina.telemetry.journal import FLUSH_BYTES, Journal, read_journal
from sestina.telemetry.replay import replay

from .helpers import Rollouts

EVENT = SampleRewarded(request=RequestId(3, 1))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def journal_of(path, kind="divided", *, steps=1):
    journal = Journal(path)
    rollouts = Rollouts(kind, journal=journal)
    for step in range(1, steps + 1):
        rollouts.step(step)
    journal.close()
    return rollouts.history


@pytest.mark.parametrize("kind", ["group", "divided", "context", "oracle"])
def test_a_journal_replays_into_a_fresh_planner(path, kind):
    history = journal_of(path, kind, steps=2)
    (segment,) = read_journal(path)
    assert [(e.event, e.now, list(e.commands)) for e in segment.entries] == history
    assert [e.line for e in segment.entries] == list(range(1, len(history) + 1))
    assert not segment.cut
    assert replay(segment, build_planner(kind, chunk_tokens=48, seed=5)) is None


def test_a_replay_tells_where_another_planner_differs_first(path):
    history = journal_of(path)
    (segment,) = read_journal(path)
    difference = replay(segment, build_planner("divided", chunk_tokens=47, seed=5))
    assert difference is not None
    first = next(i for i, (_, _, commands) in enumerate(history) if commands)
    assert difference.entry == segment.entries[first]
    assert {command.max_tokens for command in difference.answer} == {47}


def test_a_resumed_run_is_a_segment_of_its_own(path):
    first, second = journal_of(path), journal_of(path)
    segments = list(read_journal(path))
    assert [len(s.entries) for s in segments] == [len(first), len(second)]
    assert [s.cut for s in segments] == [False, False]
    for segment in segments:
        assert replay(segment, build_planner("divided", chunk_tokens=48, seed=5)) is None


def test_a_cut_last_line_is_left_out_and_told(path):
    history = journal_of(path)
    os.truncate(path, path.stat().st_size - 4)
    (segment,) = read_journal(path)
    assert segment.cut
    assert len(segment.entries) == len(history) - 1


def test_a_cut_last_line_is_removed_and_told_after_a_resume(path):
    history = journal_of(path)
    os.truncate(path, path.stat().st_size - 4)
    journal_of(path)
    first, second = read_journal(path)
    assert (len(first.entries), first.cut) == (len(history) - 1, True)
    assert (len(second.entries), second.cut) == (len(history), False)


def test_a_journal_of_one_cut_line_resumes(path):
    path.write_bytes(b'{"now": 1.0, "ev')
    journal_of(path)
    first, second = read_journal(path)
    assert (first.entries, first.cut) == ((), True)
    assert second.entries[0].line == 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"now": 1.0, "event": {"type": "Nothing"}, "commands": []}', "type is 'Nothing', allowed are BatchOffered"),
        (b'{"now": 1.0, "event": {"type": "ChunkFinished"}, "commands": []}', "missing required field"),
        (b'{"now": 1.0, "event": {"type": "SampleRewarded", "request": 3}, "commands": []}', r"at `\$\.request`"),
        (b'{"now": 1.0, "event": {"type": "Reward", "request": {"group": 1, "sample": 1}}, "commands": []}', "Reward"),
        (b'{"resumed": true}', "missing required field `time`"),
        (b"\xff", "utf-8|malformed"),
    ],
)
def test_any_other_bad_line_is_an_error_that_names_it(path, line, reason):
    journal = Journal(path)
    journal.record(EVENT, 1.0, [])
    journal.close()
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(DataError, match=rf"journal\.jsonl:2: not a line of a journal: .*({reason})"):
        list(read_journal(path))


def test_a_journal_that_is_not_there_is_an_error(path):
    with pytest.raises(DataError, match=r"journal\.jsonl: No such file"):
        list(read_journal(path))


def num_lines(path):
    return path.read_bytes().count(b"\n")


def test_lines_are_written_each_second_and_before_they_pile_up(path):
    journal = Journal(path)
    journal.record(EVENT, 10.0, [])
    assert num_lines(path) == 1
    journal.record(EVENT, 10.5, [])
    journal.tick(10.9)
    assert num_lines(path) == 1
    journal.tick(11.0)
    assert num_lines(path) == 2
    commands = [Reward(request=RequestId(0, sample)) for sample in range(FLUSH_BYTES // 40)]
    journal.record(EVENT, 11.1, commands)
    assert num_lines(path) == 3
    journal.record(EVENT, 11.2, [])
    journal.flush()
    assert num_lines(path) == 4
    journal.close()


def test_flushed_lines_outlive_a_killed_process(path):
    script = f"""
import os, signal
from pathlib import Path
from sestina.core.ids import RequestId
from sestina.policies.events import SampleRewarded
from sestina.telemetry.journal import Journal
journal = Journal(Path({str(path)!r}))
for now in (1.0, 1.5, 2.5, 2.6):
    journal.record(SampleRewarded(request=RequestId(3, 1)), now, [])
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=30, check=False)
    assert done.returncode == -signal.SIGKILL
    (segment,) = read_journal(path)
    assert [entry.now for entry in segment.entries] == [1.0, 1.5, 2.5]


def test_a_line_reads_as_documented(path):
    journal = Journal(path)
    journal.record(EVENT, 12.5, [Reward(request=RequestId(3, 0))])
    journal.close()
    request = {"group": 3, "sample": 0}
    assert json.loads(path.read_text()) == {
        "now": 12.5,
        "event": {"type": "SampleRewarded", "request": {"group": 3, "sample": 1}},
        "commands": [{"type": "Reward", "request": request}],
    }
