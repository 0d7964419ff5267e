"""What a rollout instance of a run is made from."""

import os

from sestina.config.run import RunConfig
from sestina.controller.node import own_host
from sestina.controller.run_dir import LOGS
from sestina.core.units import InstanceId
from sestina.kvpool.config import MooncakeKvPoolConfig, pool_name
from sestina.kvpool.master import ADDRESS, START
from sestina.models.shape import read_shape
from sestina.models.tokenizer import Tokenizer
from sestina.rollout.build import InstanceConfig


def _pool(config: RunConfig) -> dict[str, str]:
    pool = config.rollout.kv_pool
    if not isinstance(pool, MooncakeKvPoolConfig):
        return {"kv_pool_name": pool_name(config.dir)}
    return {
        "kv_pool_name": f"{pool_name(config.dir)}-{_start_of_run()}",
        "kv_master": pool.master or os.environ.get(ADDRESS, ""),
        "host": own_host(config),
    }


def _start_of_run() -> str:
    """A start may give a version to other weights than the one before it, and a named master outlives both."""
    job = os.environ.get("SLURM_HET_JOB_ID") or os.environ.get("SLURM_JOB_ID", "")
    return os.environ.get(START) or f"{job}-{os.environ.get('SLURM_RESTART_COUNT', '0')}"


def instance_config(config: RunConfig, instance: InstanceId) -> InstanceConfig:
    """Return the settings of one instance; raises ModelError when its model cannot be read."""
    shape = read_shape(config.model.path)
    return InstanceConfig(
        instance=instance,
        engine=config.rollout.engine,
        draft=config.draft,
        kv_pool=config.rollout.kv_pool,
        **_pool(config),
        model=config.model.path.absolute(),
        log=(config.dir / LOGS / f"sglang_{instance}.log").absolute(),
        shape=shape,
        max_context_tokens=config.data.max_prompt_tokens + config.rollout.max_new_tokens,
        seed=config.seed,
        stop_token=Tokenizer(config.model.path, model_vocab_size=shape.vocab_size).eos_id,
        weights_timeout_s=config.weights.timeout_s,
        stop_s=config.deadlines.stop_s,
        interruption="refuse" if config.run.mode != "async" else "keep_kv" if config.async_.keep_kv else "recompute",
    )
