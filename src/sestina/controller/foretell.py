"""Instances with a pool of keys and values are told what comes next, so that it is there when it comes."""

from sestina.controller.ranks import Ranks
from sestina.core.units import Seconds
from sestina.policies.planner import RolloutPlanner
from sestina.transport.messages import UpcomingChunks

FORETELL_S: Seconds = 0.05
"""How often, at most."""
FORETOLD = 8
"""Requests that come next, for each instance."""


class Foretelling:
    """Tells all instances of a run."""

    def __init__(self, planner: RolloutPlanner, ranks: Ranks) -> None:
        self._planner = planner
        self._ranks = ranks
        self._at_s: Seconds = 0.0

    def look(self, now: Seconds) -> None:
        """Tell them again if it is time to."""
        if now < self._at_s:
            return
        self._at_s = now + FORETELL_S
        rollouts = self._ranks.layout.rollouts
        upcoming = self._planner.upcoming(FORETOLD * len(rollouts))
        ids = tuple(entry.id for entry in upcoming)
        for instance, rank in enumerate(rollouts):
            near = tuple(entry.id for entry in upcoming if entry.instance == instance)
            self._ranks.send(rank, UpcomingChunks(ids=ids, near=near))
