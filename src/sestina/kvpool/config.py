"""What a user sets about the pool of keys and values."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge

from sestina.core.ranges import Count, CountOrNone

LEAST_SEGMENT_BYTES = 16 << 20
"""Mooncake takes no less of a process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoKvPoolConfig:
    """A chunk on another instance computes its request's keys and values again."""

    kind: Literal["none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalKvPoolConfig:
    """Shared by the instances of a node: its memory first, then its disk."""

    kind: Literal["local"]
    dram_bytes: Count
    """Of each node's shared memory."""
    ssd_bytes: CountOrNone
    """Of each node's disk; 0: memory alone."""
    ssd_dir: Path | None
    """A folder on a disk of the node's own; needed with `ssd_bytes`."""
    move: Literal["cheaper", "always"]
    """Whether a request's keys and values are computed again where that is predicted to take less than moving them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MooncakeKvPoolConfig:
    """Shared by all instances of a run, on whatever nodes: Mooncake's store."""

    kind: Literal["mooncake"]
    master: str | None
    """host:port of a mooncake_master; None: the launcher starts one on this machine, for the run."""
    segment_bytes: Annotated[int, Ge(LEAST_SEGMENT_BYTES)]
    """Memory that each instance gives to the store."""
    protocol: Literal["tcp", "rdma"]
    device: str
    """Of RDMA, by its name; empty with `tcp`."""
    move: Literal["cheaper", "always"]
    """As in `LocalKvPoolConfig`."""


KvPoolConfig: TypeAlias = NoKvPoolConfig | LocalKvPoolConfig | MooncakeKvPoolConfig
NO_KV_POOL = NoKvPoolConfig(kind="none")


def pool_name(run_dir: Path) -> str:
    """Return by what name the ranks of a run find each other's entries, and its launcher what they leave."""
    return hashlib.sha256(str(run_dir.resolve()).encode()).hexdigest()[:16]
