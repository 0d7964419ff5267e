"""What a configuration may say and plan, and no part of this system carries out; pure."""

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


def _unmet(config: RunConfig) -> list[tuple[str, object, str, str]]:
    """Return pairs of settings that nobody has brought together: (key, value, with what, what is)."""
    rollout, draft = config.rollout, config.draft
    kv_pool = rollout.kv_pool
    own_master = isinstance(kv_pool, MooncakeKvPoolConfig) and kv_pool.master is None
    sglang, pool = rollout.engine.kind == "sglang", rollout.kv_pool.kind != "none"
    mode, simulated = config.run.mode, config.sim is not None
    ahead = mode != "sync"
    servers = ("draft.servers", draft.servers)
    asks = config.environment.kind != "none"
    environment = ("environment.kind", repr(config.environment.kind))
    forced = rollout.forced_lengths_from is not None
    of_sglang, of_mode = "by rollout.engine.kind 'sglang'", f"by run.mode '{mode}'"
    over = rollout.over_issue > 1
    over_issued = ("rollout.over_issue", rollout.over_issue)
    pairs = (
        (over and simulated, *over_issued, "by simulations", "1 is"),
        (over and draft.servers, *servers, "with rollout.over_issue above 1", "0 is"),
        (
            over and pool,
            "rollout.kv_pool.kind",
            repr(rollout.kv_pool.kind),
            *("with rollout.over_issue above 1", "'none' is"),
        ),
        (
            over and (forced or rollout.scheduler == "oracle"),
            *(*over_issued, "with recorded lengths, which are of a batch's groups alone", "1 is"),
        ),
        (
            mode == "async" and forced and config.async_.overdue == "drop",
            *("async.overdue", "'drop'", "with rollout.forced_lengths_from, which lacks what takes a group's place"),
            "'wait' is",
        ),
        (sglang and draft.servers, *servers, of_sglang, "0 is"),
        (sglang and kv_pool.kind == "local", "rollout.kv_pool.kind", "'local'", of_sglang, "'mooncake' is"),
        (
            sglang and kv_pool.kind == "mooncake" and draft.source != "none",
            *("rollout.kv_pool.kind", "'mooncake'", f"{of_sglang} with draft.source '{draft.source}'", "'none' is"),
        ),
        (sglang and draft.calibration, "draft.calibration", draft.calibration, of_sglang, "null is"),
        (ahead and draft.servers, *servers, of_mode, "0 is"),
        (ahead and pool, "rollout.kv_pool.kind", repr(rollout.kv_pool.kind), of_mode, "'none' is"),
        (simulated and draft.servers, *servers, "by an emulation", "0 is"),
        (asks and sglang, *environment, of_sglang, "'none' is"),
        (asks and ahead, *environment, of_mode, "'none' is"),
        (asks and simulated, *environment, "by a simulation", "'none' is"),
        (asks and over, *environment, "with rollout.over_issue above 1", "'none' is"),
        (asks and forced, *environment, "with rollout.forced_lengths_from", "'none' is"),
        (asks and draft.servers, *environment, "with draft.servers", "'none' is"),
        (
            simulated and "history" in draft.source,
            *("draft.source", repr(draft.source), "by an emulation", "a source without 'history' is"),
        ),
        (
            simulated and kv_pool.kind == "mooncake",
            *("rollout.kv_pool.kind", "'mooncake'", "by an emulation", "'local' is"),
        ),
        (
            config.cluster is not None and own_master,
            *("rollout.kv_pool.master", "null", "by jobs", "host:port of one that their nodes reach is"),
        ),
        (
            rollout.forced_lengths_from and draft.acceptance == "rejection",
            *("draft.acceptance", "'rejection'", "with rollout.forced_lengths_from", "'coupled' is"),
        ),
    )
    return [(key, value, where, instead) for met, key, value, where, instead in pairs if met]


def _with(shape: ShapeConfig) -> str:
    parts = [] if shape.experts is None else [f"{shape.experts.num_experts} experts"]
    if isinstance(shape.attention, LatentAttentionConfig):
        parts.append("latent attention")
    return f" with {' and '.join(parts)}" if parts else ""
