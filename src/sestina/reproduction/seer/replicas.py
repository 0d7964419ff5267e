"""An instance whose attention is replicated, as one instance for each replica.

Under data parallelism of attention every GPU of an instance holds the keys and values of other responses, has a queue
of its own and counts its own sequences; it has no use for room that is left on another (Kimi-K2: DP32 and EP32, Seer,
table 3). What replicas share is the experts: each step sends rows to them from all. Here a replica goes at its own
pace, beside others that are taken to run as many responses as it does. Really they wait for one another in each layer,
so that the fullest one sets the pace; that is not here.
"""

from dataclasses import replace

from sestina.rollout.config import SGLangEngineConfig
from sestina.simulator.cost.step import EngineCost
from sestina.simulator.residents import FluidLimits
from sestina.simulator.world import World


def by_replica(world: World) -> World:
    """Return a world with one instance for each replica of attention, each of one GPU."""
    rollout, limits = world.config.rollout, world.limits
    assert isinstance(rollout.engine, SGLangEngineConfig), "an instance of several GPUs is a server's"
    count = rollout.engine.data_parallel
    running = limits.max_running // count
    engine = replace(rollout.engine, tensor_parallel=1, data_parallel=1, expert_parallel=1, max_running=running)
    instances = replace(rollout, num_instances=rollout.num_instances * count, engine=engine)
    return replace(
        world,
        config=replace(world.config, rollout=instances),
        limits=FluidLimits(kv_capacity_tokens=limits.kv_capacity_tokens // count, max_running=running),
        cost=_cost_of(world.cost, count),
    )


def _cost_of(cost: EngineCost, count: int) -> EngineCost:
    """Return a replica's steps, of which each row and token stands for one on every other replica too."""
    step, experts = cost.step, cost.experts
    others_s = (count - 1) * step.verify_token_s
    """Of sending a row to the experts, for those of the other replicas."""
    return replace(
        cost,
        prefill_row_kv_s=count * cost.prefill_row_kv_s,
        experts=experts and replace(experts, missed=experts.missed**count),
        step=replace(
            step,
            kv_token_s=count * step.kv_token_s,
            row_s=count * step.row_s,
            row_kv_s=count * step.row_kv_s,
            # The rest of these is an engine's work for a sequence of its own.
            plain_sequence_s=step.plain_sequence_s + others_s,
            verify_sequence_s=step.verify_sequence_s + others_s,
            verify_token_s=step.verify_token_s + others_s,
        ),
    )
