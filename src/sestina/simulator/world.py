"""A simulated world from a configuration: what its engines hold and take, and what of that nobody has measured."""

from dataclasses import dataclass, replace
from typing import assert_never

from sestina.algorithms.config import DAPOConfig
from sestina.config.run import RunConfig
from sestina.config.schema import shown
from sestina.config.sim import CalibratedConfig, DrawnConfig, GpuConfig, HardwareConfig, RecordedConfig, SimConfig
from sestina.core.errors import ConfigError
from sestina.core.units import Seconds
from sestina.kvpool.config import LocalKvPoolConfig
from sestina.models.config import ShapeConfig
from sestina.models.shape import read_shape
from sestina.models.size import parameters
from sestina.rollout.config import SGLangEngineConfig
from sestina.rollout.pages import PAGE_TOKENS
from sestina.simulator.acceptance import Drafting, drafting_of
from sestina.simulator.cost.calibrated import calibrated
from sestina.simulator.cost.moves import MoveCost, transfer_s
from sestina.simulator.cost.roofline import roofline, sharing_of
from sestina.simulator.cost.step import EngineCost
from sestina.simulator.cost.training import TrainingCost
from sestina.simulator.fluid import OnUpdate
from sestina.simulator.hardware import assumed_of, gpus_per_node, kv_tokens_of, link_of, moves_of
from sestina.simulator.residents import FluidLimits
from sestina.simulator.resume import SimulatedPool
from sestina.simulator.workload import Workload, workload_of


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything that simulations of one configuration share."""

    config: RunConfig
    workload: Workload
    limits: FluidLimits
    page_tokens: int
    cost: EngineCost
    drafting: Drafting
    training: TrainingCost
    weights_s: Seconds
    """Until all instances have new weights, or their hosts where batches are pipelined; 0: no network is stated."""
    load_s: Seconds
    """Of weights from the host's memory into an instance; 0 where no link to it is stated."""
    uncalibrated: tuple[str, ...]
    """Keys whose values are assumed and that results rest on."""
    moves: MoveCost

    @property
    def overlaps(self) -> bool:
        """Whether rollout goes on while the trainer works."""
        return self.config.run.mode != "sync"

    @property
    def on_update(self) -> OnUpdate:
        """What new weights do to responses under way."""
        sim = self.config.sim
        if self.config.run.mode != "async":
            return OnUpdate()
        return OnUpdate(drains=sim is not None and sim.updates == "drain", keep_kv=self.config.async_.keep_kv)

    def pool(self) -> SimulatedPool | None:
        """Return an empty pool of keys and values, if the run has one."""
        pool, sim = self.config.rollout.kv_pool, self.config.sim
        if not isinstance(pool, LocalKvPoolConfig) or sim is None:
            return None
        sharing = sharing_of(self.config.rollout.engine)
        node = gpus_per_node(self.config)
        return SimulatedPool(
            config=pool,
            cost=self.moves,
            instance_gpus=sharing.attention,
            instances_per_node=max(1, node // sharing.gpus),
            nodes_per_instance=max(1, sharing.gpus // node),
            reach=sim.kv_reach,
        )


def world_of(config: RunConfig, sim: SimConfig) -> World:
    """Return the world; raises a UserError for what cannot be simulated."""
    _refuse(config, sim)
    shape = config.model.shape or read_shape(config.model.path).planned()
    match sim.hardware:
        case GpuConfig() as gpu:
            return _on_gpus(config, sim, gpu, shape)
        case CalibratedConfig() as measured:
            return _on_measured(config, sim, measured, shape)
        case None:
            raise ConfigError(["sim.hardware: null is not allowed with sim.world 'simulated'; sim/hardware=h800 is"])
        case _:
            assert_never(sim.hardware)


def _refuse(config: RunConfig, sim: SimConfig) -> None:
    pairs = (
        ("draft.servers", config.draft.servers, 0),
        ("eval.every", config.eval.every, 0),
        ("rollout.forced_lengths_from", config.rollout.forced_lengths_from, None),
        ("rollout.lengths_from", config.rollout.lengths_from, None),
    )
    wrong = [
        f"{key}: {shown(given)} is not carried by a simulation; {shown(only)} is (sim/workload=recorded takes lengths)"
        for key, given, only in pairs
        if given != only
    ]
    if config.rollout.history_from is not None:
        wrong.append(
            f"rollout.history_from: {shown(config.rollout.history_from)} is not carried by a simulation; null is "
            "(sim.workload.seen_before has an epoch before the first step)"
        )
    kind, over = config.environment.kind, config.rollout.over_issue
    if kind != "none":
        wrong.append(f"environment.kind: '{kind}' is not carried by a simulation; 'none' is")
    if over > 1:
        wrong.append(f"rollout.over_issue: {over:g} is not carried by a simulation; 1 is")
    wrong += _mode_left_out(config, sim)
    wrong += _pool_left_out(config.rollout.kv_pool.kind, sim.hardware)
    if wrong:
        raise ConfigError(wrong)


def _mode_left_out(config: RunConfig, sim: SimConfig) -> list[str]:
    algorithm, wrong = config.algorithm, list[str]()
    if isinstance(algorithm, DAPOConfig) and algorithm.dynamic_sampling:
        wrong.append("algorithm.dynamic_sampling: true is not carried by a simulation, which scores nothing; false is")
    drops = config.run.mode == "async" and config.async_.overdue == "drop"
    if drops and isinstance(sim.workload, RecordedConfig):
        wrong.append(
            "async.overdue: 'drop' is not carried by a simulation of recorded lengths, which has no other groups to "
            "begin in place of those dropped; 'wait' is, or sim/workload=drawn"
        )
    return wrong


def _pool_left_out(kind: str, hardware: HardwareConfig | None) -> list[str]:
    """Return a line for a pool whose moves nothing gives a time to."""
    if isinstance(hardware, CalibratedConfig) and kind != "none":
        return [
            f"rollout.kv_pool.kind: {kind!r} is not carried by a simulation on sim.hardware.kind 'calibrated', which "
            "has no links; 'none' is, or 'local' with a GPU's preset (sim/hardware=h800)"
        ]
    if kind not in ("none", "local"):
        return [f"rollout.kv_pool.kind: {kind!r} is not carried by a simulation; 'none' and 'local' are"]
    return []


def _on_gpus(config: RunConfig, sim: SimConfig, gpu: GpuConfig, shape: ShapeConfig) -> World:
    if config.rollout.engine.device != "cuda":
        raise ConfigError([
            f"sim.hardware.kind: 'gpu' ({gpu.name}) is not allowed with rollout.engine.device "
            f"'{config.rollout.engine.device}'; 'cuda', or sim/hardware=calibrated"
        ])  # fmt: skip
    link, link_key = link_of(config, gpu)
    kv_tokens = kv_tokens_of(config, gpu, shape)
    moves = moves_of(config, gpu, shape)
    weights = 2 * parameters(shape).total
    drafting = drafting_of(config, sim)
    return World(
        config=config,
        workload=workload_of(config, sim),
        limits=_limits(config, kv_tokens),
        page_tokens=_page_tokens(config),
        cost=roofline(shape, config.rollout.engine, gpu, link),
        drafting=drafting,
        training=TrainingCost(shape=shape, trainer=config.trainer, rank_flops=gpu.flops * gpu.train_share),
        weights_s=0.0 if gpu.network is None else transfer_s(gpu.network, weights),
        uncalibrated=(*assumed_of(config, gpu, link_key), *_of_workload(config, sim)),
        load_s=0.0 if gpu.host is None else transfer_s(gpu.host, weights / sharing_of(config.rollout.engine).gpus),
        moves=moves,
    )


def _on_measured(config: RunConfig, sim: SimConfig, measured: CalibratedConfig, shape: ShapeConfig) -> World:
    cost, flops = calibrated(measured.path, config.model.path, config.rollout.engine, pace=measured.pace)
    nothing = MoveCost(token_bytes=1.0, links={"dram": None, "ssd": None, "network": None})
    return World(
        config=config,
        workload=workload_of(config, sim),
        limits=replace(_limits(config, config.rollout.engine.kv_capacity_tokens), page_tokens=PAGE_TOKENS),
        page_tokens=_page_tokens(config),
        cost=cost,
        drafting=drafting_of(config, sim),
        training=TrainingCost(shape=shape, trainer=config.trainer, rank_flops=flops),
        weights_s=0.0,
        load_s=0.0,
        uncalibrated=("trainer", "weights", *_of_workload(config, sim)),
        moves=nothing,
    )


def _limits(config: RunConfig, kv_tokens: int) -> FluidLimits:
    return FluidLimits(kv_capacity_tokens=kv_tokens, max_running=config.rollout.engine.max_running)


def _page_tokens(config: RunConfig) -> int:
    engine = config.rollout.engine
    return engine.page_tokens if isinstance(engine, SGLangEngineConfig) else PAGE_TOKENS


def _of_workload(config: RunConfig, sim: SimConfig) -> tuple[str, ...]:
    terms: list[str] = []
    if isinstance(sim.workload, DrawnConfig):
        terms += ["workload.between", "workload.within", "workload.prompt_tokens", "reward_s"]
        terms += ["rollout.expected_tokens"] if config.rollout.expected_tokens is None else []
    return (*terms, "acceptance") if config.draft.source != "none" else tuple(terms)
