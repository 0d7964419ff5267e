"""Where the training loop gets its batches from, whatever the mode."""

from typing import Protocol

from sestina.controller.offer import Offer
from sestina.controller.sample import Sample
from sestina.controller.stream_state import StreamState
from sestina.core.units import Version


class BatchSource(Protocol):
    """Batches, one after the other, until the run is asked to stop."""

    async def roll_out(self, step: int) -> list[Sample] | None:
        """Return the batch of a step, finished and rewarded; None when a stop was asked for meanwhile."""
        ...

    def waiting_for(self) -> str:
        """Say in a few words what the batch still needs."""
        ...

    def metrics(self) -> dict[str, float]:
        """Return what is to be said of the last batch beside its samples."""
        ...

    def published(self, version: Version) -> None:
        """Every instance has these weights."""
        ...

    async def make_way(self, offer: Offer) -> Offer:
        """Return what an evaluation offers, once nothing is under way that it would get in the way of."""
        ...

    def state(self) -> StreamState | None:
        """Return what a checkpoint of this moment has to keep of samples; None: nothing."""
        ...

    def restore(self, state: StreamState | None) -> None:
        """Go on from a checkpoint; to be called before the first batch."""
        ...

    def forget(self, step: int) -> None:
        """Remove what was kept aside of steps up to this one, which has a checkpoint."""
        ...
