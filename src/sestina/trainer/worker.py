"""The trainer ranks' main loops: the first one listens to the controller and passes orders on to the others."""

import time

import msgspec

from sestina.core.units import Seconds
from sestina.trainer.groups import close_groups
from sestina.trainer.rank import TrainerJob, TrainerRank
from sestina.transport.codec import decode, encode
from sestina.transport.link import HEARTBEAT_S, Link
from sestina.transport.messages import Bye, Heartbeat, Message, Ping, Stop
from sestina.transport.mpi import broadcast
from sestina.transport.world import World
from sestina.weights.rendezvous import Rendezvous, connect_store, open_store


def run(job: TrainerJob, world: World, *, host: str, start_s: Seconds, silence_s: Seconds, stop_s: Seconds) -> None:
    """Serve until told to stop; `host` is where this role's ranks and the rollout ranks meet the first one."""
    link = Link(world, silence_s=silence_s) if world.index == 0 else None
    rank = TrainerRank(job, _meet(world, host, start_s), index=world.index)
    if link is not None:
        _lead(rank, link, world, silence_s)
        link.close(stop_s)
    else:
        # The first rank may still be busy with an order long after this one's part of it.
        _follow(rank, world, silence_s + job.longest_order_s)
    close_groups()


def _lead(rank: TrainerRank, link: Link, world: World, silence_s: Seconds) -> None:
    link.resume()
    link.send(rank.ready())
    while True:
        orders = _wait(link, world, silence_s)
        _pass_on(orders, world, silence_s)
        for order in orders:
            if isinstance(order, Stop):
                link.send(Bye())
                return
            link.announce(type(order).__name__)
            answer = rank.carry_out(order)
            link.resume()
            link.send(answer)


def _follow(rank: TrainerRank, world: World, silence_s: Seconds) -> None:
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


def _meet(world: World, host: str, limit_s: Seconds) -> Rendezvous:
    """Open the store on the first rank, connect to it on the others."""
    if world.index == 0:
        rendezvous = open_store(host, limit_s)
        address = msgspec.msgpack.encode((rendezvous.host, rendezvous.port))
        broadcast(world.peers, address, limit_s, "the other trainer ranks to start")
        return rendezvous
    frame = broadcast(world.peers, None, limit_s, "the first trainer rank to open its rendezvous")
    host, port = msgspec.msgpack.decode(frame, type=tuple[str, int])
    return Rendezvous(connect_store(host, port, limit_s), host, port)
