"""Which rank is who: every rank states its role on its command line, and all derive the same layout."""

import os
import socket
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

from sestina.core.errors import ConfigError
from sestina.transport.messages import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """World ranks by role, each in order of index."""

    controller: int
    rollouts: tuple[int, ...]
    trainers: tuple[int, ...]

    def name(self, rank: int) -> str:
        """Return what to call a world rank in messages, for example `rollout 2 (rank 3)`."""
        for role, ranks in (("rollout", self.rollouts), ("trainer", self.trainers)):
            if rank in ranks:
                return f"{role} {ranks.index(rank)} (rank {rank})"
        return f"controller (rank {rank})"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """This rank's place."""

    comm: MPI.Comm
    """All ranks."""
    peers: MPI.Comm
    """The ranks of this role."""
    layout: Layout
    role: Role

    @property
    def rank(self) -> int:
        """World rank."""
        return self.comm.Get_rank()

    @property
    def index(self) -> int:
        """Number within the role."""
        return self.peers.Get_rank()

    @property
    def name(self) -> str:
        """What to call this rank in messages."""
        return self.layout.name(self.rank)


def join_world(role: Role, *, num_rollouts: int, num_trainers: int) -> World:
    """Agree with all ranks on who is who; called by every rank, first thing.

    Raises ConfigError, with the same message on every rank, when the world is not what the configuration asks for.
    """
    comm = MPI.COMM_WORLD
    roles: list[Role] = comm.allgather(role)
    found = {
        kind: tuple(rank for rank, r in enumerate(roles) if r == kind) for kind in ("controller", "rollout", "trainer")
    }
    wanted = {"controller": 1, "rollout": num_rollouts, "trainer": num_trainers}
    wrong = [
        f"the world has {len(found[kind])} {kind} ranks, the configuration asks for {count}"
        for kind, count in wanted.items()
        if len(found[kind]) != count
    ]
    if wrong:
        if len(roles) == 1:
            wrong.append("a world of one rank: started without mpiexec or srun, or with another MPI's launcher")
        raise ConfigError(wrong)
    layout = Layout(controller=found["controller"][0], rollouts=found["rollout"], trainers=found["trainer"])
    color = ("controller", "rollout", "trainer").index(role)
    return World(comm=comm, peers=comm.Split(color, comm.Get_rank()), layout=layout, role=role)


def whoami() -> dict[str, Any]:
    """Return this process's host and pid, as `Hello` states them."""
    return {"host": socket.gethostname(), "pid": os.getpid()}
