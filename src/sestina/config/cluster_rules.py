"""Rules about clusters: GPUs, nodes and ranks must add up before a job is queued; SLURM would let it wait for ever."""

import math

from sestina.config.rule import Rule


def _whole_shares(gpus: int, rollout: int, trainer: int) -> str | None:
    return f"a multiple of {rollout + trainer}" if gpus % (rollout + trainer) else None


def _shares(gpus: int, rollout: int, trainer: int) -> tuple[int, int] | None:
    """Return the GPUs of rollout and trainer; None where _whole_shares, or a run on CPUs, leaves nothing to say."""
    if gpus == 0 or gpus % (rollout + trainer):
        return None
    share = gpus // (rollout + trainer)
    return rollout * share, trainer * share


def _whole_instances(num_instances: int, gpus: int, rollout: int, trainer: int) -> str | None:
    shares = _shares(gpus, rollout, trainer)
    return f"a divisor of {shares[0]}, the GPUs for rollout" if shares and shares[0] % num_instances else None


def _instance_in_whole_nodes(
    num_instances: int, gpus_per_node: int, gpus: int, rollout: int, trainer: int
) -> str | None:
    shares = _shares(gpus, rollout, trainer)
    if shares is None or shares[0] % num_instances:
        return None
    each = shares[0] // num_instances
    if each > gpus_per_node:
        return (
            f"so many that the GPUs of one, now {each}, are whole nodes of {gpus_per_node}"
            if each % gpus_per_node
            else None
        )
    wrong = shares[0] > gpus_per_node and gpus_per_node % each > 0
    return f"so many that the GPUs of one, now {each}, divide a node's {gpus_per_node}" if wrong else None


def _gpus_of_an_instance(tensor_parallel: int, num_instances: int, gpus: int, rollout: int, trainer: int) -> str | None:
    shares = _shares(gpus, rollout, trainer)
    if shares is None or shares[0] % num_instances or shares[0] // num_instances == tensor_parallel:
        return None
    return f"{shares[0] // num_instances}, the GPUs of one instance"


def _rank_per_gpu(num_ranks: int, gpus: int, rollout: int, trainer: int) -> str | None:
    shares = _shares(gpus, rollout, trainer)
    return f"{shares[1]}, one rank for each of the trainer's GPUs" if shares and num_ranks != shares[1] else None


def _whole_nodes(gpus: int, gpus_per_node: int, rollout: int, trainer: int, layout: str) -> str | None:
    if layout == "single":
        return f"at most {gpus_per_node}: there is one node" if gpus > gpus_per_node else None
    shares = _shares(gpus, rollout, trainer)
    if shares is None or not any(share > gpus_per_node and share % gpus_per_node for share in shares):
        return None
    return f"so many that rollout and trainer, now {shares[0]} and {shares[1]}, fill their nodes"


def _gpus_are_used(device: str, gpus: int) -> str | None:
    if (device == "cuda") == (gpus > 0):
        return None
    return "'cuda', or cluster.gpus 0" if gpus else "'cpu', or cluster.gpus above 0"


def _trainer_on_one_node(layout: str, num_ranks: int, gpus: int, gpus_per_node: int, cpu_ranks: int) -> str | None:
    """Nodes are filled in order, so that a task more on the first one would push trainer ranks off their GPUs."""
    alone = num_ranks <= (gpus_per_node if gpus else cpu_ranks)
    return None if layout != "het-shared" or alone else "'het', or trainer ranks that fit one node"


def _before_the_limit(signal_s: int, limit_min: int) -> str | None:
    return f"below {60 * limit_min}, the seconds of the whole job" if signal_s >= 60 * limit_min else None


def _time_for_a_step(limit_min: int, start_s: float, train_s: float, checkpoint_s: float, signal_s: int) -> str | None:
    needed = math.ceil((start_s + train_s + checkpoint_s + signal_s) / 60)
    short = f"at least {needed}: a start, a batch's training and a save may take so long before the signal"
    return short if limit_min < needed else None


def _checkpoints_in_a_job(checkpoint_every: int, limit_min: int) -> str | None:
    lost = f"at least 1: a node that fails would cost all steps of up to {limit_min} minutes"
    return None if checkpoint_every else lost


def _reaches_other_nodes(address: str | None, layout: str) -> str | None:
    local = address is not None and (address in {"lo", "localhost", "::1"} or address.startswith("127."))
    return "null, or one that other nodes reach" if local and layout != "single" else None


_GPUS = ("cluster.gpus", "cluster.split.rollout", "cluster.split.trainer")

CLUSTER_RULES = (
    Rule(needs=_GPUS, check=_whole_shares),
    Rule(needs=("rollout.num_instances", *_GPUS), check=_whole_instances),
    Rule(needs=("rollout.num_instances", "cluster.gpus_per_node", *_GPUS), check=_instance_in_whole_nodes),
    Rule(needs=("rollout.engine.tensor_parallel", "rollout.num_instances", *_GPUS), check=_gpus_of_an_instance),
    Rule(needs=("trainer.num_ranks", *_GPUS), check=_rank_per_gpu),
    Rule(needs=(_GPUS[0], "cluster.gpus_per_node", *_GPUS[1:], "cluster.layout"), check=_whole_nodes),
    Rule(needs=("trainer.device", "cluster.gpus"), check=_gpus_are_used),
    Rule(
        needs=("cluster.layout", "trainer.num_ranks", _GPUS[0], "cluster.gpus_per_node", "cluster.cpu_ranks_per_node"),
        check=_trainer_on_one_node,
    ),
    Rule(needs=("cluster.signal_s", "cluster.limit_min"), check=_before_the_limit),
    Rule(
        needs=(
            "cluster.limit_min",
            "deadlines.start_s",
            "deadlines.train_s",
            "deadlines.checkpoint_s",
            "cluster.signal_s",
        ),
        check=_time_for_a_step,
    ),
    Rule(needs=("run.checkpoint_every", "cluster.limit_min"), check=_checkpoints_in_a_job),
    Rule(needs=("cluster.interface", "cluster.layout"), check=_reaches_other_nodes),
    Rule(needs=("weights.host", "cluster.layout"), check=_reaches_other_nodes),
)
