"""torch.distributed and Megatron's process groups of the trainer ranks."""

from datetime import timedelta

import torch.distributed as dist
from megatron.core import parallel_state as ps

from sestina.core.units import Seconds
from sestina.trainer.backend import Backend
from sestina.trainer.config import TrainerConfig


def open_groups(
    config: TrainerConfig, backend: Backend, store: dist.Store, *, rank: int, seed: int, limit_s: Seconds
) -> None:
    """Join the other trainer ranks; every collective of theirs ends with an error after `limit_s`."""
    dist.init_process_group(
        backend.process_groups,
        store=dist.PrefixStore("trainer", store),
        rank=rank,
        world_size=config.num_ranks,
        timeout=timedelta(seconds=limit_s),
    )
    ps.initialize_model_parallel(
        tensor_model_parallel_size=config.tensor_parallel,
        pipeline_model_parallel_size=config.pipeline_parallel,
        distributed_timeout_minutes=max(1, round(limit_s / 60)),
    )
    backend.seed(seed)


def close_groups() -> None:
    """Leave; the last thing a trainer rank does."""
    ps.destroy_model_parallel()
    dist.destroy_process_group()
