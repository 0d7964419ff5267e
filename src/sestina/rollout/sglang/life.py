"""One server from its start to its end, with everything that ends with it."""

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import replace

from sestina.core.errors import EngineError
from sestina.core.units import Seconds
from sestina.kvpool.mooncake import unreachable
from sestina.rollout.config import SGLangEngineConfig
from sestina.rollout.sglang import SUPPORTED
from sestina.rollout.sglang.client import ServerInfo, SGLangClient
from sestina.rollout.sglang.counted import Counted, since, total
from sestina.rollout.sglang.relay import Relay, open_relay
from sestina.rollout.sglang.server import ServerProcess, ServerSetup

_log = logging.getLogger(__name__)

_ASK_EVERY_S: Seconds = 0.25
_CALL_S: Seconds = 10.0


class Life:
    """A server that answers; `begin` starts one."""

    def __init__(self, process: ServerProcess, client: SGLangClient, info: ServerInfo, relay: Relay | None) -> None:
        self.process = process
        self.client = client
        self.info = info
        self.relay = relay
        """None where weights go by disk."""
        self._counted: Counted | None = None

    @classmethod
    async def begin(cls, setup: ServerSetup) -> "Life":
        """Start a server, without a pool that cannot be reached, and return when it can take weights.

        Raises EngineError with the end of its log when it ends before that, or is not ready in time.
        """
        config = setup.config
        async with AsyncExitStack() as started:
            process = ServerProcess(_within_reach(setup))
            started.callback(process.kill)
            client = await started.enter_async_context(SGLangClient(process.port))
            try:
                async with asyncio.timeout(config.start_s):
                    info = await _ready(process, client)
                    relay = await _relay(config, client, process) if config.weights == "broadcast" else None
            except TimeoutError:
                late = f"waited {config.start_s:g} s (rollout.engine.start_s) for SGLang to be ready"
                raise EngineError(f"{late}; {process.last_words()}") from None
            started.pop_all()  # they end with this life from here on
        return cls(process, client, info, relay)

    async def take_counted(self, limit_s: Seconds) -> Counted:
        """Return what it has counted of its drafts since the last call; raises ServerLostError."""
        now, before = total(await self.client.counted(limit_s)), self._counted
        self._counted = now
        return since(before, now)

    async def end(self) -> None:
        """End the server; calls under way fail."""
        self.process.kill()
        await self.client.close()


def _within_reach(setup: ServerSetup) -> ServerSetup:
    """A server that cannot join its store ends: it is started without one."""
    if setup.pool is None or (why := unreachable(setup.pool.master)) is None:
        return setup
    _log.warning("KV pool: %s; requests that move are computed again", why)
    return replace(setup, pool=None)


async def _relay(config: SGLangEngineConfig, client: SGLangClient, process: ServerProcess) -> Relay:
    return await open_relay(
        client,
        f"sestina_relay_{process.pid}",
        tensor_parallel=config.tensor_parallel,
        bucket_bytes=config.bucket_bytes,
        limit_s=config.start_s,
    )


async def _ready(process: ServerProcess, client: SGLangClient) -> ServerInfo:
    began_s = time.monotonic()
    while not await client.alive(_CALL_S):
        if process.exit_code is not None:
            raise EngineError(
                f"SGLang ended with exit code {process.exit_code} after {time.monotonic() - began_s:.0f} s; "
                f"{process.last_words()}"
            )
        await asyncio.sleep(_ASK_EVERY_S)
    info = await client.info(_CALL_S)
    if info.version != SUPPORTED:
        raise EngineError(f"SGLang {info.version} answers on port {process.port}; {SUPPORTED} was started")
    return info
