"""How a run's GPUs are shared by rollout and trainer, and how else they could be."""

from math import gcd, lcm

from sestina.config.change import Changes, with_changes
from sestina.config.run import RunConfig
from sestina.core.errors import ConfigError
from sestina.policies.split import Share, whole_shares


def share_of(config: RunConfig) -> Share:
    """Return how a run's GPUs are shared; raises ConfigError for a run that has none."""
    cluster = config.cluster
    if cluster is None or not cluster.gpus:
        given = "cluster: null" if cluster is None else "cluster.gpus: 0"
        raise ConfigError([f"{given} leaves no GPUs to share; cluster=gpu has some"])
    return Share(rollout_gpus=cluster.rollout_gpus, trainer_gpus=cluster.trainer_gpus)


def other_shares(config: RunConfig) -> list[Share]:
    """Return all shares into instances and replicas of the run's sizes, its own too; raises as `share_of`."""
    share, trainer = share_of(config), config.trainer
    experts = trainer.expert_parallel * trainer.expert_tensor_parallel
    return whole_shares(
        share.rollout_gpus + share.trainer_gpus,
        instance_gpus=share.rollout_gpus // config.rollout.num_instances,
        replica_gpus=lcm(trainer.tensor_parallel, experts) * trainer.pipeline_parallel,
    )


def changes_to(config: RunConfig, share: Share) -> Changes:
    """Return what gives a run another share of its GPUs, with instances of the same size."""
    instance_gpus = share_of(config).rollout_gpus // config.rollout.num_instances
    whole = gcd(share.rollout_gpus, share.trainer_gpus)
    return {
        "cluster.split.rollout": share.rollout_gpus // whole,
        "cluster.split.trainer": share.trainer_gpus // whole,
        "rollout.num_instances": share.rollout_gpus // instance_gpus,
        "trainer.num_ranks": share.trainer_gpus,
    }


def allowed_shares(config: RunConfig) -> list[Share]:
    """Return those of `other_shares` that the configuration's rules allow."""
    return [share for share in other_shares(config) if _is_allowed(config, share)]


def _is_allowed(config: RunConfig, share: Share) -> bool:
    try:
        with_changes(config, changes_to(config, share))
    except ConfigError:
        return False
    return True
