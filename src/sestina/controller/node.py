"""What a rank takes of its node: the GPUs that are its own, the address at which others reach it."""

import os

from sestina.config.devices import gpus_of
from sestina.config.run import RunConfig
from sestina.core.errors import UserError
from sestina.transport.messages import Role
from sestina.weights.address import node_address

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def claim_gpus(config: RunConfig, role: Role, index: int) -> None:
    """Hide the GPUs of other ranks from this process, before it first uses CUDA; mutates its environment.

    Raises UserError when the node gives the job fewer GPUs than the rank's place asks for.
    """
    if config.cluster is None or config.cluster.gpus == 0 or role == "controller":
        return
    visible = [device for device in os.environ.get(_VISIBLE, "").split(",") if device]
    wanted = gpus_of(config.cluster, role, index, config.rollout.num_instances)
    if wanted.stop > len(visible):
        raise UserError(f"{role} {index} needs GPU {wanted.stop - 1} of its node's, the job has {len(visible)} there")
    os.environ[_VISIBLE] = ",".join(visible[number] for number in wanted)


def meeting_host(config: RunConfig) -> str:
    """Return the address where rollout ranks meet the first trainer rank; called by that one."""
    return own_host(config) if config.weights.host is None else config.weights.host


def own_host(config: RunConfig) -> str:
    """Return the address at which the run's other ranks reach this node; raises UserError when there is none."""
    cluster = config.cluster
    interface = None if cluster is None else cluster.interface
    return node_address(interface, shared=cluster is not None and cluster.layout != "single")
