"""Pipelined training in worlds with virtual clocks: batches a step ahead of a trainer that has a clock of its own.

The driver rolls out, the trainer takes a time that it is told for each batch, and `OneStepOff` says what may begin.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from sestina.controller.unfinished import KeptSample
from sestina.core.ids import RequestId
from sestina.core.units import Seconds, Version
from sestina.policies.one_step_off import OneStepOff

OfferT = TypeVar("OfferT")
Offer_contra = TypeVar("Offer_contra", contravariant=True)
SampleT = TypeVar("SampleT")


class Begun(Protocol[SampleT]):
    """A batch that has been offered to the planner."""

    samples: list[SampleT]
    released: bool


class Overlapping(Protocol[Offer_contra, SampleT]):
    """A driver whose batches overlap, and whose time is virtual."""

    @property
    def now_s(self) -> Seconds:
        """The controller's time."""
        ...

    def start(
        self,
        offer: Offer_contra,
        kept: Mapping[RequestId, KeptSample] | None = None,
        on_release: Callable[[], None] = ...,
    ) -> Begun[SampleT]:
        """Begin a batch and leave it to itself; `on_release` is called when it is released."""
        ...

    def later(self, at: Seconds, happening: Callable[[], None]) -> None:
        """Have the controller learn of something at an instant."""
        ...

    def run_until(self, done: Callable[[], bool]) -> None:
        """Let things happen until `done` holds; raises RunError when nothing is left to happen."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTaken(Generic[SampleT]):
    """A step that is trained on."""

    step: int
    samples: list[SampleT]
    waited_s: Seconds
    """The trainer, for its batch."""
    train_s: Seconds
    trained_s: Seconds
    """When it was done."""


class PipelinedWorld(Generic[OfferT, SampleT]):
    """One rollout, one trainer, one step between them."""

    def __init__(
        self,
        driver: Overlapping[OfferT, SampleT],
        offer_of: Callable[[int, Version, Seconds], OfferT],
        *,
        steps: int,
        streaming: bool,
        train_s: Callable[[Sequence[SampleT]], Seconds],
    ) -> None:
        """`offer_of`: the batch of a step, to begin with a version, the last training step having taken so long.

        `train_s`: what a batch takes the trainer, publishing its weights included.
        """
        self._driver = driver
        self._offer_of = offer_of
        self._steps = steps
        self._train_s = train_s
        self._off = OneStepOff(steps=steps, trained=0, streaming=streaming)
        self._batches: dict[int, Begun[SampleT]] = {}
        self._version: Version = 0
        self._last_train_s: Seconds = 0.0
        self._news = False
        """Whether a batch is complete or weights are there since it was last asked."""

    def run(self) -> Iterator[StepTaken[SampleT]]:
        """Take every step, in order."""
        free_s = self._driver.now_s
        for step in range(1, self._steps + 1):
            self._until(lambda step=step: step in self._batches and self._batches[step].released)
            samples = self._batches.pop(step).samples
            began_s, train_s = max(free_s, self._driver.now_s), self._train_s(samples)
            waited_s, free_s = began_s - free_s, began_s + train_s
            self._driver.later(free_s, lambda step=step, train_s=train_s: self._publish(step, train_s))
            self._until(lambda step=step: self._version == step)
            yield StepTaken(step=step, samples=samples, waited_s=waited_s, train_s=train_s, trained_s=free_s)

    def _until(self, done: Callable[[], bool]) -> None:
        """Let things happen, and batches begin as soon as they may."""
        while not done():
            for step in self._off.due(self._version):
                offer = self._offer_of(step, self._version, self._last_train_s)
                self._batches[step] = self._driver.start(offer, on_release=self._released)
            self._news = False
            self._driver.run_until(lambda: self._news or done())

    def _released(self) -> None:
        self._off.rolled_out()
        self._news = True

    def _publish(self, version: Version, train_s: Seconds) -> None:
        self._version, self._last_train_s = version, train_s
        self._news = True
