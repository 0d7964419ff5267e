"""Which of its node's GPUs a rank uses; cluster/layout.py places ranks accordingly."""

from typing import Literal

from sestina.config.cluster import ClusterConfig


def gpus_of(cluster: ClusterConfig, role: Literal["rollout", "trainer"], index: int, num_instances: int) -> range:
    """Return the numbers, among the GPUs that the job has on the rank's node, of those for rank `index` of a role."""
    # An instance of several nodes has a rank on each.
    per_instance = min(cluster.rollout_gpus // num_instances, cluster.gpus_per_node)
    if role == "rollout":
        first, count = index * per_instance, per_instance
    else:
        # On one node the trainer's GPUs come after the instances'.
        first, count = index + (cluster.rollout_gpus if cluster.layout == "single" else 0), 1
    first %= cluster.gpus_per_node
    return range(first, first + count)
