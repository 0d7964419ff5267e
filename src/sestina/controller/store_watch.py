"""Mooncake's master beside the ranks: started by the launcher where the run is to have its own, and watched."""

import secrets

from rich.console import Console

from sestina.config.run import RunConfig
from sestina.controller.run_dir import LOGS
from sestina.core.errors import RunError
from sestina.kvpool.config import MooncakeKvPoolConfig
from sestina.kvpool.master import ADDRESS, START, Master


class StoreWatch:
    """The run goes on without a master; what it would have moved is then computed again."""

    def __init__(self, config: RunConfig, console: Console) -> None:
        self._console = console
        self._master: Master | None = None
        pool = config.rollout.kv_pool
        self._start = {START: secrets.token_hex(4)} if isinstance(pool, MooncakeKvPoolConfig) else {}
        if isinstance(pool, MooncakeKvPoolConfig) and pool.master is None:
            try:
                self._master = Master(config.dir / LOGS / "mooncake_master.log")
            except RunError as error:
                console.print(f"KV pool: {error}; requests that move are computed again")

    @property
    def environment(self) -> dict[str, str]:
        """Of the ranks: where the master is, and which start of the run this is."""
        return self._start | ({} if self._master is None else {ADDRESS: self._master.address})

    def look(self) -> None:
        """Say it, once, when the master has ended."""
        if self._master is not None and (code := self._master.exit_code) is not None:
            self._console.print(
                f"KV pool: mooncake_master ended with exit code {code}; requests that move are computed again "
                f"(log: {self._master.log})"
            )
            self._master = None

    def end(self) -> None:
        """End the master, if there is one."""
        if self._master is not None:
            self._master.end()
