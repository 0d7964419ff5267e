"""What the running requests of each rollout instance can come to hold, in KV pages.

A request is promised the pages of its context plus its whole chunk. As long as promises stay within an instance's
capacity, nothing it runs can be preempted (S-A: "concurrency per instance"). Requests that share a prefix need less
together than each alone: what an instance says of itself replaces the sum of the promises to those that it has.
"""

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from sestina.core.ids import RequestId
from sestina.core.units import InstanceId
from sestina.policies.events import InstanceUp, KvReport


@dataclass(slots=True, kw_only=True)
class Instance:
    """Capacity of one instance and the promises it has made."""

    id: InstanceId
    num_pages: int
    page_tokens: int
    max_running: int
    reserved_pages: int = 0
    """What its requests can come to hold: as it says itself where it does, else as promised."""
    promised_pages: int = 0
    promises: dict[RequestId, int] = field(default_factory=dict[RequestId, int])
    """Pages by running request."""

    @property
    def num_running(self) -> int:
        """Chunks dispatched and not yet ended."""
        return len(self.promises)

    def pages_for(self, tokens: int) -> int:
        """Return how many pages hold this many tokens."""
        return -(-tokens // self.page_tokens)

    def bound_by(self, kv: KvReport) -> int:
        """Return the pages that its requests can come to hold by its own account, and those on the way besides."""
        return self.pages_for(kv.peak_tokens) + sum(self.promises[request] for request in kv.on_the_way)

    def fits(self, tokens: int) -> bool:
        """Whether a request that may grow to `tokens` can run here without ever preempting another."""
        room = self.num_pages - self.reserved_pages
        return len(self.promises) < self.max_running and -(-tokens // self.page_tokens) <= room


_SPARE = 64
"""Places in the heap of loads that no cleaning is worth."""


class Instances:
    """All instances that are up, by id."""

    def __init__(self) -> None:
        self.ids: list[InstanceId] = []
        """Rising."""
        self._instances: dict[InstanceId, Instance] = {}
        self._open: dict[InstanceId, Instance] = {}
        """Those that run fewer requests than they may: nearly none, at nearly every moment."""
        self._loads: list[tuple[int, int, InstanceId]] = []
        """Heap of pages and chunks of open instances; what has changed since leaves its place behind."""
        self._alike = True
        """Whether all have equal capacity: what does not fit where most room is, then fits nowhere."""

    @property
    def num_open(self) -> int:
        """Instances that run fewer requests than they may: while there is none, nothing has to be searched."""
        return len(self._open)

    def __len__(self) -> int:
        return len(self._instances)

    def __iter__(self) -> Iterator[Instance]:
        return iter(self._instances.values())

    def __contains__(self, instance: InstanceId) -> bool:
        return instance in self._instances

    def __getitem__(self, instance: InstanceId) -> Instance:
        return self._instances[instance]

    def choose(self, tokens: int, *, home: InstanceId | None, within: int) -> InstanceId | None:
        """Return where a request that may grow to `tokens` runs; None if it fits nowhere.

        That is `home`, if it fits there and no two instances differ by more than `within` running requests; else the
        instance with the fewest pages promised.
        """
        if home is not None and self._instances[home].fits(tokens) and self._spread() <= within:
            return home
        passed: list[tuple[int, int, InstanceId]] = []
        chosen = None
        while (load := self._least_loaded()) is not None:
            if self._instances[load[2]].fits(tokens):
                chosen = load[2]
                break
            if self._alike:
                break
            passed.append(heappop(self._loads))
        for load in passed:
            heappush(self._loads, load)
        return chosen

    def add(self, up: InstanceUp) -> None:
        """An instance is ready."""
        assert up.instance not in self._instances, f"instance {up.instance} came up twice"
        instance = self._instances[up.instance] = Instance(
            id=up.instance,
            num_pages=up.kv_capacity_tokens // up.page_tokens,
            page_tokens=up.page_tokens,
            max_running=up.max_running,
        )
        insort(self.ids, up.instance)
        other = self._instances[self.ids[0]]
        self._alike &= (instance.num_pages, instance.page_tokens) == (other.num_pages, other.page_tokens)
        if up.max_running:
            self._open[up.instance] = instance
            self._rank(instance)

    def _least_loaded(self) -> tuple[int, int, InstanceId] | None:
        """Return the least of the open instances' loads, and leave it where it is."""
        while self._loads:
            load = self._loads[0]
            instance = self._open.get(load[2])
            if instance is not None and instance.reserved_pages == load[0] and len(instance.promises) == load[1]:
                return load
            heappop(self._loads)
        return None

    def _rank(self, instance: Instance) -> None:
        """The load of an open instance has changed."""
        if len(self._loads) > 2 * len(self._open) + _SPARE:
            self._loads = [(each.reserved_pages, len(each.promises), each.id) for each in self._open.values()]
            heapify(self._loads)
        else:
            heappush(self._loads, (instance.reserved_pages, len(instance.promises), instance.id))

    def _spread(self) -> int:
        running = [len(instance.promises) for instance in self._instances.values()]
        return max(running) - min(running)

    def reserve(self, instance: InstanceId, request: RequestId, tokens: int) -> None:
        """Promise a request room to grow to `tokens`."""
        target = self._instances[instance]
        pages = -(-tokens // target.page_tokens)
        target.promises[request] = pages
        target.promised_pages += pages
        if len(target.promises) == target.max_running:
            del self._open[instance]
        target.reserved_pages += pages
        if instance in self._open:
            self._rank(target)

    def release(self, instance: InstanceId, request: RequestId) -> None:
        """Take the promise back: the chunk has ended."""
        target = self._instances[instance]
        if len(target.promises) == target.max_running:
            self._open[instance] = target
        target.promised_pages -= target.promises.pop(request)
        target.reserved_pages = target.promised_pages  # of what it shared with others, nobody knows yet
        self._rank(target)

    def learn(self, instance: InstanceId, kv: KvReport) -> None:
        """An instance says what its requests can come to hold; promises to those on the way come on top."""
        target = self._instances[instance]
        target.reserved_pages = target.bound_by(kv)
        num_pages = kv.capacity_tokens // target.page_tokens
        if num_pages != target.num_pages:
            target.num_pages = num_pages
            self._alike = len({(each.num_pages, each.page_tokens) for each in self}) == 1
        if instance in self._open:
            self._rank(target)
