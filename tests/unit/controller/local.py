"""Rollout ranks inside the test's own process: real engines behind the interface of `Ranks`, one step at a time."""

import asyncio
import time

import numpy as np

from sestina.controller.driver import RolloutDriver
from sestina.policies.events import InstanceUp
from sestina.policies.planner import build_planner
from sestina.rewards.outcome import Outcome
from sestina.transport.messages import AbortChunks, ChunkEnded, StartChunk
from sestina.transport.world import Layout
from tests.unit.rollout.helpers import make_engine

LAYOUT = Layout(controller=0, rollouts=(1, 2), trainers=(3,))


class LocalRanks:
    """Engines of two rollout ranks; `step` moves each of them by one forward pass."""

    def __init__(self, shape, weights, version, interruption="recompute"):
        self.layout, self.loads, self.on_chunk, self.on_load = LAYOUT, {}, None, None
        self.engines = [make_engine(shape, interruption=interruption, max_running=6) for _ in LAYOUT.rollouts]
        self.buffered = {}
        self.load(version, weights)

    def send(self, rank, message):
        engine = self.engines[LAYOUT.rollouts.index(rank)]
        match message:
            case StartChunk():
                if message.version is not None and message.version > engine.version:
                    engine.load_weights(message.version, self.buffered[message.version])
                engine.submit(message.chunk)
            case AbortChunks():
                engine.abort(list(message.ids))

    def load(self, version, weights):
        for engine in self.engines:
            engine.load_weights(version, weights)

    def step(self, instance):
        for result in self.engines[instance].step():
            kv = self.engines[instance].load().kv
            self.on_chunk(ChunkEnded(instance=instance, result=result, clock_s=time.monotonic(), kv=kv))


class LocalRewards:
    """Scores a response by its length, in the next turn of the event loop."""

    async def score(self, sample):
        await asyncio.sleep(0)
        return Outcome(reward=float(len(sample.response) % 3), kind="ok", error=None, elapsed_s=0.0)


class Letters:
    def decode(self, tokens):
        return "".join(chr(97 + t % 26) for t in np.asarray(tokens).tolist())


def make_driver(ranks, journal, tasks, version, chunk_tokens=7, kind="divided", tokenizer=None, turns=None):
    driver = RolloutDriver(
        build_planner(kind, chunk_tokens=chunk_tokens, seed=0),
        ranks=ranks,
        pool=LocalRewards(),
        journal=journal,
        tokenizer=tokenizer or Letters(),
        turns=turns,
        tasks=tasks,
        stall_s=60.0,
    )
    driver.version = version
    for instance, engine in enumerate(ranks.engines):
        info = engine.info()
        driver.instance_up(
            InstanceUp(
                instance=instance,
                kv_capacity_tokens=info.kv_capacity_tokens,
                page_tokens=info.page_tokens,
                max_running=info.max_running,
            )
        )
    return driver
