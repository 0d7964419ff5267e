"""Scores in a worker process that is started again whenever it ends."""

import asyncio
import itertools
import math
import signal

from sestina.core.errors import DeadlineError
from sestina.core.units import Seconds
from sestina.rewards.config import WorkerConfig
from sestina.rewards.messages import Answer, Raised, Refused, Said, Sample, Scored, Task, begin, frame
from sestina.rewards.outcome import Outcome, RewardError, failed
from sestina.rewards.process import WorkerProcess

MAX_STARTS = 3
"""A worker that dies this many times in a row before it is ready will not live."""


class Scorer:
    """One worker, one sample at a time."""

    def __init__(self, config: WorkerConfig, *, start_limit_s: Seconds) -> None:
        self._begin = frame(begin(config))
        self._timeout_s = config.timeout_s
        self._start_limit_s = start_limit_s
        self._ids = itertools.count()
        self._process: WorkerProcess | None = None

    async def start(self) -> None:
        """Start a worker and have it load its rule.

        Raises DeadlineError when it is not ready in time, RewardError when it cannot load the rule or keeps dying; call
        `end` then.
        """
        last_words = ""
        for _ in range(MAX_STARTS):
            self._process = await WorkerProcess.spawn()
            try:
                answer = await self._process.ask(self._begin, self._start_limit_s)
            except EOFError:
                last_words = await self._last_words(self._process)
            except TimeoutError:
                raise DeadlineError("a reward worker to load its rule", self._start_limit_s) from None
            else:
                return _check_ready(answer)
        raise RewardError(f"a reward worker died {MAX_STARTS} times before it was ready; the last {last_words}")

    async def _last_words(self, process: WorkerProcess) -> str:
        code = await self.end()
        return f"with {_exit_code(code)}, after writing:\n{process.stderr_tail}"

    async def score(self, sample: Sample) -> Outcome:
        """Score a sample; without a worker afterwards when that took too long or the worker died: see `alive`."""
        task, start = Task(id=next(self._ids), sample=sample), asyncio.get_running_loop().time()
        try:
            sent = frame(task)
        except (TypeError, ValueError, OverflowError) as error:
            return failed("raised", f"the sample cannot be sent to a worker: {error}", 0.0)
        assert self._process
        try:
            return _outcome(await self._process.ask(sent, self._timeout_s), task)
        except TimeoutError:
            await self.end()
            return failed("timeout", f"timeout after {self._timeout_s:g} s", self._timeout_s)
        except EOFError:
            elapsed_s = asyncio.get_running_loop().time() - start
            code = await self.end()
            return failed("died", f"worker died with {_exit_code(code)}", elapsed_s)

    @property
    def alive(self) -> bool:
        """Whether there is a worker to score with."""
        return self._process is not None

    async def end(self, first: signal.Signals = signal.SIGKILL) -> int:
        """End the worker, if there is one, beginning with signal `first`; returns its exit code."""
        code = await self._process.end(first) if self._process else 0
        self._process = None
        return code


def _check_ready(answer: Answer) -> None:
    if isinstance(answer, Refused):
        raise RewardError(f"a reward worker cannot load its rule: {answer.error}\n{answer.traceback}")


def _outcome(answer: Answer, task: Task) -> Outcome:
    match answer:
        case Scored(id=task.id, reward=reward, elapsed_s=elapsed_s, reason=reason, notes=notes):
            return Outcome(reward=reward, kind="ok", error=reason, elapsed_s=elapsed_s, notes=notes)
        case Said(id=task.id, text=text, elapsed_s=elapsed_s):
            return Outcome(reward=math.nan, kind="ok", error=None, elapsed_s=elapsed_s, text=text)
        case Raised(id=task.id, error=error, traceback=traceback, elapsed_s=elapsed_s):
            return failed("raised", error, elapsed_s, traceback)
        case _:
            raise RewardError(f"a reward worker was asked about task {task.id} and answered {answer}")


def _exit_code(code: int) -> str:
    return f"exit code {code}" + (f" ({signal.Signals(-code).name})" if code < 0 else "")
