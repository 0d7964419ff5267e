"""The draft servers of a run, beside the controller, and what the instances say of their drafts."""

import asyncio
import shutil
import time
from collections import Counter
from pathlib import Path

from sestina.config.run import RunConfig
from sestina.controller.node import own_host
from sestina.controller.ranks import Ranks
from sestina.controller.run_dir import DRAFT
from sestina.core.units import Seconds
from sestina.drafting.service.keys import make_keys
from sestina.drafting.service.settings import ServerSettings, StoreSettings
from sestina.drafting.service.shards import Shards
from sestina.transport.messages import DraftServers

LOOK_S: Seconds = 0.1
"""How soon the ranks are told of a server that has another address than before."""


class DraftService:
    """As many servers as `draft.servers`; the run goes on without those that fail."""

    def __init__(self, config: RunConfig, ranks: Ranks, *, vocab_size: int) -> None:
        """Make the run's keys and begin to start the servers.

        Raises UserError when this node has no address that the other ranks reach.
        """
        self._ranks = ranks
        self._num_servers = config.draft.servers
        self._keys = (config.dir / DRAFT / str(time.time_ns())).absolute()
        self._shards: Shards | None = None
        if self._num_servers:
            host = own_host(config)
            _make_folder(self._keys)
            settings = ServerSettings(keys=str(self._keys), host=host, store=StoreSettings(vocab_size=vocab_size))
            self._shards = Shards(settings, self._num_servers)

    async def tell_ranks(self) -> None:
        """Tell the rollout ranks where the servers are, whenever that changes, until cancelled."""
        told = ("",) * self._num_servers
        while self._shards is not None:
            addresses = self._shards.addresses
            if addresses != told:
                self._ranks.tell_rollouts(DraftServers(addresses=addresses, keys=str(self._keys)))
                told = addresses
            await asyncio.sleep(LOOK_S)

    def metrics(self) -> dict[str, float]:
        """Return what the instances have counted since the start, and the servers' fate, in `spec/`."""
        counts = Counter[str]()
        for report in self._ranks.loads.values():
            counts.update(report.drafting)
        if self._shards is not None:
            counts.update(service_restarts=self._shards.num_restarts, service_lost=self._shards.num_lost)
        return {f"spec/{name}": float(count) for name, count in counts.items()}

    def close(self) -> None:
        """End the servers, and forget their keys."""
        if self._shards is not None:
            self._shards.close()
            shutil.rmtree(self._keys, ignore_errors=True)


def _make_folder(path: Path) -> None:
    """Make a folder of keys that no earlier start of the run has used: a shared file system may show what was there."""
    shutil.rmtree(path.parent, ignore_errors=True)
    path.mkdir(parents=True, mode=0o700)
    make_keys(path)
