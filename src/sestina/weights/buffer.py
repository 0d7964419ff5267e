"""Versions that reach a rollout rank while it decodes, kept in the host's memory until chunks ask for them (RhymeRL).

A thread takes part in the broadcast. At most two versions are kept: the one that the batch under way began with, if the
rank has had no chunk of it yet, and the next.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from sestina.core.errors import DeadlineError
from sestina.core.units import Seconds, Version
from sestina.transport.messages import WeightLayout, WeightsLoaded
from sestina.weights.group import UpdateGroup
from sestina.weights.update import receive

HOST = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Update:
    """Verified weights, and what it took to get them."""

    tensors: dict[str, torch.Tensor]
    seconds: Seconds


class WeightBuffer:
    """One owner, one thread of its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weights")
        self._updates: dict[Version, Future[Update]] = {}
        self._unsaid: list[Version] = []

    def receive(self, version: Version, group: UpdateGroup, layout: WeightLayout) -> None:
        """Begin to receive a version; returns at once."""
        for old in [each for each in self._updates if each < version - 1]:
            del self._updates[old]
        self._updates[version] = self._thread.submit(_receive, group, layout, version)
        self._unsaid.append(version)

    def arrived(self) -> list[WeightsLoaded]:
        """Return what has arrived and was not returned before; raises what receiving it has raised."""
        done = [version for version in self._unsaid if self._updates[version].done()]
        self._unsaid = [version for version in self._unsaid if version not in done]
        return [_described(version, self._updates[version].result()) for version in done]

    def take(self, version: Version, limit_s: Seconds) -> dict[str, torch.Tensor]:
        """Return a version and forget it and older ones; raises DeadlineError if it is not there within `limit_s`."""
        assert version in self._updates, f"weights of version {version} were never announced"
        try:
            update = self._updates[version].result(limit_s)
        except TimeoutError:
            raise DeadlineError(f"weights of version {version} to arrive", limit_s) from None
        for old in [each for each in self._updates if each <= version and each not in self._unsaid]:
            del self._updates[old]
        return update.tensors

    def close(self) -> None:
        """Return when nothing is being received."""
        self._thread.shutdown(cancel_futures=True)


def _receive(group: UpdateGroup, layout: WeightLayout, version: Version) -> Update:
    began_s = time.monotonic()
    tensors = receive(group, layout, version, keep_on=HOST)
    return Update(tensors, time.monotonic() - began_s)


def _described(version: Version, update: Update) -> WeightsLoaded:
    num_bytes = sum(tensor.nbytes for tensor in update.tensors.values())
    return WeightsLoaded(version=version, num_bytes=num_bytes, seconds=update.seconds)
