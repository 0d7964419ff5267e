"""Everything that can be known to be wrong before a rank starts: model, tokenizer, prompts, reward, layout, memory."""

import dataclasses
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from sestina.config.fit import misfits
from sestina.config.resolved import as_flat_dict
from sestina.config.rules import broken_rules
from sestina.config.run import RunConfig
from sestina.config.schema import shown
from sestina.controller.last_lengths import earlier_lengths
from sestina.controller.materials import Materials, encoded, raw_prompts
from sestina.controller.recorded import forced_lengths, recorded_lengths
from sestina.controller.turns import turn_token_of
from sestina.controller.unsupported import unsupported
from sestina.core.errors import AbsentError, ConfigError, UserError
from sestina.kvpool.config import KvPoolConfig, LocalKvPoolConfig, MooncakeKvPoolConfig
from sestina.kvpool.local import SHARED_MEMORY
from sestina.kvpool.mooncake import check_package
from sestina.models.files import check_files
from sestina.models.shape import ModelShape, read_shape
from sestina.models.tokenizer import Tokenizer
from sestina.rewards.rules import check as check_reward
from sestina.rewards.rules import check_environment
from sestina.rollout.calibration.file import cost_for
from sestina.rollout.config import EngineConfig, RolloutConfig, SGLangEngineConfig, TorchEngineConfig

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What was found, a line for each violation."""

    config: RunConfig
    """With the model's shape, wherever that was to be found."""
    wrong: tuple[str, ...]
    """The configuration, or a file it names, has to change."""
    absent: tuple[str, ...]
    """Is not on this machine."""
    unsupported: tuple[str, ...]
    """Is in order, and no part of this system can carry it out."""
    materials: Materials | None
    """None when anything was found."""

    @property
    def violations(self) -> list[str]:
        """All of them."""
        return [*self.wrong, *self.unsupported, *self.absent]


def prepare(config: RunConfig) -> Materials:
    """Read and check what the configuration names; raises ConfigError with every violation. Writes nothing."""
    found = inspect(config)
    if found.violations or found.materials is None:
        raise ConfigError(found.violations)
    return found.materials


def inspect(config: RunConfig) -> Preflight:
    """Check everything that is here, whatever else is wrong or missing; writes nothing."""
    problems = _Problems()
    beyond = unsupported(config)
    problems.of(_engine_is_here, config.rollout.engine)
    if _needs_mooncake(config.rollout):
        problems.of(check_package)
    if config.cluster is None:
        problems.of(_pool_has_room, config.rollout.kv_pool)
    here = problems.of(_model_is_here, config.model.path)
    shape = problems.of(read_shape, config.model.path) if here and not beyond else None
    tokenizer = None
    if shape is not None:
        problems.of(check_files, config.model.path, shape)
        tokenizer = problems.of(Tokenizer, config.model.path, model_vocab_size=shape.vocab_size)
        config = problems.fill(config, shape)
        problems.of(_calibration_fits, config, shape)
    problems.of(check_reward, config.reward)
    problems.of(check_environment, config.environment)
    turn_token = None if tokenizer is None else problems.of(turn_token_of, config.environment, tokenizer)
    raw = problems.of(raw_prompts, config.data, config.seed)
    prompts = None if raw is None or tokenizer is None else problems.of(encoded, config, *raw, tokenizer)
    lengths, forced = problems.of(recorded_lengths, config), problems.of(forced_lengths, config)
    known = None if prompts is None else problems.of(earlier_lengths, config, prompts[0])
    materials = None
    if (
        shape
        and tokenizer
        and prompts
        and lengths
        and forced
        and known is not None
        and turn_token is not None
        and not (problems.wrong or problems.absent)
    ):
        materials = Materials(
            shape=shape,
            tokenizer=tokenizer,
            prompts=prompts[0],
            eval_prompts=prompts[1],
            lengths=lengths,
            forced=forced,
            known_lengths=known,
            turn_token=turn_token,
        )
    return Preflight(
        config=config,
        wrong=tuple(problems.wrong),
        absent=tuple(problems.absent),
        unsupported=tuple(beyond),
        materials=materials,
    )


class _Problems:
    """Collects what checks have against a run."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.absent: list[str] = []

    def of(self, check: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        """Return what a check returns; None when it raises a UserError, which is kept."""
        try:
            return check(*args, **kwargs)
        except AbsentError as error:
            self.absent += error.violations
        except ConfigError as error:
            self.wrong += error.violations
        except UserError as error:
            self.wrong.append(str(error))
        return None

    def fill(self, config: RunConfig, shape: ModelShape) -> RunConfig:
        """Judge a run by the shape that its model's files have, and return it with that."""
        filled = dataclasses.replace(config, model=dataclasses.replace(config.model, shape=shape.planned()))
        planned, real = as_flat_dict(config), as_flat_dict(filled)
        if config.model.shape is None:
            self.wrong += broken_rules(real) + misfits(filled)
            return filled
        differing = [key for key in real if key.startswith("model.shape.") and planned.get(key) != real[key]]
        self.wrong += [
            f"{key}: {shown(planned.get(key))} is not allowed with model.path {config.model.path}, "
            f"which has {shown(real[key])}"
            for key in differing
        ]
        return filled


def _engine_is_here(engine: EngineConfig) -> None:
    if isinstance(engine, SGLangEngineConfig) and not os.access(engine.python, os.X_OK):
        raise AbsentError([
            f"rollout.engine.python: '{engine.python}' is not an executable file; `make sglang` sets up "
            "'.venv-sglang/bin/python' for the CPU, docs/install-gpu.md says how for GPUs"
        ])  # fmt: skip


def _needs_mooncake(rollout: RolloutConfig) -> bool:
    """For the embedded engine, and for a master of the run's own; servers see to their environment themselves."""
    pool = rollout.kv_pool
    return isinstance(pool, MooncakeKvPoolConfig) and (pool.master is None or rollout.engine.kind == "torch")


def _pool_has_room(pool: KvPoolConfig) -> None:
    """Only here: the disks of a job's nodes are seen by its ranks alone, which go on without what they cannot write."""
    if not isinstance(pool, LocalKvPoolConfig):
        return
    limits = {"dram_bytes": (pool.dram_bytes, SHARED_MEMORY)}
    if pool.ssd_bytes and pool.ssd_dir is not None:
        if not os.access(pool.ssd_dir, os.W_OK | os.X_OK):
            raise AbsentError([f"rollout.kv_pool.ssd_dir: '{pool.ssd_dir}' is not a folder that can be written"])
        limits["ssd_bytes"] = pool.ssd_bytes, pool.ssd_dir
    free = {key: shutil.disk_usage(folder).free for key, (_, folder) in limits.items()}
    if lines := [
        f"rollout.kv_pool.{key}: {asked} is not allowed; at most {free[key]}, which is what {folder} has free"
        for key, (asked, folder) in limits.items()
        if asked > free[key]
    ]:
        raise AbsentError(lines)


def _model_is_here(directory: Path) -> bool:
    path = directory / "config.json"
    if not path.exists():
        raise AbsentError(
            [f"model.path: {path}: no such file; a model directory holds it, safetensors and a tokenizer"]
        )
    return True


def _calibration_fits(config: RunConfig, shape: ModelShape) -> None:
    engine, path = config.rollout.engine, config.draft.calibration
    if path is not None and isinstance(engine, TorchEngineConfig):
        cost_for(path, shape, engine)
