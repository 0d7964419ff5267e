"""What a server is told of the pool: HiCache over Mooncake's store, and how its word for a chunk is read. No I/O.

A page is found by a hash that begins with the salt of the request, which names the weights (sglang_plugin's
interruption), and goes on over all of the text up to it; in front is the name of the run.
"""

from dataclasses import dataclass

import msgspec

from sestina.core.records import ChunkRequest, Finish, KvSource, KvTarget, KvTraffic
from sestina.core.units import Seconds
from sestina.kvpool.config import MooncakeKvPoolConfig
from sestina.rollout.config import SGLangEngineConfig

ENVIRONMENT = "SESTINA_KV_POOL"
"""Variable that tells a server's plugin that there is a pool; its value is of no meaning."""

LEFT: tuple[KvTarget, ...] = ("none", "dram", "full", "failed")
"""What the plugin says that a chunk has left in the store, by the place in this list."""

SGLANGS_LEAST_TOKENS = 256
"""SGLang's own rule by which moving is worth it: no fewer tokens are asked of the store."""

HOST_RATIO_ON_CPU = "2"
"""Of the copy in host memory to the KV cache; what SGLang takes where there is room."""

PREFETCH_S: Seconds = 5.0
"""For the store to give a request's pages, at least; after that they are computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPool:
    """How a server reaches the store."""

    config: MooncakeKvPoolConfig
    name: str
    """Of the run."""
    master: str
    """host:port; empty: there is none."""
    host: str
    """Where other nodes reach this one."""
    row_bytes: int
    """Keys and values of one token."""

    def arguments(self, engine: SGLangEngineConfig) -> dict[str, str]:
        """Return SGLang's arguments; write-through, so that a chunk's pages are on their way before it has ended."""
        on_cpu = engine.device == "cpu"
        # SGLang would size it by the machine's memory, 10 GiB of which it leaves alone; a user's own word comes later.
        sized = {"hicache-ratio": HOST_RATIO_ON_CPU} if on_cpu else {}
        return sized | {
            "hicache-write-policy": "write_through",
            "hicache-io-backend": "direct" if on_cpu else "kernel",
            "hicache-mem-layout": "page_first_direct" if on_cpu else "page_first",
            "hicache-storage-backend": "mooncake",
            "hicache-storage-prefetch-policy": "timeout",
            "hicache-storage-backend-extra-config": self._store(engine),
        }

    def to_environment(self) -> dict[str, str]:
        """Return the variables: `ENVIRONMENT`, and Mooncake's own for this node, which would stand above arguments."""
        return {ENVIRONMENT: "1", "MOONCAKE_LOCAL_HOSTNAME": self.host, "MC_LOG_LEVEL": "ERROR"}

    def _store(self, engine: SGLangEngineConfig) -> str:
        """SGLang has the processes of each group that attends by itself share a segment."""
        settings = {
            "master_server_address": self.master,
            "metadata_server": "P2PHANDSHAKE",
            "protocol": self.config.protocol,
            "device_name": self.config.device,
            "global_segment_size": self.config.segment_bytes // engine.data_parallel,
            "extra_backend_tag": f"sestina-{self.name}",
            "prefetch_threshold": engine.page_tokens if self.config.move == "always" else SGLANGS_LEAST_TOKENS,
            "prefetch_timeout_base": PREFETCH_S,
        }
        return msgspec.json.encode(settings).decode()


class CachedTokens(msgspec.Struct):
    """Where a request's cached tokens were found."""

    device: int = 0
    host: int = 0
    storage: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAccount:
    """What a chunk took from the pool and left there, by what its server says."""

    page_tokens: int
    row_bytes: int

    def traffic(
        self, chunk: ChunkRequest, finish: Finish, *, cached_tokens: int, stored_tokens: int, left: int | None
    ) -> KvTraffic:
        """Return it for a chunk that found `cached_tokens`, of which `stored_tokens` came from the store.

        `left` as in `LEFT`; None: its server says nothing, as it has no store that answers.
        """
        return KvTraffic(
            source=self._source(chunk, cached_tokens, stored_tokens),
            target="none" if finish != "chunk" else "failed" if left is None else LEFT[left],
            loaded_tokens=stored_tokens,
            moved_bytes=stored_tokens * self.row_bytes,
        )

    def _source(self, chunk: ChunkRequest, cached_tokens: int, stored_tokens: int) -> KvSource:
        """A last page that is not full is never kept: its tokens are computed again wherever the chunk runs."""
        if not len(chunk.generated):
            return "none"
        if len(chunk.prompt) + len(chunk.generated) - cached_tokens > self.page_tokens:
            return "absent"
        return "dram" if stored_tokens else "none"
