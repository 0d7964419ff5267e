"""The planner that a configuration asks for: the same under real and under virtual clocks."""

from sestina.config.run import RunConfig
from sestina.core.noise import derive
from sestina.policies.planner import RolloutPlanner, build_planner

_PLACEMENT = 2
"""Name, below the run's seed, of the key that binds groups to instances."""


def planner_of(config: RunConfig) -> RolloutPlanner:
    """Return a planner that has been told nothing yet."""
    rollout = config.rollout
    return build_planner(
        rollout.scheduler,
        chunk_tokens=rollout.chunk_tokens,
        seed=derive(config.seed, _PLACEMENT),
        affinity_requests=rollout.affinity_requests,
        ranking_groups=rollout.ranking_groups,
    )
