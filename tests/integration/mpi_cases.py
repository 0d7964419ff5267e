"""What two real MPI ranks do for tests of the control plane; one prints what it saw as one line of JSON.

mpiexec -n 1 python -m mpi4py -m tests.integration.mpi_cases controller CASE : -n 1 ... rollout CASE
"""

import asyncio
import hashlib
import json
import sys
import time
from dataclasses import replace

import numpy as np
from mpi4py import MPI

from sestina.controller import ranks as ranks_module
from sestina.controller.ranks import Ranks
from sestina.core.errors import DeadlineError
from sestina.transport.bells import Bells
from sestina.transport.link import Link
from sestina.transport.messages import Bye, Heartbeat, Ping, SampleBatch, Stop, TrainBatch, WeightsJoined, WeightsLoaded
from sestina.transport.mpi import Mailbox, broadcast, poll_until
from sestina.transport.world import Layout, World, hang_bells, leave_world

SIZES = [0, 1, 100, 70_000, 3_000_000]


def large(number):
    tokens = np.arange(SIZES[number], dtype=np.int32)
    empty, logprobs = np.zeros(0, np.int32), np.zeros(0, np.float32)
    batch = SampleBatch(
        groups=empty,
        prompt_lengths=empty,
        response_lengths=empty,
        tokens=tokens,
        logprobs=logprobs,
        rewards=logprobs,
    )
    return TrainBatch(step=number, temperature=1.0, batch=batch)


def take(mailbox, count, limit_s=20):
    got = []
    poll_until(lambda: got.extend(mailbox.poll()) or len(got) >= count, limit_s, f"{count} messages")
    return got


def messages_keep_their_order(world):
    """Small frames and frames of megabytes, both ways at once; nothing is received before all of it is sent."""
    mailbox, other = Mailbox(world.comm, world.bells), 1 - world.rank
    got = []
    for number in range(len(SIZES)):
        mailbox.send(other, large(number))
        got += mailbox.poll()
        mailbox.send(other, Heartbeat(phase=str(number)))
    got += take(mailbox, 2 * len(SIZES) - len(got))
    mailbox.drain(10)
    names = [getattr(message, "phase", None) or f"batch {message.step}" for _, message in got]
    whole = all(
        np.array_equal(message.batch.tokens, large(message.step).batch.tokens)
        for _, message in got
        if isinstance(message, TrainBatch)
    )
    return {"names": names, "whole": whole, "sources": sorted({source for source, _ in got})}


def who_sleeps_is_woken(world):
    """Each sleeps in turn until the other has sent, and finds the message there."""
    mailbox, other, woken = Mailbox(world.comm, world.bells), 1 - world.rank, []
    for turn in range(40):
        if turn % 2 == world.rank:
            mailbox.send(other, Heartbeat(phase=str(turn)))
            mailbox.flush()
        else:
            rung = world.bells.wait(20)
            [(_, message)] = mailbox.poll() or take(mailbox, 1)
            woken.append(rung and message.phase == str(turn))
    mailbox.drain(10)
    return woken


def broadcasts_arrive(world):
    seen = []
    for size in SIZES:
        frame = np.random.default_rng(size).bytes(size)
        got = broadcast(world.comm, frame if world.rank == 0 else None, 20, "bytes")
        seen.append(hashlib.sha256(got).hexdigest() == hashlib.sha256(frame).hexdigest())
    return {"equal": seen}


def a_broadcast_has_a_deadline(world):
    """The receiver ends the world, as a rank does that fails: MPI cannot take an unfinished broadcast back."""
    if world.rank == 0:
        time.sleep(30)
    try:
        broadcast(world.comm, None, 0.1, "weights of version 3")
    except DeadlineError as error:
        print(json.dumps(str(error)), flush=True)
        time.sleep(0.5)
        world.comm.Abort(0)


