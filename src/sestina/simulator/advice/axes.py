"""What advice varies: the split of GPUs, scheduler, chunks, drafts, staleness; the run's own values are among them.

An axis does not know what is allowed. Whatever the configuration's rules, or the simulated world, refuse is found out
at the point that has it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from sestina.config.change import Changes
from sestina.config.resolved import as_flat_dict
from sestina.config.run import RunConfig
from sestina.config.split import changes_to, other_shares, share_of
from sestina.policies.planner import SchedulerKind

_CHUNKINGS = 64
"""The shortest chunk tried is no shorter than the longest response over this."""

_DRAFT_TOKENS = (4, 8, 16)
_STALENESS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Values for keys that go together."""

    name: str
    options: tuple[Changes, ...]
    """Against the run's own configuration; one of them changes nothing."""
    ordered: bool
    """Neighbours take similar times, so that the best can be walked to."""

    @property
    def own(self) -> int:
        """Return the place of the option that changes nothing."""
        return self.options.index({})


def axes_of(config: RunConfig) -> tuple[Axis, ...]:
    """Return the axes of a run; raises ConfigError for one that has no GPUs to share."""
    return (
        _axis(config, "split", _splits(config), ordered=True),
        _axis(config, "scheduler", [{"rollout.scheduler": kind} for kind in get_args(SchedulerKind)]),
        _axis(config, "chunks", [{"rollout.chunk_tokens": tokens} for tokens in _chunks(config)], ordered=True),
        _axis(config, "drafts", _drafts()),
        _axis(config, "staleness", _modes()),
    )


def _axis(config: RunConfig, name: str, options: Iterable[Changes], *, ordered: bool = False) -> Axis:
    """Leave out of each option what the run has already; the run's own comes first where it is not among them."""
    own = as_flat_dict(config)
    differing = [{key: value for key, value in option.items() if own[key] != value} for option in options]
    distinct = [option for place, option in enumerate(differing) if option not in differing[:place]]
    return Axis(name=name, options=tuple(distinct if {} in distinct else [{}, *distinct]), ordered=ordered)


def _splits(config: RunConfig) -> list[Changes]:
    own = share_of(config)
    shares = {share.trainer_gpus: share for share in (*other_shares(config), own)}
    return [{} if shares[gpus] == own else changes_to(config, shares[gpus]) for gpus in sorted(shares)]


def _chunks(config: RunConfig) -> list[int]:
    longest = config.rollout.max_new_tokens
    powers = {1 << power for power in range(longest.bit_length()) if 1 << power >= longest / _CHUNKINGS}
    return sorted({config.rollout.chunk_tokens, *powers})


def _drafts() -> list[Changes]:
    grouped = {"draft.source": "grouped", "draft.length": "mba", "draft.toggle": "roofline"}
    return [{"draft.source": "none"}, *({**grouped, "draft.max_tokens": tokens} for tokens in _DRAFT_TOKENS)]


def _modes() -> list[Changes]:
    ahead = [{"run.mode": "async", "async.max_staleness": versions} for versions in _STALENESS]
    return [{"run.mode": "sync"}, *ahead]
