"""Trainer state on disk, by Megatron's distributed checkpoints: saved under one parallel layout, loaded under any."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing
from megatron.core import parallel_state as ps
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.transformer.module import MegatronModule

from sestina.core.errors import ModelError
from sestina.core.units import Version
from sestina.trainer.writers import tie_writers


def save(
    directory: Path,
    model: MegatronModule,
    optimizer: MegatronOptimizer,
    scheduler: OptimizerParamScheduler,
    version: Version,
) -> None:
    """Write the state below an existing empty directory; collective."""
    state = _state(model, optimizer, loading=False)
    state |= {"scheduler": scheduler.state_dict(), "version": version}
    tie_writers()
    dist_checkpointing.save(state, str(directory))
    dist.barrier()


def load(
    directory: Path, model: MegatronModule, optimizer: MegatronOptimizer, scheduler: OptimizerParamScheduler
) -> Version:
    """Overwrite model, optimizer and schedule; returns the saved version; collective.

    Raises ModelError when the directory holds no checkpoint.
    """
    if not dist_checkpointing.check_is_distributed_checkpoint(str(directory)):
        raise ModelError(f"{directory}: not a trainer checkpoint")
    _initialise(optimizer)
    wanted = _state(model, optimizer, loading=True) | {"scheduler": scheduler.state_dict(), "version": 0}
    state: Any = dist_checkpointing.load(wanted, str(directory))
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    _set_step(optimizer, scheduler.num_steps)
    return int(state["version"])


def _state(model: MegatronModule, optimizer: MegatronOptimizer, *, loading: bool) -> dict[str, Any]:
    metadata = {
        # The only sharding of the distributed optimizer that loads under another layout.
        "distrib_optim_sharding_type": "fully_reshardable",
        "dp_cp_group": ps.get_data_parallel_group(with_context_parallel=True),
        "singleton_local_shards": False,
        "chained_optim_avoid_prefix": True,
    }
    weights = model.sharded_state_dict(metadata=metadata)
    distributed = any(isinstance(part, DistributedOptimizer) for part in _parts(optimizer))
    extra = {"metadata": metadata} if distributed else {}
    return {"model": weights, "optimizer": optimizer.sharded_state_dict(weights, is_loading=loading, **extra)}


def _parts(optimizer: MegatronOptimizer) -> list[Any]:
    return list(getattr(optimizer, "chained_optimizers", [optimizer]))


def _initialise(optimizer: MegatronOptimizer) -> None:
    """Give torch's AdamW the state that Megatron expects to overwrite; it has none before its first step."""
    for part in _parts(optimizer):
        if not isinstance(part, DistributedOptimizer):
            continue
        part.init_state_fn(part.optimizer, part.config)
        for state in part.optimizer.state.values():
            state.setdefault("step", torch.tensor(0.0))


def _set_step(optimizer: MegatronOptimizer, num_steps: int) -> None:
    """Give every parameter its own step count.

    Megatron hands all of them one tensor, which AdamW then advances once per parameter.
    """
    for part in _parts(optimizer):
        if isinstance(part, DistributedOptimizer):
            for state in part.optimizer.state.values():
                state["step"] = torch.tensor(float(num_steps))


_set_states = DistributedOptimizer._set_main_param_and_optimizer_states


def _set_states_with_step(self: DistributedOptimizer, parameter: Any, tensors: dict[str, Any]) -> None:  # noqa: ANN401
    group, order = self.model_param_group_index_map[parameter]
    state = self.optimizer.state[self.optimizer.param_groups[group]["params"][order]]
    _set_states(self, parameter, {**tensors, **({"step": state["step"]} if "step" in state else {})})


# Megatron 0.16.1 looks for a "step" per parameter, which its checkpoints do not hold, when the optimizer is torch's.
DistributedOptimizer._set_main_param_and_optimizer_states = _set_states_with_step  # type: ignore[method-assign]
