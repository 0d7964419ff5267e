"""Histories on their way through the controller: from a batch to the disk, a checkpoint, and whoever gets a chunk."""

import asyncio
import dataclasses
from types import SimpleNamespace

import pytest

from sestina.controller.histories import Histories
from sestina.core.ids import EVAL_GROUPS, RequestId
from sestina.drafting.history.answers import from_record
from tests.unit.controller.test_batch import NAN, finished

DIGEST = "0123456789abcdef"


class Outbox:
    """Where messages to ranks would leave: instance i is rank i + 1."""

    def __init__(self):
        self.layout = SimpleNamespace(rollouts=(1, 2))
        self.sent = []

    def send(self, rank, message):
        self.sent.append((rank, message))


@pytest.fixture
def samples():
    made = [
        finished(40, 0, [[1, 2], [3]], 1.0),
        finished(40, 1, [[4]], -1.0),
        finished(41, 0, [[5, 6]], NAN, kind="timeout"),
    ]
    for sample, tokens in zip(made, ([7, 8], [7, 8], [7, 9]), strict=True):
        sample.prompt = dataclasses.replace(sample.prompt, tokens=sample.prompt.tokens * 0 + tokens)
    return made


def run(folder, work, limit_bytes=1 << 20, digest=DIGEST):
    """Do something with histories inside a loop; returns what was sent, and the metrics at the end."""

    async def within():
        outbox = Outbox()
        async with asyncio.TaskGroup() as tasks:
            histories = Histories(folder, outbox, tasks, limit_bytes=limit_bytes, digest=digest)
            await work(histories)
            await histories.save(folder / "last", 10)  # behind everything that was asked for
            metrics = histories.metrics()
            histories.close()
        return outbox.sent, metrics

    return asyncio.run(within())


@pytest.mark.parametrize("limit_bytes", [1, 1 << 20])
def test_what_a_prompt_was_answered_follows_its_next_group_once(tmp_path, samples, limit_bytes):
    async def work(histories):
        histories.record(samples)
        await histories.save(tmp_path / "file", 10)
        again = [dataclasses.replace(sample, id=RequestId(sample.id.group + 10, 0)) for sample in samples]
        for sample in again:
            histories.dispatched(1, sample)
        histories.dispatched(0, again[0])
        histories.dispatched(0, dataclasses.replace(again[0], id=RequestId(EVAL_GROUPS, 0)))
        await asyncio.sleep(0)  # what is sent is asked for before the file that `run` ends with

    sent, metrics = run(tmp_path, work, limit_bytes)
    assert [(rank, message.group) for rank, message in sent] == [(2, 50), (2, 51), (1, 50)]
    first, second = (from_record(message.record) for _, message in sent[:2])
    assert [response.tolist() for response in first.responses] == [[1, 2, 3], [4]]
    assert first.weights == (65, 1)
    assert [response.tolist() for response in second.responses] == [[5, 6]]
    assert sent[0][1].prompt.tolist() == [7, 8]
    assert metrics["spec/history/prompts"] == 2
    assert metrics["spec/history/prompts_on_disk"] == (2 if limit_bytes == 1 else 0)
    assert not (tmp_path / "history").exists()


def saved(tmp_path, samples):
    async def work(histories):
        histories.record(samples)

    run(tmp_path, work)
    return tmp_path / "last"


def restored(tmp_path, path, **changes):
    async def work(histories):
        await histories.restore(path, 10)

    return run(tmp_path / "next", work, **changes)[1]


def test_a_checkpoint_gives_back_what_it_was_given(tmp_path, samples):
    path = saved(tmp_path, samples)
    (tmp_path / "next").mkdir()
    metrics = restored(tmp_path, path, limit_bytes=1)
    assert (metrics["spec/history/prompts"], metrics["spec/history/prompts_lost"]) == (2, 0)
    assert (tmp_path / "next/last").read_bytes() == path.read_bytes()


def test_damaged_and_foreign_histories_are_said_and_counted(tmp_path, samples, caplog):
    path = saved(tmp_path, samples)
    (tmp_path / "next").mkdir()
    assert restored(tmp_path, path, digest="f" * 16)["spec/history/prompts_lost"] == 2
    assert "of another prompt set" in caplog.text
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    metrics = restored(tmp_path, path)
    assert (metrics["spec/history/prompts"], metrics["spec/history/prompts_lost"]) == (1, 1)
    assert "damaged or cut short; 1 prompts begin without a history" in caplog.text


def test_a_checkpoint_of_a_run_without_histories_is_gone_on_from(tmp_path, caplog):
    (tmp_path / "next").mkdir()
    assert restored(tmp_path, tmp_path / "absent")["spec/history/prompts"] == 0
    assert "begin with this run's own responses" in caplog.text
