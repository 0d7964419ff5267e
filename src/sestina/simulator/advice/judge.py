"""What there is to say of a point: why it is refused, or what it is predicted to take."""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Sequence

from sestina.config.change import Changes, as_overrides, with_changes
from sestina.config.run import RunConfig
from sestina.config.sim import SimConfig
from sestina.controller.unsupported import unsupported
from sestina.core.errors import ConfigError, UserError
from sestina.core.units import Seconds
from sestina.simulator.advice.axes import Axis
from sestina.simulator.advice.descent import Point
from sestina.simulator.prediction import Prediction, predict, shortened
from sestina.simulator.world import World, world_of


class Judge:
    """Remembers all it was asked about; simulates no more points than `most`."""

    def __init__(
        self, config: RunConfig, sim: SimConfig, axes: Sequence[Axis], *, most: int, say: Callable[[str], None]
    ) -> None:
        """`config`: the user's, and `sim` its world."""
        self._config, self._sim, self._axes = config, sim, axes
        self._most, self._say = most, say
        self._worlds: dict[Point, World | None] = {}
        self._costs: dict[Point, Seconds] = {}
        self._best_s = math.inf
        self.predictions: dict[Point, Prediction] = {}
        self.refusals: Counter[str] = Counter()
        """Points for each term, which is a dotted key."""
        self.reasons: dict[str, str] = {}
        """The first violation of each."""
        self.passed_over: set[Point] = set()
        """Points whose training and weights alone take longer than the best step."""

    @property
    def num_refused(self) -> int:
        """Points that cannot be had."""
        return sum(world is None for world in self._worlds.values())

    @property
    def spent(self) -> bool:
        """Whether no more points may be simulated."""
        return len(self.predictions) >= self._most

    def changes(self, point: Point) -> Changes:
        """Return what sets a point apart from the user's configuration."""
        options = [axis.options[place] for axis, place in zip(self._axes, point, strict=True)]
        return {key: value for option in options for key, value in option.items()}

    def world(self, point: Point) -> World | None:
        """Return the world of a point; None when it is refused, which is counted."""
        if point not in self._worlds:
            try:
                self._worlds[point] = self._allowed(self.changes(point))
            except UserError as error:
                self._worlds[point] = None
                self._count(error)
        return self._worlds[point]

    def cost(self, point: Point) -> Seconds:
        """Return the predicted seconds of a step; infinite for a point that is refused, or not simulated."""
        if point not in self._costs:
            world = self.world(point)
            self._costs[point] = math.inf if world is None else self._simulated(point, world)
        return self._costs[point]

    def _allowed(self, changes: Changes) -> World:
        """Raise a UserError with all that speaks against the run, or against its simulation."""
        config = with_changes(self._config, changes)
        if beyond := unsupported(dataclasses.replace(config, sim=None)):
            raise ConfigError(beyond)
        return world_of(shortened(config), self._sim)

    def _count(self, error: UserError) -> None:
        lines = error.violations if isinstance(error, ConfigError) else [str(error)]
        reasons = {line.partition(":")[0]: line for line in lines}
        self.refusals.update(reasons.keys())
        self.reasons = reasons | self.reasons

    def _simulated(self, point: Point, world: World) -> Seconds:
        if _at_least_s(world) >= self._best_s:
            self.passed_over.add(point)
            return math.inf
        if self.spent:
            return math.inf
        found = self.predictions[point] = predict(world)
        self._best_s = min(self._best_s, found.step_s)
        what = as_overrides(self.changes(point)) or "as configured"
        self._say(f"{len(self.predictions)} of at most {self._most}: a step of {found.step_s:,.1f} s, {what}")
        return found.step_s


def _at_least_s(world: World) -> Seconds:
    """Return what a step takes beside its rollout, where one comes after the other."""
    if world.config.run.mode != "sync":
        return 0.0
    lengths = [group.prompt_tokens + length for group in world.workload(1) for length in group.lengths]
    return world.training.batch_s(lengths) + world.weights_s
