"""Which engine a rollout rank runs, and what it is made from."""

import time
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from sestina.core.errors import EngineError
from sestina.core.units import InstanceId, Seconds
from sestina.kvpool.config import NO_KV_POOL, KvPoolConfig, LocalKvPoolConfig, MooncakeKvPoolConfig
from sestina.kvpool.local import LocalPool
from sestina.kvpool.mooncake import MooncakePool
from sestina.kvpool.pool import Pool
from sestina.models.shape import ModelShape
from sestina.policies.drafting.cost import StepCost
from sestina.rollout.config import EngineConfig, SGLangEngineConfig, TorchEngineConfig
from sestina.rollout.engine import Clock, Engine, Interruption
from sestina.rollout.pages import PAGE_TOKENS, pages_for
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.desk import DraftDesk
from sestina.rollout.speculation.speculator import Speculator

if TYPE_CHECKING:
    from sestina.rollout.fused import Common
    from sestina.rollout.sglang.pool import ServerPool
    from sestina.rollout.speculation.host import BuildSpeculator
    from sestina.rollout.taken import OnStep


_VALUE_BYTES = {"float32": 4, "bfloat16": 2}
_PAGE_HEAD_BYTES = 128
"""No less than an entry's header takes for a page, and beside its pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceConfig:
    """What one rollout rank is made from."""

    instance: InstanceId
    engine: EngineConfig
    draft: DraftConfig
    model: Path
    log: Path
    """Of the engine's own process, if it has one."""
    shape: ModelShape
    max_context_tokens: int
    seed: int
    stop_token: int
    weights_timeout_s: Seconds
    stop_s: Seconds
    kv_pool: KvPoolConfig = NO_KV_POOL
    kv_pool_name: str = ""
    """Shared by the instances of a run."""
    kv_master: str = ""
    """host:port of Mooncake's master, if the pool is Mooncake's."""
    host: str = "127.0.0.1"
    """Where other nodes reach this one."""
    interruption: Interruption = "refuse"
    """What weights do to chunks in flight."""


def build_desk(config: InstanceConfig) -> DraftDesk:
    """Return it, its index ready to be connected where there are draft servers; only what it needs is imported."""
    if config.draft.servers == 0:
        return DraftDesk()
    from sestina.drafting.settings import IndexSettings  # noqa: PLC0415
    from sestina.rollout.speculation.shared import SharedIndex  # noqa: PLC0415

    return DraftDesk(SharedIndex(IndexSettings(vocab_size=config.shape.vocab_size)))


def build_engine(
    config: InstanceConfig,
    desk: DraftDesk | None = None,
    clock: Clock = time.monotonic,
    kv_thread: Executor | None = None,
    common: "Common | None" = None,
    on_step: "OnStep | None" = None,
) -> Engine:
    """Return the engine, ready for weights, its drafter at this desk if any; only what it needs is imported.

    An embedded engine is told the time by `clock`, has `kv_thread` read and write for its pool, and weights in
    common with others of its thread. Where `on_step` is told of its steps, to move that clock, drafting is timed by it
    too.
    """
    desk = desk or DraftDesk()
    match config.engine:
        case TorchEngineConfig():
            from sestina.rollout.torch_engine import TorchEngine  # noqa: PLC0415

            return TorchEngine(
                config.engine,
                config.shape,
                max_context_tokens=config.max_context_tokens,
                seed=config.seed,
                stop_token=config.stop_token,
                speculator=_speculator(config, config.engine, desk, clock if on_step else None),
                drafter=_drafter(config.draft, desk),
                cost=_cost(config, config.engine),
                kv_pool=_kv_pool(config),
                kv_thread=kv_thread,
                interruption=config.interruption,
                clock=clock,
                common=common,
                on_step=on_step,
            )
        case SGLangEngineConfig():
            from sestina.rollout.sglang.engine import SGLangEngine  # noqa: PLC0415

            return SGLangEngine(
                config.engine,
                config.shape,
                model=config.model,
                log=config.log,
                max_context_tokens=config.max_context_tokens,
                seed=config.seed,
                stop_token=config.stop_token,
                draft=None if config.draft.source == "none" else config.draft,
                desk=desk,
                pool=_server_pool(config),
                interruption=config.interruption,
            )
        case _:
            assert_never(config.engine)


def _speculator(
    config: InstanceConfig, engine: TorchEngineConfig, desk: DraftDesk, watch: Clock | None
) -> Speculator | None:
    if config.draft.source in ("none", "quantized"):
        return None
    from sestina.rollout.speculation.suffix import SuffixSpeculator  # noqa: PLC0415

    vocab_size = config.shape.vocab_size
    num_slots = engine.max_running
    return SuffixSpeculator(config.draft, vocab_size=vocab_size, num_slots=num_slots, desk=desk, watch=watch)


def _drafter(draft: DraftConfig, desk: DraftDesk) -> "BuildSpeculator | None":
    if draft.source != "quantized":
        return None
    from sestina.rollout.quantized.speculator import QuantizedSpeculator  # noqa: PLC0415

    return partial(QuantizedSpeculator, draft, desk=desk)


def _kv_pool(config: InstanceConfig) -> Pool | None:
    match config.kv_pool:
        case LocalKvPoolConfig():
            try:
                return LocalPool(config.kv_pool, config.kv_pool_name)
            except OSError as error:
                raise EngineError(f"rollout.kv_pool: the node's shared memory cannot be written: {error}") from None
        case MooncakeKvPoolConfig():
            longest = longest_entry_bytes(config)
            return MooncakePool(
                config.kv_pool, config.kv_pool_name, master=config.kv_master, host=config.host, longest_bytes=longest
            )
        case _:
            return None


def _server_pool(config: InstanceConfig) -> "ServerPool | None":
    if not isinstance(config.kv_pool, MooncakeKvPoolConfig):
        return None
    from sestina.rollout.sglang.pool import ServerPool  # noqa: PLC0415

    return ServerPool(
        config=config.kv_pool,
        name=config.kv_pool_name,
        master=config.kv_master,
        host=config.host,
        row_bytes=_row_bytes(config),
    )


def longest_entry_bytes(config: InstanceConfig) -> int:
    """Return what the keys and values of the longest text take with their header, which is small beside them."""
    page_bytes = PAGE_TOKENS * _row_bytes(config) + _PAGE_HEAD_BYTES
    return pages_for(config.max_context_tokens) * page_bytes + _PAGE_HEAD_BYTES


def _row_bytes(config: InstanceConfig) -> int:
    """Return what the keys and values of one token take."""
    shape = config.shape
    return 2 * shape.num_layers * shape.num_kv_heads * shape.head_size * _VALUE_BYTES[config.engine.dtype]


def _cost(config: InstanceConfig, engine: TorchEngineConfig) -> StepCost | None:
    """Return what a calibration says of the engine; None when it is to measure by itself."""
    if config.draft.calibration is None:
        return None
    from sestina.rollout.calibration.file import cost_for  # noqa: PLC0415

    return cost_for(config.draft.calibration, config.shape, engine)
