"""The instances of an emulated world: engines from the run's own settings, each with a clock and what moves it."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from sestina.config.run import RunConfig
from sestina.config.sim import CalibratedConfig, SimConfig
from sestina.controller.instance import instance_config
from sestina.models.shape import read_shape
from sestina.models.weights import read_weights
from sestina.rollout.build import InstanceConfig, build_engine
from sestina.rollout.fused import Common
from sestina.rollout.meter import meter_for
from sestina.rollout.speculation.desk import DraftDesk
from sestina.simulator.clock import VirtualClock
from sestina.simulator.cost.calibrated import calibrated
from sestina.simulator.cost.step import EngineCost
from sestina.simulator.cost.taken import CalibratedMeter
from sestina.simulator.inline import Inline
from sestina.simulator.instance import EmulatedInstance, Weights


def cost_of(config: RunConfig, sim: SimConfig) -> EngineCost | None:
    """Return what steps are said to take, or None: what they really take.

    Raises a UserError for a calibration that cannot be read or is of another engine.
    """
    if not isinstance(sim.hardware, CalibratedConfig):
        return None
    cost, _ = calibrated(sim.hardware.path, config.model.path, config.rollout.engine, pace=sim.hardware.pace)
    return cost


def instances_of(
    config: RunConfig, sim: SimConfig, desks: Sequence[DraftDesk], cost: EngineCost | None
) -> list[EmulatedInstance]:
    """Return one instance for each desk, with the weights that the run starts from; they share those."""
    torch.set_num_threads(1)
    weights, common = _weights(config), Common()
    drains = config.run.mode == "async" and sim.updates == "drain"

    def made(number: int, desk: DraftDesk) -> EmulatedInstance:
        counted = _counted(cost)
        clock = VirtualClock(counted or meter_for(config.rollout.engine.device))
        engine = build_engine(
            _job(config, sim, number),
            desk,
            clock=clock,
            kv_thread=Inline(),
            common=common,
            on_step=counted and counted.take,
        )
        engine.load_weights(0, weights)
        return EmulatedInstance(number, engine, clock, weights, drains=drains)

    return [made(number, desk) for number, desk in enumerate(desks)]


def _counted(cost: EngineCost | None) -> CalibratedMeter | None:
    if cost is None:
        return None
    assert cost.serving is not None, "every calibration has one"
    return CalibratedMeter(cost.step, cost.serving)


def _job(config: RunConfig, sim: SimConfig, number: int) -> InstanceConfig:
    """Return an instance's settings; what decides on its drafts knows the steps as its clock does."""
    job = instance_config(config, number)
    if not isinstance(sim.hardware, CalibratedConfig):
        return job
    return replace(job, draft=replace(job.draft, calibration=sim.hardware.path))


def _weights(config: RunConfig) -> Weights:
    """Read the weights that all instances start from, as their engines hold them."""
    engine, tensors = config.rollout.engine, read_weights(config.model.path, read_shape(config.model.path))
    return {name: tensor.to(engine.device, getattr(torch, engine.dtype)) for name, tensor in tensors.items()}
