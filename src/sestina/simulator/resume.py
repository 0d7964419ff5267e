"""What a chunk lacks of its context when it is let in: computed, or moved from a pool of keys and values.

A pool keeps what a chunk leaves, first in a node's memory, then on its disk, until the response is complete; what has
no room is not kept. A move is taken to stop the instance, which is an upper bound: engines prefetch.
"""

from dataclasses import dataclass, field

from sestina.core.ids import RequestId
from sestina.core.records import KvSource
from sestina.core.units import InstanceId, Seconds, Version
from sestina.kvpool.config import LocalKvPoolConfig
from sestina.simulator.chunk import Chunk
from sestina.simulator.cost.moves import MoveCost, Way
from sestina.simulator.cost.step import EngineCost


@dataclass(slots=True, kw_only=True)
class _Node:
    free_bytes: dict[Way, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    node: int
    tier: Way
    num_bytes: float
    version: Version
    """Of the weights that computed it."""


@dataclass(slots=True, kw_only=True)
class SimulatedPool:
    """Where the keys and values of waiting requests lie."""

    config: LocalKvPoolConfig
    cost: MoveCost
    instance_gpus: int
    """GPUs whose shares make up a request's keys and values."""
    instances_per_node: int
    nodes_per_instance: int
    """One of the two is 1."""
    reach: str
    """As `sim.kv_reach`."""
    _nodes: dict[int, _Node] = field(default_factory=dict[int, _Node])
    _kept: dict[RequestId, _Kept] = field(default_factory=dict[RequestId, _Kept])

    def keep(self, request: RequestId, instance: InstanceId, tokens: int, version: Version) -> None:
        """A chunk leaves so many tokens' keys and values, computed with weights of a version."""
        self.drop(request)
        number = instance // self.instances_per_node
        size = tokens * self.cost.token_bytes * self.instance_gpus
        node = self._nodes.setdefault(number, _Node(free_bytes=self._sizes()))
        for tier in node.free_bytes:
            if size <= node.free_bytes[tier] and self.cost.links[tier] is not None:
                node.free_bytes[tier] -= size
                self._kept[request] = _Kept(node=number, tier=tier, num_bytes=size, version=version)
                return

    def drop(self, request: RequestId) -> None:
        """What is kept of a request is wanted no more."""
        kept = self._kept.pop(request, None)
        if kept is not None:
            self._nodes[kept.node].free_bytes[kept.tier] += kept.num_bytes

    def forget(self) -> None:
        """What is kept is of older weights, and wanted no more."""
        for request in list(self._kept):
            self.drop(request)

    def move_s(self, chunk: Chunk, instance: InstanceId, tokens: int) -> tuple[KvSource, Seconds] | None:
        """Return from where and in what time so many tokens of a chunk come; None when they are out of reach."""
        kept = self._kept.get(chunk.request)
        if kept is None or kept.version != chunk.version:
            return None
        here_s = self.cost.kv_s(kept.tier, tokens)
        over_s: Seconds | None = 0.0
        if kept.node != instance // self.instances_per_node:
            over_s = self.cost.kv_s("network", tokens) if self.reach == "cluster" else None
        if here_s is None or over_s is None:
            return None
        return ("ssd" if kept.tier == "ssd" else "dram"), max(here_s, over_s)

    def _sizes(self) -> dict[Way, float]:
        nodes = self.nodes_per_instance
        return {"dram": nodes * self.config.dram_bytes, "ssd": nodes * self.config.ssd_bytes}


@dataclass(slots=True, kw_only=True)
class Resume:
    """Brings the contexts of chunks to instances."""

    pool: SimulatedPool | None
    page_tokens: int = 1
    """Only whole pages are found again, and never a text's last token; 1: all of it is."""

    def resume(self, chunk: Chunk, instance: InstanceId, *, prompt: int, own: int, cost: EngineCost) -> Seconds:
        """Return what a chunk's missing context takes, of which the instance has so much; counts it in the chunk."""
        wanted = int(chunk.context_tokens)
        has = self._found(prompt + own, wanted)
        missing = wanted - has
        chunk.cached_tokens += has
        compute_s = cost.prefill_s(missing, has)
        lacks = int(chunk.own_tokens) - own
        found = self.pool.move_s(chunk, instance, lacks) if self.pool and lacks else None
        if found is None or self.pool is None:
            chunk.prefilled_tokens += missing
            return compute_s
        source, kv_s = found
        rest = missing - lacks
        moved_s = kv_s + cost.prefill_s(rest, has)
        if self.pool.config.move == "cheaper" and moved_s > compute_s:
            chunk.kv_source = "dearer"
            chunk.prefilled_tokens += missing
            return compute_s
        chunk.kv_source, chunk.kv_s = source, chunk.kv_s + kv_s
        chunk.kv_loaded_tokens += lacks
        chunk.kv_moved_bytes += int(lacks * self.pool.cost.token_bytes * self.pool.instance_gpus)
        chunk.prefilled_tokens += rest
        return moved_s

    def forget(self) -> None:
        """What was kept is of older weights."""
        if self.pool is not None:
            self.pool.forget()

    def _found(self, there: int, wanted: int) -> int:
        if self.page_tokens == 1:
            return there
        return min(there, wanted - 1) // self.page_tokens * self.page_tokens

    def left(self, chunk: Chunk, instance: InstanceId) -> None:
        """A chunk has ended: its keys and values are kept, or wanted no more."""
        if self.pool is None:
            return
        if chunk.done or chunk.kept_kv:
            self.pool.drop(chunk.request)
        else:
            self.pool.keep(chunk.request, instance, int(chunk.own_tokens), chunk.version)
