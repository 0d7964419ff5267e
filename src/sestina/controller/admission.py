"""Admission to asynchronous training: which groups begin, and which make the next batch; all of it but the waiting.

gate admits a group -> driver rolls it out -> buffer keeps it -> the trainer takes the oldest that have ended
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from sestina.algorithms.config import DAPOConfig
from sestina.config.run import RunConfig
from sestina.controller.batch import teaches_nothing
from sestina.controller.ledger import Drawn, Ledger, num_tokens
from sestina.controller.unfinished import KeptSample
from sestina.core.errors import RunError
from sestina.core.ids import GroupId, RequestId
from sestina.core.units import Seconds, Version
from sestina.policies.staleness import (
    GateEvent,
    GroupDropped,
    GroupEnded,
    GroupsOffered,
    StalenessGate,
    StalenessLimits,
    VersionPublished,
)
from sestina.replay.buffer import ReplayBuffer

WINDOW_BATCHES, WINDOW = 4, 1024
"""Latest batches that are compared with what was generated, and responses at least."""

FUTILE_BATCHES = 16
"""Filtered groups in a row, in batches, after which no batch is expected to fill."""


class GroupOffer(Protocol):
    """An offer of one group."""

    @property
    def groups(self) -> Sequence[tuple[GroupId, object]]:
        """The group, and what it is made of."""
        ...


OfferT = TypeVar("OfferT", bound=GroupOffer)
Offer_co = TypeVar("Offer_co", bound=GroupOffer, covariant=True)
Offer_contra = TypeVar("Offer_contra", bound=GroupOffer, contravariant=True)
ResponseT = TypeVar("ResponseT", bound=Drawn)


class GroupFeed(Protocol[Offer_co]):
    """Where groups come from; see `Feed`."""

    def draw_group(self) -> Offer_co:
        """Return the next group alone and move past it."""
        ...


class Started(Protocol[ResponseT]):
    """A group that has been offered to the planner."""

    @property
    def samples(self) -> list[ResponseT]:
        """Ordered by (group, sample); they grow as their chunks end."""
        ...


class Overlapping(Protocol[Offer_contra, ResponseT]):
    """A driver whose batches overlap; see `RolloutDriver`."""

    version: Version
    overlaps: bool
    generated_tokens: int

    def start(
        self, offer: Offer_contra, kept: Mapping[RequestId, KeptSample] | None, on_release: Callable[[], None]
    ) -> Started[ResponseT]:
        """Begin a batch and leave it to itself; `on_release` is called when it is released."""
        ...

    def drop(self, group: GroupId) -> None:
        """Have a group end as soon as its chunks are given back."""
        ...


class Admission(Generic[OfferT, ResponseT]):
    """Groups of a run, from where they are drawn to the trainer."""

    def __init__(
        self,
        config: RunConfig,
        feed: GroupFeed[OfferT],
        driver: Overlapping[OfferT, ResponseT],
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        limits, algorithm = config.async_, config.algorithm
        self._config, self._feed, self._driver, self._clock = config, feed, driver, clock
        self._batch_groups = algorithm.batch_size // algorithm.group_size
        self._buffer = ReplayBuffer(
            batch_groups=self._batch_groups, max_staleness=limits.max_staleness, overdue=limits.overdue
        )
        self._ledger = Ledger(window=max(WINDOW_BATCHES * algorithm.batch_size, WINDOW), bias_alarm=limits.bias_alarm)
        self._gate: StalenessGate | None = None
        self._groups: dict[GroupId, list[ResponseT]] = {}
        """Started, and neither trained on nor dropped."""
        self._given_up: set[GroupId] = set()
        """Of these, the ones that were dropped before they ended."""
        self._filters = isinstance(algorithm, DAPOConfig) and algorithm.dynamic_sampling
        self._futile = 0
        """Groups filtered since one was kept."""
        self._taken_s = self._tokens_per_s = 0.0
        driver.overlaps = True

    def take(self, step: int) -> list[ResponseT] | None:
        """Return the batch of a step, finished and rewarded; None: it has to wait. The first call lets groups begin."""
        if self._gate is None:
            self._open_gate(step)
        batch = self._buffer.take(self._driver.version)
        return None if batch is None else self._hand_over(step, batch)

    def metrics(self) -> dict[str, float]:
        """See `BatchSource.metrics`."""
        return self._ledger.metrics | {
            "async/groups_ended": float(self._buffer.num_ended),
            "async/groups_running": float(self._buffer.num_running),
            "async/groups_dropped": float(self._buffer.num_dropped),
            "async/groups_filtered": float(self._buffer.num_filtered),
            "perf/tokens_per_s": self._tokens_per_s,
        }

    def published(self, version: Version) -> None:
        """See `BatchSource.published`; what has grown too old makes room for others."""
        for group, ended in self._buffer.drop(version):
            if ended:
                self._ledger.drop(self._groups.pop(group))
                self._tell(GroupDropped())
            else:
                self._given_up.add(group)
                self._driver.drop(group)
            self._tell(GroupsOffered(count=1))
        self._tell(VersionPublished(version=version))

    def _open_gate(self, step: int) -> None:
        """Let begin as many groups as the steps that are left will train on."""
        limits, ended = self._config.async_, self._buffer.num_ended
        ahead = (limits.max_staleness + 1) * self._batch_groups
        bounds = StalenessLimits(
            max_staleness=limits.max_staleness,
            batch_groups=self._batch_groups,
            max_running=limits.max_running_groups or ahead,
        )
        self._gate = StalenessGate(bounds, version=self._driver.version, accepted=ended)
        steps = self._config.run.steps - step + 1
        self._taken_s = self._clock()
        self._tell(GroupsOffered(count=max(steps * self._batch_groups - ended, self._num_again)))

    def _tell(self, event: GateEvent) -> None:
        assert self._gate is not None, f"{event} before the first batch"
        for admit in self._gate.handle(event, self._clock()):
            for _ in range(admit.count):
                self._start(admit.version)

    def _start(self, version: Version) -> None:
        offer = self._feed.draw_group()
        [(group, _)] = offer.groups
        self._buffer.admit(group, version)
        self._begin(group, offer, {})

    def _begin(self, group: GroupId, offer: OfferT, kept: Mapping[RequestId, KeptSample]) -> None:
        self._groups[group] = self._driver.start(offer, kept, partial(self._ended, group)).samples

    def _ended(self, group: GroupId) -> None:
        samples = self._groups[group]
        given_up = group in self._given_up
        filtered = not given_up and self._filters and teaches_nothing(samples)
        # Those given up are counted too: the long ones are what a batch may come to lack.
        self._ledger.end(samples, filtered=filtered)
        accepted = not given_up and not filtered
        if given_up:
            self._given_up.discard(group)
        else:
            self._keep(group, accepted=accepted)
        if not accepted:
            self._ledger.drop(self._groups.pop(group))
        self._tell(GroupEnded(accepted=accepted))
        self._wake()

    def _keep(self, group: GroupId, *, accepted: bool) -> None:
        if accepted:
            self._futile = 0
            self._buffer.end(group)
            return
        self._futile += 1
        if self._futile > FUTILE_BATCHES * self._batch_groups:
            raise RunError(
                f"algorithm.dynamic_sampling: {self._futile} groups in a row had equal rewards, and the batch does not "
                "fill; prompts of another difficulty, a larger algorithm.group_size or dynamic_sampling=false help"
            )
        self._buffer.filter(group)
        self._tell(GroupsOffered(count=1))

    @property
    def _num_again(self) -> int:
        """Groups that an earlier start of the run has begun and that are yet to begin again."""
        return 0

    @property
    def _tokens_kept(self) -> int:
        """Response tokens of these groups."""
        return 0

    def _wake(self) -> None:
        """Tell whoever waits that a group has ended."""

    def _hand_over(self, step: int, batch: list[GroupId]) -> list[ResponseT]:
        samples = [sample for group in sorted(batch) for sample in self._groups.pop(group)]
        for sample in samples:
            sample.count_as(step)
        now = self._clock()
        self._taken_s, self._tokens_per_s = now, num_tokens(samples) / (now - self._taken_s)
        self._ledger.train(
            samples,
            self._driver.version,
            generated=self._driver.generated_tokens,
            under_way=sum(map(num_tokens, self._groups.values())) + self._tokens_kept,
        )
        return samples
