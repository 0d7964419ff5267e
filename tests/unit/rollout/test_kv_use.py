"""What an engine says of its keys and values, and how many chunks a planner that listens has it run."""

import dataclasses

import numpy as np
import pytest

from sestina.controller.on_the_way import OnTheWay
from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest, KvUse
from sestina.policies.events import BatchOffered, ChunkFinished, Dispatch, GroupSpec, InstanceUp, KvReported
from sestina.policies.planner import build_planner
from sestina.rollout.pages import PAGE_TOKENS, pages_for
from sestina.rollout.sglang.calls import Flight
from sestina.rollout.sglang.room import peak_tokens
from tests.conftest import lively_weights, make_shape
from tests.unit.rollout.helpers import NOTHING, make_engine

SAMPLES, NEW_TOKENS = 8, 64


@pytest.fixture(scope="module")
def shape():
    return make_shape(vocab_size=80)


def prompts_of(shape, groups, tokens):
    rng = np.random.default_rng(1)
    return [rng.integers(2, shape.vocab_size, tokens).astype(np.int32) for _ in range(groups)]


class World:
    """A planner and engines; messages arrive a number of steps after they were sent."""

    def __init__(self, shape, *, kind, listens, lag, engines=2, pages=40, chunk_tokens=16, interruption="refuse"):
        self.listens, self.lag = listens, lag
        self.engines = [
            make_engine(shape, lively_weights(shape), kv_capacity_tokens=pages * PAGE_TOKENS, interruption=interruption)
            for _ in range(engines)
        ]
        self.planner = build_planner(kind, chunk_tokens=chunk_tokens, seed=0)
        self.on_the_way, self.inbox, self.outbox, self.tokens, self.results = OnTheWay(), [], [], {}, []
        self.most_running = self.steps = 0
        for number in range(engines):
            up = InstanceUp(
                instance=number, kv_capacity_tokens=pages * PAGE_TOKENS, page_tokens=PAGE_TOKENS, max_running=16
            )
            self.planner.handle(up, 0.0)

    def tell(self, event):
        for command in self.planner.handle(event, float(self.steps)):
            if isinstance(command, Dispatch):
                self.on_the_way.send(command.instance, command.request)
                self.inbox.append((self.steps + self.lag, command))

    def report(self, instance, use):
        return self.on_the_way.report(instance, use) if self.listens else None

    def run(self, prompts):
        self.prompts = prompts
        groups = tuple(
            GroupSpec(group=g, prompt_tokens=len(p), num_samples=SAMPLES, max_new_tokens=NEW_TOKENS)
            for g, p in enumerate(prompts)
        )
        self.tell(BatchOffered(batch=0, groups=groups))
        while self.inbox or self.outbox or not all(engine.idle for engine in self.engines):
            self.step()

    def step(self):
        self.steps += 1
        due = [command for at, command in self.inbox if at <= self.steps]
        self.inbox = [pair for pair in self.inbox if pair[0] > self.steps]
        for command in due:
            self.engines[command.instance].submit(self.chunk(command))
        for number, engine in enumerate(self.engines):
            ended = engine.step()
            load = engine.load()
            self.most_running = max(self.most_running, load.running)
            self.outbox += [(self.steps + self.lag, number, result, load.kv) for result in ended]
            if self.steps % 5 == 0:
                self.outbox.append((self.steps + self.lag, number, None, load.kv))
        due = [message for message in self.outbox if message[0] <= self.steps]
        self.outbox = [message for message in self.outbox if message[0] > self.steps]
        for _, number, result, use in due:
            self.hear(number, result, use)

    def hear(self, number, result, use):
        kv = self.report(number, use)
        if result is None:
            if kv is not None and self.planner.is_news(number, kv):
                self.tell(KvReported(instance=number, kv=kv))
            return
        self.results.append(result)
        self.tokens[result.id] = np.concatenate([self.tokens.get(result.id, NOTHING), result.tokens])
        done = result.finish in ("stop", "length")
        count = len(result.tokens)
        self.tell(ChunkFinished(request=result.id, instance=number, produced_tokens=count, done=done, kv=kv))

    def chunk(self, command):
        return ChunkRequest(
            id=command.request,
            prompt=self.prompts[command.request.group],
            generated=self.tokens.get(command.request, NOTHING),
            max_tokens=command.max_tokens,
            max_new_tokens=NEW_TOKENS,
            temperature=1.0,
        )

    @property
    def preemptions(self):
        return sum(result.preemptions for result in self.results)


