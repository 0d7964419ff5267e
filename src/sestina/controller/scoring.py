"""What answers a response elsewhere than on an instance: its environment between turns, its reward at the end."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from sestina.controller.sample import Sample
from sestina.controller.turns import Turns
from sestina.models.tokenizer import Tokenizer
from sestina.policies.events import Event, SampleRewarded
from sestina.rewards import messages as rewards
from sestina.rewards.pool import RewardPool


class Scoring:
    """Each answer is a task of its own, which tells the planner when it has come."""

    def __init__(
        self,
        pool: RewardPool,
        turns: Turns | None,
        *,
        tokenizer: Tokenizer,
        tasks: asyncio.TaskGroup,
        tell: Callable[[Event], None],
    ) -> None:
        self._pool = pool
        self._turns = turns
        self._tokenizer = tokenizer
        self._group = tasks
        self._tell = tell
        self._tasks: set[asyncio.Task[None]] = set()

    def observe(self, sample: Sample) -> None:
        """Have the environment answer a turn; mutates the sample."""
        self._later(self._observe(sample))

    def reward(self, sample: Sample) -> None:
        """Have a finished response rewarded; mutates the sample."""
        self._later(self._reward(sample))

    def cancel(self) -> None:
        """Give up all that has not come."""
        for task in self._tasks:
            task.cancel()

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _observe(self, sample: Sample) -> None:
        assert self._turns is not None, f"request {sample.id} ended a turn, and nothing is there to answer"
        self._tell(await self._turns.answer(sample))

    async def _reward(self, sample: Sample) -> None:
        prompt, text = sample.prompt, self._tokenizer.decode(sample.tokens)
        sample.outcome = await self._pool.score(
            rewards.Sample(prompt=prompt.text, response=text, label=prompt.label, meta=prompt.meta)
        )
        sample.rewarded_s = time.monotonic()
        self._tell(SampleRewarded(request=sample.id))
