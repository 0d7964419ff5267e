"""What prompts were answered, from the batch that said it to the instances that draft from it (docs/decisions/0018).

One thread of its own does everything that takes time: compressing, reading and writing. Nothing waits for it but a
checkpoint and the end of the run.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from sestina.controller.ranks import Ranks
from sestina.controller.run_dir import HISTORY
from sestina.controller.sample import Sample
from sestina.core.errors import DeadlineError
from sestina.core.ids import EVAL_GROUPS, GroupId
from sestina.core.units import InstanceId, Seconds, TokenArray
from sestina.drafting.history.answers import Answers, prompt_key, to_record, weights_of
from sestina.drafting.history.checkpoint import read_history, write_history
from sestina.drafting.history.store import HistoryStore
from sestina.transport.messages import GroupHistory

_log = logging.getLogger(__name__)
T = TypeVar("T")


class Histories:
    """Of one run. Everything is called from the controller's event loop."""

    def __init__(self, run_dir: Path, ranks: Ranks, tasks: asyncio.TaskGroup, *, limit_bytes: int, digest: str) -> None:
        self._store = HistoryStore(run_dir / HISTORY, limit_bytes=limit_bytes)
        self._ranks = ranks
        self._tasks = tasks
        self._digest = digest
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="histories")
        self._sent: set[tuple[InstanceId, GroupId]] = set()
        self._under_way: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[None]] = set()
        """Of these, the ones that end in a message."""
        self._recording: asyncio.Task[None] | None = None
        self._lost = 0
        """Records of checkpoints that were dropped."""

    def record(self, samples: Sequence[Sample]) -> None:
        """Take in a finished batch, ordered by group; returns at once."""
        done = {sample.id.group for sample in samples}
        self._sent = {(instance, group) for instance, group in self._sent if group not in done}
        self._recording = self._begin(self._record(samples, self._recording))

    def dispatched(self, instance: InstanceId, sample: Sample) -> None:
        """A chunk has left for an instance: what its prompt was answered follows, once."""
        group = sample.id.group
        if group >= EVAL_GROUPS or (instance, group) in self._sent:
            return
        self._sent.add((instance, group))
        task = self._begin(self._send(instance, group, sample.prompt.tokens))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def stop_sending(self) -> None:
        """Send nothing more: ranks that are told to leave take no message after that."""
        for task in self._sending:
            task.cancel()

    async def save(self, path: Path, limit_s: Seconds) -> None:
        """Write all that was recorded; raises DeadlineError."""

        async def write() -> None:
            if self._recording is not None:
                await self._recording
            await self._do(lambda: write_history(path, self._store, self._digest))

        await _within(limit_s, write(), f"{path} to be written")

    async def restore(self, path: Path, limit_s: Seconds) -> None:
        """Go on from what a checkpoint holds; what is damaged or of other prompts is said, and drafts begin without it.

        Raises DeadlineError.
        """
        if not path.exists():
            _log.warning("%s: no such file; drafts from history begin with this run's own responses", path)
            return
        reading = self._do(lambda: read_history(path, self._store, self._digest))
        done = await _within(limit_s, reading, f"{path} to be read")
        self._lost += done.num_dropped
        if done.why:
            _log.warning("%s: %s; %d prompts begin without a history", path, done.why, done.num_dropped)

    def metrics(self) -> dict[str, float]:
        """Return what is held, and what was dropped since the run began."""
        return {
            "spec/history/prompts": float(len(self._store)),
            "spec/history/prompts_on_disk": float(self._store.num_spilled),
            "spec/history/prompts_lost": float(self._lost + sum(self._store.counts.values())),
            "spec/history/bytes": float(self._store.held_bytes),
        }

    def close(self) -> None:
        """Forget everything, files included; returns when the thread has ended."""
        for task in self._under_way:
            task.cancel()
        self._thread.shutdown(cancel_futures=True)
        self._store.clear()

    async def _record(self, samples: Sequence[Sample], before: asyncio.Task[None] | None) -> None:
        """Group by group, so that what is asked for meanwhile waits for one of them at most."""
        if before is not None:
            await before
        for _, group in groupby(samples, key=lambda sample: sample.id.group):
            await self._do(partial(self._put, tuple(group)))

    def _put(self, answered: Sequence[Sample]) -> None:
        responses = tuple(sample.tokens for sample in answered)
        answers = Answers(responses=responses, weights=weights_of([sample.reward for sample in answered]))
        self._store.put(prompt_key(answered[0].prompt.tokens), to_record(answers))

    async def _send(self, instance: InstanceId, group: GroupId, prompt: TokenArray) -> None:
        record = await self._do(lambda: self._store.get(prompt_key(prompt)))
        if record is not None:
            history = GroupHistory(group=group, prompt=prompt, record=record)
            self._ranks.send(self._ranks.layout.rollouts[instance], history)

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._tasks.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


async def _within(limit_s: Seconds, work: Awaitable[T], awaited: str) -> T:
    try:
        async with asyncio.timeout(limit_s):
            return await work
    except TimeoutError:
        raise DeadlineError(awaited, limit_s) from None