@pytest.mark.parametrize(("lag", "gain"), [(0, 1.5), (3, 1.2)])
@pytest.mark.parametrize("kind", ["divided", "context"])
def test_shared_prompts_let_more_run_and_nothing_is_preempted(shape, kind, lag, gain):
    prompts = prompts_of(shape, groups=4, tokens=100)
    deaf, listening = (World(shape, kind=kind, listens=listens, lag=lag) for listens in (False, True))
    deaf.run(prompts)
    listening.run(prompts)
    assert deaf.preemptions == listening.preemptions == 0
    assert deaf.most_running <= 40 // pages_for(100 + 16)
    assert listening.most_running > gain * deaf.most_running
    assert {id: tokens.tolist() for id, tokens in listening.tokens.items()} == {
        id: tokens.tolist() for id, tokens in deaf.tokens.items()
    }


@pytest.mark.parametrize("interruption", ["recompute", "keep_kv"])
def test_nothing_is_preempted_when_weights_change_under_shared_prompts(shape, interruption):
    world = World(shape, kind="divided", listens=True, lag=1, interruption=interruption)
    world.prompts = prompts = prompts_of(shape, groups=4, tokens=100)
    groups = tuple(
        GroupSpec(group=g, prompt_tokens=100, num_samples=SAMPLES, max_new_tokens=NEW_TOKENS)
        for g in range(len(prompts))
    )
    world.tell(BatchOffered(batch=0, groups=groups))
    version = 0
    while world.inbox or world.outbox or not all(engine.idle for engine in world.engines):
        world.step()
        if world.steps % 17 == 0:
            version += 1
            for engine in world.engines:
                engine.load_weights(version, lively_weights(shape))
    assert version > 2
    assert world.preemptions == 0


def test_an_engine_counts_what_it_can_come_to_hold(shape):
    engine = make_engine(shape, lively_weights(shape), stop_token=-1, kv_capacity_tokens=40 * PAGE_TOKENS)
    [prompt] = prompts_of(shape, groups=1, tokens=100)
    chunk = ChunkRequest(
        id=RequestId(0, 0), prompt=prompt, generated=NOTHING, max_tokens=20, max_new_tokens=NEW_TOKENS, temperature=1.0
    )
    assert engine.load().kv == KvUse(submitted=0, peak_tokens=0, capacity_tokens=640)
    for sample in range(3):
        engine.submit(dataclasses.replace(chunk, id=RequestId(0, sample)))
    assert engine.load().kv.peak_tokens == 3 * 8 * PAGE_TOKENS, "nobody has shown yet that anything is shared"
    for _ in range(5):
        engine.step()
    assert engine.load().kv == KvUse(submitted=3, peak_tokens=(6 + 3 * 2) * PAGE_TOKENS, capacity_tokens=640)
    engine.abort([RequestId(0, 1)])
    assert engine.load().kv.peak_tokens == (6 + 2 * 2) * PAGE_TOKENS
    while not engine.idle:
        engine.step()
    assert engine.load().kv == KvUse(submitted=3, peak_tokens=0, capacity_tokens=640)


def flight(sample, *, group=0, prompt=100, generated=0, cached=0):
    tokens = np.zeros(prompt, np.int32)
    chunk = ChunkRequest(
        id=RequestId(group, sample),
        prompt=tokens,
        generated=np.zeros(generated, np.int32),
        max_tokens=32,
        max_new_tokens=40,
        temperature=1.0,
    )
    return Flight(chunk=chunk, submitted_s=0.0, cached_tokens=cached)


def test_a_server_counts_a_prompt_once_for_those_that_have_found_it():
    alone = pages_for(132) * PAGE_TOKENS
    assert peak_tokens([], PAGE_TOKENS) == 0
    assert peak_tokens([flight(0)], PAGE_TOKENS) == alone
    assert peak_tokens([flight(0), flight(1, cached=96)], PAGE_TOKENS) == 2 * alone, "the other has said nothing"
    both = [flight(0, cached=96), flight(1, cached=96)]
    assert peak_tokens(both, PAGE_TOKENS) == 2 * alone - 96
    assert peak_tokens([*both, flight(2, cached=80)], PAGE_TOKENS) == 3 * alone - 96, "a part is not the prompt"
    assert peak_tokens([*both, flight(0, group=1, cached=96)], PAGE_TOKENS) == 3 * alone - 96
    late = flight(3, generated=20, cached=112)
    assert peak_tokens([*both, late], PAGE_TOKENS) == 2 * alone + pages_for(140) * PAGE_TOKENS - 2 * 96


def test_chunks_are_on_the_way_until_the_instance_has_counted_them():
    sent = OnTheWay()
    first, second, third = (RequestId(0, sample) for sample in range(3))
    for request in (first, second):
        sent.send(4, request)
    assert sent.report(4, KvUse(submitted=0, peak_tokens=0, capacity_tokens=64)).on_the_way == (first, second)
    sent.send(4, third)
    assert sent.report(4, KvUse(submitted=2, peak_tokens=32, capacity_tokens=64)).on_the_way == (third,)
    assert sent.report(5, KvUse(submitted=0, peak_tokens=0, capacity_tokens=64)).on_the_way == ()
