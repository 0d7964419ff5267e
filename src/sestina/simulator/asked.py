"""Admission in a world without an event loop: asked for a batch whenever something happened, it looks when it must."""

from typing import TypeVar

from sestina.controller.admission import Admission, GroupOffer
from sestina.controller.ledger import Drawn

OfferT = TypeVar("OfferT", bound=GroupOffer)
ResponseT = TypeVar("ResponseT", bound=Drawn)


class AskedAdmission(Admission[OfferT, ResponseT]):
    """Knows whether a group has ended since it was last asked for a batch."""

    news = True
    """Whether looking through what is open can make a batch; set it when a step begins."""

    def take_if_new(self, step: int) -> list[ResponseT] | None:
        """Return the batch of a step as `take` does, and None at once where nothing has changed."""
        if not self.news:
            return None
        self.news = False
        return self.take(step)

    def _wake(self) -> None:
        self.news = True
