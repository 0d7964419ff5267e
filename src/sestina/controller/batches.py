"""Batches, one after the other, until the run is asked to stop; what a stop interrupts is kept for the next start."""

import asyncio
import logging
import time

from sestina.config.fingerprint import fingerprint
from sestina.config.run import RunConfig
from sestina.controller.driver import RolloutDriver
from sestina.controller.feed import Feed
from sestina.controller.offer import Offer
from sestina.controller.run_dir import UNFINISHED
from sestina.controller.sample import Sample
from sestina.controller.stop import StopRequest
from sestina.controller.stream_state import StreamState
from sestina.controller.unfinished import Place, read_unfinished, write_unfinished
from sestina.core.units import Version

_log = logging.getLogger(__name__)


class Batches:
    """A `BatchSource` that rolls out a step's prompts, or what an earlier start has left to do of them."""

    def __init__(self, config: RunConfig, feed: Feed, driver: RolloutDriver, stop: StopRequest) -> None:
        self._config = config
        self._feed = feed
        self._driver = driver
        self._stop = stop
        self._path = config.dir / UNFINISHED
        self._kept_step: int | None = None

    async def roll_out(self, step: int) -> list[Sample] | None:
        """See `BatchSource.roll_out`."""
        offer = self._feed.draw(step)
        samples = None if self._stop.asked else await self._until_stopped(offer)
        if samples is None:
            self._feed.put_back()
        return samples

    def waiting_for(self) -> str:
        """See `BatchSource.waiting_for`."""
        return self._driver.waiting_for()

    def metrics(self) -> dict[str, float]:
        """See `BatchSource.metrics`."""
        return {}

    def published(self, version: Version) -> None:
        """See `BatchSource.published`; the next batch is offered when it is asked for."""

    async def make_way(self, offer: Offer) -> Offer:
        """See `BatchSource.make_way`; between steps nothing is under way."""
        return offer

    def state(self) -> None:
        """See `BatchSource.state`; between steps nothing is under way."""

    def restore(self, state: StreamState | None) -> None:
        """See `BatchSource.restore`."""

    def forget(self, step: int) -> None:
        """See `BatchSource.forget`."""
        if self._kept_step is None or self._kept_step <= step:
            self._path.unlink(missing_ok=True)

    async def _until_stopped(self, offer: Offer) -> list[Sample] | None:
        kept = read_unfinished(self._path, self._place(offer.step), time.monotonic())
        task = asyncio.ensure_future(self._driver.roll_out(offer, kept))
        self._stop.on_ask = task.cancel
        try:
            return await task
        except asyncio.CancelledError:
            if not self._stop.asked:
                raise
            await self._keep(offer.step)
            return None
        finally:
            self._stop.on_ask = None

    async def _keep(self, step: int) -> None:
        samples = await self._driver.suspend(self._config.deadlines.stop_s)
        tokens = write_unfinished(self._path, self._place(step), samples, time.monotonic())
        self._kept_step = step
        _log.warning("%d tokens of step %d are kept; the next start goes on from them", tokens, step)

    def _place(self, step: int) -> Place:
        return Place(
            step=step,
            version=self._driver.version,
            fingerprint=fingerprint(self._config),
            digest=self._feed.state().digest,
        )
