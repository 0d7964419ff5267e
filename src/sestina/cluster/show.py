"""What would be submitted: configuration, layout with the memory foreseen, batch script, what steps will take."""

from collections.abc import Iterator, Sequence

from rich.console import Console

from sestina.cluster.files import DRY, SCRIPT
from sestina.cluster.foresee import foreseen
from sestina.cluster.layout import JobLayout
from sestina.cluster.submit import Plan
from sestina.config.cluster import ClusterConfig
from sestina.config.fit import Forecast, forecast, gib, parts_of
from sestina.config.resolved import write_resolved
from sestina.config.run import RunConfig
from sestina.config.sim import SimConfig
from sestina.config.sweep import numbered
from sestina.controller.run_dir import CONFIG
from sestina.core.errors import ConfigError

LAYOUT, PREDICTION = "layout.txt", "prediction.txt"


def show_jobs(plans: Sequence[Plan], console: Console, presets: Sequence[SimConfig]) -> None:
    """Print and write what would be submitted; leaves a run that is in its directory alone.

    `presets`: simulated worlds, in one of which steps are foreseen. Raises ConfigError at the end, with what no part of
    this system carries out.
    """
    for plan in plans:
        folder = plan.folder / DRY
        folder.mkdir(parents=True, exist_ok=True)
        write_resolved(plan.config, folder / CONFIG)
        (folder / SCRIPT).write_text(plan.script, encoding="utf-8")
        (folder / LAYOUT).write_text(describe(plan), encoding="utf-8")
        (folder / PREDICTION).write_text(foreseen(plan.found.config, presets), encoding="utf-8")
        for name in (CONFIG, LAYOUT, SCRIPT, PREDICTION):
            console.print(f"== {folder / name}")
            console.out((folder / name).read_text(encoding="utf-8"), highlight=False)
        for line in plan.found.absent:
            console.out(f"needed before it is submitted: {line}", highlight=False)
    console.print("nothing was submitted")
    beyond = [plan.found.unsupported for plan in plans]
    if any(beyond):
        raise ConfigError(numbered(beyond))


def describe(plan: Plan) -> str:
    """Return the layout in words; pure."""
    config, lines = plan.found.config, [*_components(plan.layout)]
    foreseen, cluster = forecast(config), config.cluster
    if cluster is not None and cluster.gpus:
        share = f"{cluster.split.rollout}:{cluster.split.trainer}"
        lines.append(f"{cluster.gpus} GPUs, {share}: {cluster.rollout_gpus} roll out, {cluster.trainer_gpus} train")
    if foreseen is not None and cluster is not None:
        lines += [*_rollout(config, cluster, foreseen), *_trainer(config, foreseen)]
    return "\n".join(lines) + "\n"


def _components(layout: JobLayout) -> Iterator[str]:
    yield f"{layout.tasks} ranks on {layout.nodes} nodes"
    for number, part in enumerate(layout.components):
        yield (
            f"  component {number}: {layout.roles(number)}; {part.tasks} ranks on {part.nodes} nodes, "
            f"{part.tasks_per_node} ranks and {part.gpus_per_node} GPUs each"
        )


def _rollout(config: RunConfig, cluster: ClusterConfig, foreseen: Forecast) -> Iterator[str]:
    rollout, memory = config.rollout, foreseen.instance
    gpus = cluster.rollout_gpus // rollout.num_instances
    yield f"rollout: {rollout.num_instances} instances of {gpus} GPUs, {foreseen.kv_tokens:,} KV tokens in each"
    yield (
        f"  on a GPU of {cluster.gpu_memory_gib:g} GiB: weights {gib(memory.weights)}, KV {gib(memory.kv_bytes)} "
        f"({memory.token_bytes:,} bytes a token)"
    )
    first = config.data.max_prompt_tokens + min(rollout.chunk_tokens, rollout.max_new_tokens)
    yield (
        f"  room for {foreseen.num_longest:,} responses of {foreseen.longest_tokens:,} tokens with their prompts, "
        f"or {foreseen.kv_tokens // first:,} first chunks ({first:,} tokens); "
        f"rollout.engine.max_running {rollout.engine.max_running:,}"
    )


def _trainer(config: RunConfig, foreseen: Forecast) -> Iterator[str]:
    trainer, memory = config.trainer, foreseen.trainer
    cut = f"tensor {trainer.tensor_parallel} x pipeline {trainer.pipeline_parallel} x data {trainer.data_parallel}"
    if trainer.expert_parallel > 1:
        experts = (trainer.expert_parallel, trainer.expert_tensor_parallel, trainer.expert_data_parallel)
        cut += ", experts {} x tensor {} x data {}".format(*experts)
    yield f"trainer: {trainer.num_ranks} ranks, {cut}"
    yield (
        f"  on a GPU: {gib(memory.total)} of {gib(foreseen.trainer_limit)} GiB at stage {memory.stage} "
        f"({parts_of(memory)})"
    )
