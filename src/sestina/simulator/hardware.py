"""A preset of a GPU against a run: what it must have for the run's instances, and what of it is assumed."""

from sestina.config.fit import gib
from sestina.config.run import RunConfig
from sestina.config.sim import GpuConfig, LinkConfig
from sestina.core.errors import ConfigError
from sestina.models.config import ShapeConfig
from sestina.models.size import kv_values
from sestina.rollout.memory import instance_memory
from sestina.simulator.cost.moves import MoveCost
from sestina.simulator.cost.roofline import sharing_of

_ONE_NODE = 8
"""GPUs of a node, where no cluster states it."""


def link_of(config: RunConfig, gpu: GpuConfig) -> tuple[LinkConfig | None, str]:
    """Return what connects the GPUs of an instance, and its key; raises ConfigError for a preset that lacks it."""
    gpus, node = sharing_of(config.rollout.engine).gpus, gpus_per_node(config)
    key = "network" if gpus > node else "link"
    link = gpu.network if gpus > node else gpu.link
    if gpus > 1 and link is None:
        raise ConfigError([
            f"sim.hardware.{key}: null is not allowed with rollout.engine.tensor_parallel {gpus} on nodes of {node} "
            f"GPUs; {gpu.name} needs a {key} for an instance of so many, or 1"
        ])  # fmt: skip
    return (link if gpus > 1 else None), key


def kv_tokens_of(config: RunConfig, gpu: GpuConfig, shape: ShapeConfig) -> int:
    """Return the tokens that an instance holds; raises ConfigError, with what takes the memory, for too few."""
    cluster, engine = config.cluster, config.rollout.engine
    if cluster is not None and cluster.gpu_memory_gib > gpu.memory_gib:
        raise ConfigError([
            f"cluster.gpu_memory_gib: {cluster.gpu_memory_gib:g} is not allowed with sim.hardware.name {gpu.name!r}, "
            f"which has {gpu.memory_gib:g}; at most that, or other hardware (sim/hardware=h200)"
        ])  # fmt: skip
    memory = instance_memory(shape, engine, int((cluster.gpu_memory_gib if cluster else gpu.memory_gib) * 2**30))
    longest = config.data.max_prompt_tokens + config.rollout.max_new_tokens
    tokens = engine.kv_capacity_tokens or memory.kv_tokens
    if tokens > memory.kv_tokens or memory.replica_tokens < longest:
        raise ConfigError([
            f"rollout.engine: weights take {gib(memory.weights)} GiB of a GPU's {gpu.memory_gib:g}, which leaves "
            f"{gib(max(0, memory.kv_bytes))} GiB for keys and values, room for {memory.kv_tokens} tokens; "
            f"{max(longest, engine.kv_capacity_tokens)} are wanted"
        ])  # fmt: skip
    return tokens


def moves_of(config: RunConfig, gpu: GpuConfig, shape: ShapeConfig) -> MoveCost:
    """Return what moving keys and values takes, each GPU its share."""
    engine = config.rollout.engine
    value, shared = (2 if engine.dtype == "bfloat16" else 4), sharing_of(engine).attention
    return MoveCost(
        token_bytes=value * kv_values(shape) / shared,
        links={"dram": gpu.host, "ssd": gpu.disk, "network": gpu.network},
    )


def gpus_per_node(config: RunConfig) -> int:
    """Return how many GPUs a node has."""
    return _ONE_NODE if config.cluster is None else config.cluster.gpus_per_node


def assumed_of(config: RunConfig, gpu: GpuConfig, link_key: str) -> tuple[str, ...]:
    """Return the keys of a preset that a result rests on and nobody measured."""
    terms = ["memory_bytes_s", "flops", "sequence_s", "step_s", "train_share", "network"]
    if sharing_of(config.rollout.engine).gpus > 1:
        terms.append(link_key)
    if config.draft.source != "none":
        terms += ["verify_sequence_s", "draft_token_s"]
    if config.rollout.kv_pool.kind != "none":
        terms += ["host", "disk"]
    return tuple(f"hardware.{term}" for term in dict.fromkeys(terms) if term not in gpu.measured)
