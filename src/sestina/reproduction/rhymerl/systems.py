"""veRL, RhymeRL by parts and AReaL in one world, and what each trains on in a second.

veRL splits a batch evenly among instances and begins the next when the last is rolled out, while that one trains, as
the disaggregated form that the paper compares with does. RhymeRL's instances go on by themselves. AReaL's wait for its
bound of staleness alone; no more than two batches are under way at once, with which instances are full.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sestina.policies.group import EvenScheduler
from sestina.policies.histopipe.scheduler import HistoPipeScheduler
from sestina.policies.planner import RolloutPlanner
from sestina.reproduction.areal import generated_rate, trained_rate
from sestina.reproduction.rhymerl.drafting import histospec
from sestina.reproduction.rhymerl.published import ACCEPTANCE, SIMILARITY
from sestina.reproduction.rhymerl.worlds import LONGEST, PART, Fitted, Model, Setting, world_of_setting
from sestina.simulator.acceptance import NO_DRAFTS, Drafting
from sestina.simulator.rollouts import driver_of, steps_of
from sestina.simulator.world import World

STEPS, WARM_UP = 10, 4
"""Of a pipelined run, and those of them that do not count: HistoPipe learns from them what a part of a batch takes."""
ASYNC_STEPS: Mapping[int, int] = {1: 8, 8: 6}
"""Of AReaL's runs, by eta; they would go on."""
ASYNC_WARM_UP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Systems:
    """Of one model and one limit of lengths."""

    fit: Fitted
    model: Model = "14B"
    longest: int = LONGEST
    part: int = PART

    def verl(self) -> float:
        """Return its tokens a second."""
        setting = Setting(model=self.model, mode="pipelined", longest=self.longest, steps=STEPS, part=self.part)
        lines = _lines(world_of_setting(setting, self.fit), RolloutPlanner(EvenScheduler(seed=0)), STEPS)
        return trained_rate(lines[WARM_UP:])

    def histopipe(self, *, two_tier: bool, drafting: Drafting = NO_DRAFTS) -> float:
        """Return RhymeRL's tokens a second, without drafts if none are given."""
        setting = Setting(
            model=self.model,
            mode="pipelined",
            scheduler="histopipe",
            longest=self.longest,
            steps=STEPS,
            part=self.part,
        )
        world = replace(world_of_setting(setting, self.fit), drafting=drafting)
        return trained_rate(_lines(world, _planner(world, two_tier=two_tier), STEPS)[WARM_UP:])

    def rhymerl(self, task: str = "mathematics") -> float:
        """Return all of RhymeRL's tokens a second; of a task's its drafts alone differ."""
        drafting = histospec(sum(ACCEPTANCE) / len(ACCEPTANCE), SIMILARITY[task])
        return self.histopipe(two_tier=True, drafting=drafting)

    def areal(self, eta: int) -> float:
        """Return the tokens a second that it generates."""
        steps = ASYNC_STEPS[eta]
        setting = Setting(
            model=self.model, mode="async", longest=self.longest, eta=eta, steps=steps + eta + 2, part=self.part
        )
        return generated_rate(_lines(world_of_setting(setting, self.fit), None, steps)[ASYNC_WARM_UP:])


def _planner(world: World, *, two_tier: bool) -> RolloutPlanner:
    rollout = world.config.rollout
    scheduler = HistoPipeScheduler(
        chunk_tokens=rollout.chunk_tokens, num_groups=rollout.ranking_groups, two_tier=two_tier
    )
    return RolloutPlanner(scheduler, observe=scheduler.observe)


def _lines(world: World, planner: RolloutPlanner | None, steps: int) -> list[dict[str, float]]:
    """Return the metrics of a run's first steps."""
    step_of = steps_of(world, driver_of(world, world.config.rollout.scheduler, None, planner))
    return [step_of(step)[1] for step in range(1, steps + 1)]
