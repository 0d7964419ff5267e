"""Which rank is who: every rank states its role on its command line, and all derive the same layout."""

import os
import socket
from dataclasses import dataclass
from typing import Any, cast

from mpi4py import MPI

from sestina.core.errors import ConfigError
from sestina.core.units import Seconds
from sestina.transport.bells import Bells
from sestina.transport.messages import Role
from sestina.transport.mpi import poll_until

_ROLES: tuple[Role, ...] = ("controller", "rollout", "trainer")
_STARTED = "SLURM_STEP_NUM_TASKS"


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
    bells: Bells
    """Of the ranks on this machine."""
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


def join_world(role: Role, *, num_rollouts: int, num_trainers: int, limit_s: Seconds) -> World:
    """Agree with all ranks on who is who; called by every rank, first thing.

    Raises ConfigError, with the same message on every rank, when the world is not what the configuration asks for, and
    DeadlineError when not all ranks have come within `limit_s`.
    """
    comm = MPI.COMM_WORLD
    roles = b"".join(_gather(comm, bytes([_ROLES.index(role)]), limit_s))
    found = {kind: tuple(rank for rank, r in enumerate(roles) if _ROLES[r] == kind) for kind in _ROLES}
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
    peers = comm.Split(_ROLES.index(role), comm.Get_rank())
    return World(comm=comm, peers=peers, bells=hang_bells(comm, limit_s), layout=layout, role=role)


def hang_bells(comm: MPI.Comm, limit_s: Seconds) -> Bells:
    """Let all ranks of one machine ring each other; called by every rank. Raises DeadlineError as `join_world` does."""
    bells = Bells()
    bells.connect(_gather(comm, bells.address, limit_s))
    return bells


def role_at(words: str, rank: int) -> Role:
    """Return the role of a world rank: `controller@0,trainer@1` gives each role's first rank, a lone role is anyone's.

    Raises ConfigError for anything else.
    """
    found: str | None = None
    for word in words.split(","):
        role, _, first = word.partition("@")
        if role not in _ROLES or not (first.isdigit() or (first == "" and role == words)):
            raise ConfigError([f"{words!r} are no roles; a role is one of {', '.join(_ROLES)}"])
        found = role if int(first or 0) <= rank else found
    if found is None:
        raise ConfigError([f"rank {rank} has none of the roles {words!r}"])
    return cast("Role", found)


def check_size() -> None:
    """Raise ConfigError when srun started more processes than this one's world has: each then is a world of its own."""
    started, size = int(os.environ.get(_STARTED, "0")), MPI.COMM_WORLD.Get_size()
    if started and size != started:
        raise ConfigError([
            f"cluster.mpi: srun started {started} ranks, MPI sees a world of {size}; {MPI.get_vendor()[0]} and srun's "
            "--mpi do not fit: MPICH takes 'pmi2', Open MPI 'pmix' (`srun --mpi=list` says what there is)"
        ])  # fmt: skip


def speaks_first() -> bool:
    """Whether this rank reports at once what others may report too: the first one of the world, or of srun's step."""
    return MPI.COMM_WORLD.Get_rank() == 0 and int(os.environ.get("SLURM_PROCID", "0")) == 0


def leave_world(world: World, limit_s: Seconds) -> None:
    """Leave MPI together with all ranks; the last thing a rank does.

    Every message must have been received: MPICH refuses to finalize a communicator that still holds one, and mpiexec
    then kills the ranks that are still at work. Raises DeadlineError when not all have come within `limit_s`.
    """
    poll_until(world.comm.Ibarrier().Test, limit_s, "all ranks to leave")
    world.bells.close()
    MPI.Finalize()


def _gather(comm: MPI.Comm, value: bytes, limit_s: Seconds) -> list[bytes]:
    """Return every rank's value, which are of one length, waiting without spinning."""
    size, width = comm.Get_size(), len(value)
    values = bytearray(size * width)
    request = comm.Iallgather((value, MPI.BYTE), (values, MPI.BYTE))
    poll_until(request.Test, limit_s, f"all {size} ranks to join the world")
    return [bytes(values[rank * width : (rank + 1) * width]) for rank in range(size)]


def whoami() -> dict[str, Any]:
    """Return this process's host and pid, as `Hello` states them."""
    return {"host": socket.gethostname(), "pid": os.getpid()}