def a_message_nobody_takes_has_a_deadline(world):
    mailbox = Mailbox(world.comm, world.bells)
    if world.rank == 1:
        time.sleep(1.5)
        take(mailbox, 1)
        return None
    mailbox.send(1, large(len(SIZES) - 1))
    try:
        mailbox.drain(0.2)
    except DeadlineError as error:
        mailbox.drain(10)
        return str(error)
    return "no deadline"


def serve_to_the_end(link):
    orders = []
    while not any(isinstance(order, Stop) for order in orders):
        orders += link.poll(lambda: Heartbeat(phase="at work"))
        link.rest()
    link.send(Bye())
    link.close(10)


def answers_find_who_asked(world):
    """An answer may come before it is asked for; one that never comes is named; the last word ends the pings."""
    if world.rank > 0:
        link = Link(world, silence_s=20)
        link.send(WeightsJoined())
        return serve_to_the_end(link)

    async def ask():
        ranks = Ranks(world, silence_s=20)
        pump = asyncio.create_task(ranks.pump())
        await asyncio.sleep(0.5)
        await ranks.ask(1, None, WeightsJoined, 5, "to join")
        try:
            await ranks.ask(1, Ping(), WeightsLoaded, 0.2, "to load weights of version 1")
        except DeadlineError as error:
            late = str(error)
        await ranks.stop_all(10)
        pump.cancel()
        return {"late": late, "hello": sorted(hello.role for hello in ranks.hellos.values())}

    return asyncio.run(ask())


def ranks_on_two_machines_look_by_themselves(world):
    """Nobody's bell is known to anybody."""
    return answers_find_who_asked(replace(world, bells=Bells()))


def silence_is_noticed_by_the_rank(world):
    """The controller says nothing; the link gives up."""
    mailbox = Mailbox(world.comm, world.bells)
    if world.rank == 0:
        [(_, hello), (_, said)] = take(mailbox, 2)
        return [hello.role, said.phase]
    link = Link(world, silence_s=0.3)
    try:
        while True:
            link.poll(lambda: Heartbeat(phase="waiting"))
            link.rest()
    except DeadlineError as error:
        link.announce(str(error))
        link.close(10)
    return None


def silence_is_noticed_by_the_controller(world):
    """The rank says hello and no more; the controller names it."""
    if world.rank == 1:
        link = Link(world, silence_s=20)
        link.close(10)
        time.sleep(2)
        mailbox = Mailbox(world.comm, world.bells)
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            mailbox.poll()  # the controller's pings
            time.sleep(0.05)
        return None

    async def listen():
        try:
            await Ranks(world, silence_s=0.5).pump()
        except DeadlineError as error:
            return str(error)

    return asyncio.run(listen())


def a_busy_rank_keeps_nobody_from_hearing(world):
    """The rollout rank takes nothing for more pings than MPICH holds; a rank that hears too little ends the world."""
    if world.rank > 0:
        link = Link(world, silence_s=3)
        if world.role == "rollout":
            time.sleep(5)
        link.send(WeightsJoined())
        return serve_to_the_end(link)

    async def wait():
        ranks = Ranks(world, silence_s=20)
        pump = asyncio.create_task(ranks.pump())
        await ranks.ask(1, None, WeightsJoined, 20, "to have worked")
        await ranks.stop_all(10)
        pump.cancel()
        return "all is well"

    ranks_module.HEARTBEAT_S = 0.005
    return asyncio.run(wait())


CASES = {name: case for name, case in globals().items() if name[0].islower() and hasattr(case, "__code__")}


def main():
    role, name = sys.argv[1:]
    comm = MPI.COMM_WORLD
    peers = comm.Split(comm.Get_rank(), 0)
    layout = Layout(controller=0, rollouts=(1,), trainers=(comm.Get_size() - 1,))
    world = World(comm=comm, peers=peers, bells=hang_bells(comm, 20), layout=layout, role=role)
    seen = CASES[name](world)
    if world.rank == 0:
        print(json.dumps(seen), flush=True)
    leave_world(world, 20)


if __name__ == "__main__":
    main()
