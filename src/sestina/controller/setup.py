"""Brings the ranks of a run together: engines ready with weights, then the trainer, then one weight-update group."""

import asyncio
import logging
from pathlib import Path

from sestina.controller.driver import RolloutDriver
from sestina.controller.ranks import Ranks
from sestina.core.units import Seconds, Version
from sestina.policies.events import InstanceUp
from sestina.transport.messages import (
    BuildTrainer,
    InstanceReady,
    JoinWeights,
    LoadWeights,
    TrainerReady,
    WeightsJoined,
    WeightsLoaded,
)

_log = logging.getLogger(__name__)


async def start_instances(
    ranks: Ranks, driver: RolloutDriver, model: Path, version: Version, *, dtype: str, start_s: Seconds
) -> None:
    """Wait until all engines are ready, have each read a model from the disk as `version`, tell the driver of them.

    Raises DeadlineError naming the rank that is late.
    """
    rollouts = ranks.layout.rollouts
    building = [ranks.ask(rank, None, InstanceReady, start_s, "to build its engine") for rank in rollouts]
    engines = await asyncio.gather(*building)
    order = LoadWeights(version=version, directory=str(model.absolute()), dtype=dtype)
    reading = [ranks.ask(rank, order, WeightsLoaded, start_s, f"to read {order.directory}") for rank in rollouts]
    await asyncio.gather(*reading)
    driver.version = version
    for engine in engines:
        _warn_if_variant(engine)
        if engine.drafter:
            _log.info("instance %d: drafts by %s", engine.instance, engine.drafter)
        up = InstanceUp(
            instance=engine.instance,
            kv_capacity_tokens=engine.kv_capacity_tokens,
            page_tokens=engine.page_tokens,
            max_running=engine.max_running,
        )
        driver.instance_up(up)


async def start_trainer(ranks: Ranks, *, start_s: Seconds, weights_s: Seconds) -> int:
    """Have the trainer built, and join it and all rollout ranks for weight updates; returns the buckets of an update.

    Raises DeadlineError naming the rank that is late.
    """
    building = "to load Megatron and build the model"
    ready = await ranks.ask(ranks.first_trainer, BuildTrainer(), TrainerReady, start_s, building)
    members = (ranks.first_trainer, *ranks.layout.rollouts)
    joins = [
        ranks.ask(
            member,
            JoinWeights(host=ready.host, port=ready.port, rank=number, world_size=len(members), layout=ready.layout),
            WeightsJoined,
            2 * weights_s,
            "to join the weight-update group",
        )
        for number, member in enumerate(members)
    ]
    await asyncio.gather(*joins)
    return ready.num_buckets


def _warn_if_variant(engine: InstanceReady) -> None:
    if not engine.batch_invariant:
        _log.warning(
            "instance %d: its engine's floating-point sums depend on the batch, so tokens may differ between "
            "schedulers, chunk sizes and numbers of instances",
            engine.instance,
        )
