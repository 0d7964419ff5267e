"""Whether a run fits the memory of its GPUs, and what is foreseen of it; pure.

Judged only where the model's shape is known and the job has GPUs.
"""

from dataclasses import dataclass

from sestina.config.run import RunConfig
from sestina.models.config import ShapeConfig
from sestina.rollout.config import SGLangEngineConfig
from sestina.rollout.memory import InstanceMemory, instance_memory
from sestina.trainer.memory import TrainerMemory, trainer_memory

GIB = 2**30

RESERVED_BYTES = 4 * GIB
"""Of a trainer's GPU: contexts of CUDA and NCCL, communication buffers, and what the allocator cannot join together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a job will need of its GPUs."""

    trainer: TrainerMemory
    trainer_limit: int
    """Bytes of a GPU that a rank may use."""
    instance: InstanceMemory
    kv_tokens: int
    """Tokens that one instance holds: as many as asked for, or as many as fit."""
    longest_tokens: int
    """Of a prompt and its response."""

    @property
    def num_longest(self) -> int:
        """Longest responses that an instance holds at once."""
        return self.instance.replicas * (self.kv_tokens // self.instance.replicas // self.longest_tokens)


def forecast(config: RunConfig) -> Forecast | None:
    """Foresee the memory of a run; None where the shape is unknown or there are no GPUs."""
    shape, cluster, engine = config.model.shape, config.cluster, config.rollout.engine
    if shape is None or cluster is None or not cluster.gpus:
        return None
    gpu_bytes = int(cluster.gpu_memory_gib * GIB)
    instance = instance_memory(shape, engine, gpu_bytes)
    return Forecast(
        trainer=trainer_memory(shape, config.trainer),
        trainer_limit=gpu_bytes - RESERVED_BYTES,
        instance=instance,
        kv_tokens=engine.kv_capacity_tokens or instance.kv_tokens,
        longest_tokens=config.data.max_prompt_tokens + config.rollout.max_new_tokens,
    )


def misfits(config: RunConfig) -> list[str]:
    """Return a line, with the keys to change, for all that the GPUs' memory or the model's kind does not allow."""
    shape, foreseen = config.model.shape, forecast(config)
    lines = [] if shape is None else _without_experts(config, shape)
    if foreseen is None:
        return lines
    if foreseen.trainer.total > foreseen.trainer_limit:
        lines.append(_trainer_is_full(config, foreseen))
    return lines + _cache_is_short(config, foreseen)


def _without_experts(config: RunConfig, shape: ShapeConfig) -> list[str]:
    given = {
        "trainer.expert_parallel": config.trainer.expert_parallel,
        "trainer.expert_tensor_parallel": config.trainer.expert_tensor_parallel,
    }
    if isinstance(config.rollout.engine, SGLangEngineConfig):
        given["rollout.engine.expert_parallel"] = config.rollout.engine.expert_parallel
    wrong = [(key, value) for key, value in given.items() if value > 1 and shape.experts is None]
    return [f"{key}: {value} is not allowed with model.shape.experts null; 1" for key, value in wrong]


def _trainer_is_full(config: RunConfig, foreseen: Forecast) -> str:
    trainer, memory = config.trainer, foreseen.trainer
    remedies = [
        f"raise trainer.tensor_parallel ({trainer.tensor_parallel}), trainer.pipeline_parallel "
        f"({trainer.pipeline_parallel}) or cluster.gpus with trainer.num_ranks ({trainer.num_ranks})",
        f"lower trainer.max_micro_batch_tokens ({trainer.max_micro_batch_tokens})",
    ]
    if config.model.shape is not None and config.model.shape.experts is not None:
        remedies.append(f"raise trainer.expert_parallel ({trainer.expert_parallel})")
    if not trainer.distributed_optimizer:
        remedies.append("set trainer.distributed_optimizer true")
    if trainer.recompute != "full":
        remedies.append("set trainer.recompute 'full'")
    return (
        f"trainer: a rank of stage {memory.stage} needs {gib(memory.total)} GiB ({parts_of(memory)}); at most "
        f"{gib(foreseen.trainer_limit)}, what cluster.gpu_memory_gib leaves; {', or '.join(remedies)}"
    )


def _cache_is_short(config: RunConfig, foreseen: Forecast) -> list[str]:
    engine, memory = config.rollout.engine, foreseen.instance
    keys = "raise rollout.engine.memory_fraction or " if isinstance(engine, SGLangEngineConfig) else ""
    keys += "cluster.gpu_memory_gib, give each of fewer rollout.num_instances more GPUs"
    if isinstance(engine, SGLangEngineConfig):
        keys += f" (rollout.engine.tensor_parallel, {engine.tensor_parallel})"
    room = (
        f"beside {gib(memory.weights)} GiB of weights each GPU has {gib(max(0, memory.kv_bytes))} GiB for keys and "
        f"values, an instance room for {memory.kv_tokens} tokens"
    )
    if engine.kv_capacity_tokens > memory.kv_tokens:
        given = engine.kv_capacity_tokens
        return [f"rollout.engine.kv_capacity_tokens: {given} is not allowed; {room}; lower it, or {keys}"]
    if memory.replica_tokens < foreseen.longest_tokens:
        longest = f"a longest prompt and response of {foreseen.longest_tokens} tokens"
        return [f"rollout.engine: {room}, too few for {longest}; {keys}, or lower rollout.max_new_tokens"]
    return []


def parts_of(memory: TrainerMemory) -> str:
    """Say what a rank's memory goes to, in GiB."""
    named = {
        "weights": memory.weights,
        "gradients": memory.gradients,
        "optimizer": memory.optimizer,
        "activations": memory.activations,
        "temporaries": memory.temporaries,
    }
    return ", ".join(f"{name} {gib(value)}" for name, value in named.items())


def gib(value: int) -> str:
    """Write bytes in GiB."""
    return f"{value / GIB:.1f}"
