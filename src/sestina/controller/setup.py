"""Brings the ranks of a run together: engines ready, trainer ready, one weight-update group."""

import asyncio
import logging

from sestina.controller.driver import RolloutDriver
from sestina.controller.ranks import Ranks
from sestina.core.units import Seconds
from sestina.policies.events import InstanceUp
from sestina.transport.messages import InstanceReady, JoinWeights, TrainerReady, WeightsJoined

_log = logging.getLogger(__name__)


async def connect_ranks(ranks: Ranks, driver: RolloutDriver, start_s: Seconds, weights_s: Seconds) -> int:
    """Wait until all ranks are ready, join them for weight updates, tell the driver of the instances.

    Returns the number of buckets of an update.

    Raises DeadlineError naming the rank that is late.
    """
    rollouts = ranks.layout.rollouts
    trainer = ranks.ask(ranks.first_trainer, None, TrainerReady, start_s, "to load the model")
    instances = [ranks.ask(rank, None, InstanceReady, start_s, "to build its engine") for rank in rollouts]
    ready, engines = await asyncio.gather(trainer, asyncio.gather(*instances))
    await _join(ranks, ready, weights_s)
    for engine in engines:
        _warn_if_variant(engine)
        up = InstanceUp(
            instance=engine.instance,
            kv_capacity_tokens=engine.kv_capacity_tokens,
            page_tokens=engine.page_tokens,
            max_running=engine.max_running,
        )
        driver.instance_up(up)
    return ready.num_buckets


async def _join(ranks: Ranks, ready: TrainerReady, limit_s: Seconds) -> None:
    members = (ranks.first_trainer, *ranks.layout.rollouts)
    joins = [
        ranks.ask(
            member,
            JoinWeights(host=ready.host, port=ready.port, rank=number, world_size=len(members), layout=ready.layout),
            WeightsJoined,
            2 * limit_s,
            "to join the weight-update group",
        )
        for number, member in enumerate(members)
    ]
    await asyncio.gather(*joins)


def _warn_if_variant(engine: InstanceReady) -> None:
    if not engine.batch_invariant:
        _log.warning(
            "instance %d: its engine's floating-point sums depend on the batch, so tokens may differ between "
            "schedulers, chunk sizes and numbers of instances",
            engine.instance,
        )
