"""Which engine a rollout rank runs, and what it is made from."""

from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from sestina.core.units import InstanceId, Seconds
from sestina.models.shape import ModelShape
from sestina.rollout.config import EngineConfig, SGLangEngineConfig, TorchEngineConfig
from sestina.rollout.engine import Engine
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.speculator import Speculator


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


def build_engine(config: InstanceConfig) -> Engine:
    """Return the engine, ready for weights; only what it needs is imported."""
    match config.engine:
        case TorchEngineConfig():
            from sestina.rollout.torch_engine import TorchEngine  # noqa: PLC0415

            return TorchEngine(
                config.engine,
                config.shape,
                max_context_tokens=config.max_context_tokens,
                seed=config.seed,
                stop_token=config.stop_token,
                speculator=_speculator(config, config.engine),
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
            )
        case _:
            assert_never(config.engine)


def _speculator(config: InstanceConfig, engine: TorchEngineConfig) -> Speculator | None:
    if config.draft.source == "none":
        return None
    from sestina.rollout.speculation.suffix import SuffixSpeculator  # noqa: PLC0415

    return SuffixSpeculator(config.draft, vocab_size=config.shape.vocab_size, num_slots=engine.max_running)
