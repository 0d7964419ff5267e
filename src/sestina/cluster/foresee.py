"""What a job's steps are foreseen to take: the run, simulated on a preset of GPUs with as much memory as its own."""

import dataclasses
from collections.abc import Sequence
from math import ceil, gcd
from pathlib import Path

from sestina.config.run import RunConfig
from sestina.config.sim import GpuConfig, SimConfig
from sestina.config.sweep import runs_of
from sestina.core.errors import ConfigError, SestinaError
from sestina.simulator.compare import shown_s
from sestina.simulator.prediction import Prediction, predict, shortened
from sestina.simulator.workload import mean_tokens
from sestina.simulator.world import World, world_of

PRESETS = ("h800", "h200")
"""Files of conf/sim/hardware: the first one whose GPU has the memory that the cluster states is taken."""

MOST_CHUNKS = 30_000
"""Simulated in a few seconds."""


def presets_of(conf_dir: Path) -> tuple[SimConfig, ...]:
    """Read the simulated worlds that jobs are foreseen in."""
    found = [runs_of(("sim=simulated", f"sim/hardware={name}"), conf_dir)[0].sim for name in PRESETS]
    return tuple(sim for sim in found if sim is not None)


def foreseen(config: RunConfig, presets: Sequence[SimConfig]) -> str:
    """Return in words what a step will take, or a line that says why that is not known."""
    try:
        sim, gpu = _preset_for(config, presets)
        config = shortened(dataclasses.replace(config, sim=sim, eval=dataclasses.replace(config.eval, every=0)))
        world_of(config, sim)  # what no simulation carries is said before what a dry run has no time for
        share = share_simulated(config)
        world = _part_of(config, sim, share)
        return _in_words(predict(world), world, gpu, share)
    except ConfigError as error:
        return f"no prediction: {error.violations[0]}\n"
    except SestinaError as error:
        return f"no prediction: {error}\n"


def share_simulated(config: RunConfig) -> int:
    """Return of how many equal parts of instances and prompts one is simulated.

    Raises ConfigError when even the smallest part takes longer than a dry run may.
    """
    rollout, groups = config.rollout, config.algorithm.batch_size // config.algorithm.group_size
    longest = rollout.max_new_tokens if rollout.scheduler == "group" else rollout.chunk_tokens
    chunks = config.run.steps * config.algorithm.batch_size * ceil(mean_tokens(config) / longest)
    whole = gcd(rollout.num_instances, groups)
    for share in range(1, whole + 1):
        if whole % share == 0 and chunks <= share * MOST_CHUNKS:
            return share
    raise ConfigError([
        f"rollout.chunk_tokens: {rollout.chunk_tokens} makes about {chunks // whole:,} chunks of the smallest part of "
        f"a batch, a dry run simulates {MOST_CHUNKS:,}; launch/simulate.py takes its time"
    ])  # fmt: skip


def _preset_for(config: RunConfig, presets: Sequence[SimConfig]) -> tuple[SimConfig, GpuConfig]:
    cluster = config.cluster
    if cluster is None or not cluster.gpus:
        raise ConfigError(["cluster.gpus: 0 leaves only CPUs, and there are presets of GPUs alone"])
    for sim in presets:
        if isinstance(sim.hardware, GpuConfig) and sim.hardware.memory_gib >= cluster.gpu_memory_gib:
            return sim, sim.hardware
    raise ConfigError([
        f"cluster.gpu_memory_gib: {cluster.gpu_memory_gib:g} is more than any preset has ({', '.join(PRESETS)})"
    ])  # fmt: skip


def _part_of(config: RunConfig, sim: SimConfig, share: int) -> World:
    """Return a world with one of so many equal parts: its instances, its prompts, and its share of the trainer."""
    rollout = dataclasses.replace(config.rollout, num_instances=config.rollout.num_instances // share)
    algorithm = dataclasses.replace(config.algorithm, batch_size=config.algorithm.batch_size // share)
    running = config.async_.max_running_groups
    ahead = dataclasses.replace(config.async_, max_running_groups=running and max(1, running // share))
    world = world_of(dataclasses.replace(config, rollout=rollout, algorithm=algorithm, async_=ahead), sim)
    training = dataclasses.replace(world.training, rank_flops=world.training.rank_flops / share)
    return dataclasses.replace(world, training=training)


def _in_words(prediction: Prediction, world: World, gpu: GpuConfig, share: int) -> str:
    waits_s, train_s = shown_s(prediction.rollout_s), shown_s(prediction.train_s)
    rollout = (
        f"the trainer waits {waits_s} s for a batch"
        if prediction.tail_s is None
        else f"rollout {waits_s} s (tail {shown_s(prediction.tail_s)})"
    )
    lines = [
        f"predicted on {gpu.name}: a step of {shown_s(prediction.step_s)} s",
        f"  {rollout}, train {train_s} s, weights {shown_s(prediction.weights_s)} s",
        f"  {share * prediction.tokens_per_s:,.0f} tokens/s of the whole step, evaluation left out",
        *([f"  from one of {share} equal parts of instances and prompts"] if share > 1 else []),
        f"  not calibrated: {', '.join(world.uncalibrated)}" if world.uncalibrated else "  all calibrated",
    ]
    return "\n".join(lines) + "\n"
