"""What a configuration may say and plan, and no part of this system carries out; pure."""

from collections.abc import Iterator
from typing import TypeAlias

from sestina.config.run import RunConfig
from sestina.kvpool.config import MooncakeKvPoolConfig
from sestina.models.config import LatentAttentionConfig, ShapeConfig
from sestina.models.shape import ARCHITECTURE


def unsupported(config: RunConfig) -> list[str]:
    """Return a line for each such demand, with the part that falls short."""
    lines: list[str] = []
    shape, cluster = config.model.shape, config.cluster
    if shape is not None and shape.architecture != ARCHITECTURE:
        lines.append(
            f"model.shape.architecture: '{shape.architecture}'{_with(shape)} is not carried by the trainer and its "
            f"converter of weights; only '{ARCHITECTURE}' is"
        )
    if cluster is not None and cluster.gpus:
        gpus = cluster.rollout_gpus // config.rollout.num_instances
        if gpus > cluster.gpus_per_node:
            lines.append(
                f"rollout.num_instances: {config.rollout.num_instances} instances of {gpus} GPUs are not carried by "
                f"rollout ranks, each of which starts one server on its own node; at most {cluster.gpus_per_node} GPUs "
                "(cluster.gpus_per_node) are"
            )
    engine, source = config.rollout.engine, config.draft.source
    if source != "none" and engine.kind == "sglang" and engine.device == "cuda":
        lines.append(
            f"draft.source: '{source}' is not carried by rollout.engine.kind 'sglang' on rollout.engine.device 'cuda': "
            "SGLang's attention and graphs for GPUs take no draft of any length; only those on 'cpu', and the embedded "
            "engine, verify drafts"
        )
    if engine.kind == "sglang" and source not in ("none", "self", "grouped"):
        lines.append(
            f"draft.source: '{source}' is not carried by rollout.engine.kind 'sglang'; only 'self' and 'grouped' are"
        )
    return lines + [
        f"{key}: {value} is not carried {where}; {instead}" for key, value, where, instead in _unmet(config)
    ]


_Unmet: TypeAlias = tuple[object, str, object, str, str]
"""Whether it is asked for; key, value, with what, what is carried."""


def _unmet(config: RunConfig) -> list[tuple[str, object, str, str]]:
    """Return pairs of settings that nobody has brought together: (key, value, with what, what is)."""
    pairs = (*_over_issued(config), *_with_turns(config), *_of_pools(config), *_of_drafts(config), *_of_lengths(config))
    return [(key, value, where, instead) for met, key, value, where, instead in pairs if met]


def _over_issued(config: RunConfig) -> Iterator[_Unmet]:
    rollout, over = config.rollout, config.rollout.over_issue > 1
    key, beside = ("rollout.over_issue", rollout.over_issue), "with rollout.over_issue above 1"
    recorded = rollout.forced_lengths_from is not None or rollout.scheduler == "oracle"
    pool = rollout.kv_pool.kind
    yield over and config.sim is not None, *key, "by simulations", "1 is"
    yield over and config.draft.servers, "draft.servers", config.draft.servers, beside, "0 is"
    yield over and pool != "none", "rollout.kv_pool.kind", repr(pool), beside, "'none' is"
    yield over and recorded, *key, "with recorded lengths, which are of a batch's groups alone", "1 is"


def _with_turns(config: RunConfig) -> Iterator[_Unmet]:
    rollout, mode = config.rollout, config.run.mode
    wheres = (
        (rollout.engine.kind == "sglang", "by rollout.engine.kind 'sglang'"),
        (mode != "sync", f"by run.mode '{mode}'"),
        (config.sim is not None, "by a simulation"),
        (rollout.over_issue > 1, "with rollout.over_issue above 1"),
        (rollout.forced_lengths_from is not None, "with rollout.forced_lengths_from"),
        (config.draft.servers, "with draft.servers"),
    )
    kind = config.environment.kind
    for met, where in wheres:
        yield kind != "none" and met, "environment.kind", repr(kind), where, "'none' is"


def _of_pools(config: RunConfig) -> Iterator[_Unmet]:
    pool, mode, source = config.rollout.kv_pool, config.run.mode, config.draft.source
    mooncake = isinstance(pool, MooncakeKvPoolConfig)
    own_master = isinstance(pool, MooncakeKvPoolConfig) and pool.master is None
    sglang, of_sglang = config.rollout.engine.kind == "sglang", "by rollout.engine.kind 'sglang'"
    key = ("rollout.kv_pool.kind", repr(pool.kind))
    yield sglang and pool.kind == "local", *key, of_sglang, "'mooncake' is"
    yield sglang and mooncake and source != "none", *key, f"{of_sglang} with draft.source '{source}'", "'none' is"
    yield mode != "sync" and pool.kind != "none", *key, f"by run.mode '{mode}'", "'none' is"
    yield config.sim is not None and mooncake, *key, "by an emulation", "'local' is"
    nodes = "host:port of one that their nodes reach is"
    yield config.cluster is not None and own_master, "rollout.kv_pool.master", "null", "by jobs", nodes


def _of_drafts(config: RunConfig) -> Iterator[_Unmet]:
    draft, mode, simulated = config.draft, config.run.mode, config.sim is not None
    sglang, of_sglang = config.rollout.engine.kind == "sglang", "by rollout.engine.kind 'sglang'"
    servers = ("draft.servers", draft.servers)
    yield sglang and draft.servers, *servers, of_sglang, "0 is"
    yield sglang and draft.calibration, "draft.calibration", draft.calibration, of_sglang, "null is"
    yield mode != "sync" and draft.servers, *servers, f"by run.mode '{mode}'", "0 is"
    yield simulated and draft.servers, *servers, "by an emulation", "0 is"
    history = simulated and "history" in draft.source
    yield history, "draft.source", repr(draft.source), "by an emulation", "a source without 'history' is"


def _of_lengths(config: RunConfig) -> Iterator[_Unmet]:
    forced, where = config.rollout.forced_lengths_from is not None, "with rollout.forced_lengths_from"
    drops = config.run.mode == "async" and config.async_.overdue == "drop"
    rejection = config.draft.acceptance == "rejection"
    lacks = f"{where}, which lacks what takes a group's place"
    yield forced and drops, "async.overdue", "'drop'", lacks, "'wait' is"
    yield forced and rejection, "draft.acceptance", "'rejection'", where, "'coupled' is"


def _with(shape: ShapeConfig) -> str:
    parts = [] if shape.experts is None else [f"{shape.experts.num_experts} experts"]
    if isinstance(shape.attention, LatentAttentionConfig):
        parts.append("latent attention")
    return f" with {' and '.join(parts)}" if parts else ""
