"""The steps that pass between two which a speculator is asked about, and what of them it has not heard."""

from sestina.core.units import Seconds
from sestina.rollout.drafts import IntArray
from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.speculator import Speculator


class Rest:
    """One per engine. Where drafts do not pay nearly every step passes, so nothing is called but `passed`."""

    def __init__(self) -> None:
        self.left = 0
        """Steps that pass from now on."""
        self._steps = 0
        self._seconds: Seconds = 0.0
        self._slots: IntArray | None = None

    def passed(self, slots: IntArray, seconds: Seconds) -> None:
        """One of them has, took so long, and drew for the requests in these rows."""
        self._slots = slots
        self.left -= 1
        self._steps += 1
        self._seconds += seconds

    def tell(self, speculator: Speculator, table: SlotTable) -> None:
        """Have the speculator hear of those that have passed since it last did, if any."""
        if self._slots is not None:
            speculator.rested(table, self._slots, self._steps, self._seconds)
        self._steps, self._seconds, self._slots = 0, 0.0, None

    def end(self, speculator: Speculator, table: SlotTable) -> None:
        """The next step is asked about, whatever was left."""
        self.tell(speculator, table)
        self.left = 0
