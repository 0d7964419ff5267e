"""A call to a service, in the place that a worker process has in the pool."""

import asyncio
import signal
from typing import Protocol

from sestina.core.seconds import Seconds
from sestina.rewards.messages import Sample
from sestina.rewards.outcome import Outcome, Verdict, failed
from sestina.rewards.service.caller import FailedCallError


class Service(Protocol):
    """What rewards are asked of."""

    async def open(self) -> None:
        """Make calls possible."""
        ...

    async def close(self) -> None:
        """End them."""
        ...

    async def ask(self, sample: Sample, limit_s: Seconds) -> Verdict:
        """Return a finite reward.

        Raises FailedCallError or TimeoutError when there is none, TypeError or ValueError when the sample cannot be
        sent, RewardError when there will not be any.
        """
        ...


class ServiceScorer:
    """One call at a time; those of one pool share their service."""

    def __init__(self, service: Service, *, timeout_s: Seconds) -> None:
        self._service, self._timeout_s = service, timeout_s

    @property
    def alive(self) -> bool:
        """A service that fails is asked again for the next sample."""
        return True

    async def start(self) -> None:
        """Open the service."""
        await self._service.open()

    async def end(self, first: signal.Signals = signal.SIGKILL) -> int:
        """Close the service; there is no process to send `first` to."""
        del first
        await self._service.close()
        return 0

    async def score(self, sample: Sample) -> Outcome:
        """Score a sample; raises RewardError when no further one can be."""
        now = asyncio.get_running_loop().time
        start = now()
        try:
            verdict = await self._service.ask(sample, self._timeout_s)
        except FailedCallError as error:
            return failed("raised", str(error), now() - start, notes=(error.note,))
        except TimeoutError:
            return failed("timeout", f"timeout after {self._timeout_s:g} s", now() - start, notes=("late",))
        except (TypeError, ValueError, OverflowError) as error:
            return failed("raised", f"the sample cannot be sent: {error}", now() - start)
        return Outcome(
            reward=verdict.reward, kind="ok", error=verdict.reason, elapsed_s=now() - start, notes=verdict.notes
        )
