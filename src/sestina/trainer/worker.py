"""The trainer ranks' main loops: the first one listens to the controller and passes orders on to the others.

Nothing is loaded before the controller says so: rollout ranks, which may share the cores, start first, and while they
roll out the first batch there is time for it.
"""

import time
from typing import TYPE_CHECKING

import msgspec

from sestina.core.imports import importing
from sestina.core.units import Seconds
from sestina.trainer.job import TrainerJob
from sestina.transport.codec import decode, encode
from sestina.transport.link import HEARTBEAT_S, Link
from sestina.transport.messages import BuildTrainer, Bye, Heartbeat, Message, Ping, Stop
from sestina.transport.mpi import broadcast
from sestina.transport.world import World

if TYPE_CHECKING:
    from sestina.trainer.rank import TrainerRank
    from sestina.weights.rendezvous import Rendezvous


def run(job: TrainerJob, world: World, *, host: str, silence_s: Seconds, stop_s: Seconds) -> None:
    """Serve until told to stop; `host` is where this role's ranks and the rollout ranks meet the first one."""
    orders = _Orders(job, world, host)
    if world.index == 0:
        link = Link(world, silence_s=silence_s)
        _lead(orders, link, world, silence_s)
        link.close(stop_s)
    else:
        # The first rank may still be busy with an order long after this one's part of it.
        _follow(orders, world, silence_s + job.longest_order_s)
    orders.close()


class _Orders:
    """Carries out orders, of which the first one is to build this rank."""

    def __init__(self, job: TrainerJob, world: World, host: str) -> None:
        self._job, self._world, self._host = job, world, host
        self._rank: TrainerRank | None = None

    def carry_out(self, order: Message) -> Message:
        if isinstance(order, BuildTrainer):
            with importing():
                from sestina.trainer.rank import TrainerRank  # noqa: PLC0415 - brings Megatron, which takes seconds

            self._rank = TrainerRank(self._job, self._meet(), index=self._world.index)
            return self._rank.ready()
        assert self._rank is not None, f"{type(order).__name__} for a trainer that is not built"
        return self._rank.carry_out(order)

    def close(self) -> None:
        if self._rank is not None:
            self._rank.close()

    def _meet(self) -> "Rendezvous":
        """Open the store on the first rank, connect to it on the others."""
        from sestina.weights.rendezvous import Rendezvous, connect_store, open_store  # noqa: PLC0415 - brings torch

        world, limit_s = self._world, self._job.start_s
        if world.index == 0:
            rendezvous = open_store(self._host, limit_s)
            address = msgspec.msgpack.encode((rendezvous.host, rendezvous.port))
            broadcast(world.peers, address, limit_s, "the other trainer ranks to start")
            return rendezvous
        frame = broadcast(world.peers, None, limit_s, "the first trainer rank to open its rendezvous")
        host, port = msgspec.msgpack.decode(frame, type=tuple[str, int])
        return Rendezvous(connect_store(host, port, limit_s), host, port)


def _lead(rank: _Orders, link: Link, world: World, silence_s: Seconds) -> None:
    while True:
        orders = _wait(link, world, silence_s)
        _pass_on(orders, world, silence_s)
        for order in orders:
            if isinstance(order, Stop):
                link.send(Bye())
                return
            link.announce(type(order).__name__)
            answer = rank.carry_out(order)
            link.send(answer)


def _follow(rank: _Orders, world: World, silence_s: Seconds) -> None:
    while True:
        frame = broadcast(world.peers, None, silence_s, "a sign of life from the first trainer rank")
        for order in decode(frame):
            if isinstance(order, Stop):
                return
            if not isinstance(order, Ping):
                rank.carry_out(order)


def _wait(link: Link, world: World, silence_s: Seconds) -> list[Message]:
    """Return the controller's next orders; meanwhile the other ranks are told every second that all is well."""
    told_s = time.monotonic()
    while not (orders := link.poll(lambda: Heartbeat(phase="waiting"))):
        if time.monotonic() - told_s > HEARTBEAT_S:
            _pass_on([Ping()], world, silence_s)
            told_s = time.monotonic()
        link.rest()
    return orders


def _pass_on(messages: list[Message], world: World, silence_s: Seconds) -> None:
    if world.peers.Get_size() > 1:
        broadcast(world.peers, encode(messages), silence_s, "the other trainer ranks to take an order")
