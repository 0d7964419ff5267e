"""The quantised drafter: tokens, keys and values as without it, or under rejection their distribution."""

import dataclasses
import functools

import numpy as np
import pytest
import torch

from sestina.core.ids import EVAL_GROUPS, RequestId
from sestina.core.records import ChunkRequest
from sestina.rollout.build import InstanceConfig, build_engine
from sestina.rollout.quantized.speculator import QuantizedSpeculator
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.desk import DraftDesk
from tests.conftest import lively_weights, make_shape
from tests.unit.rollout.helpers import NOTHING, finish, finish_in_chunks, make_engine, make_requests, outputs, same
from tests.unit.rollout.quantized.test_rejection import p_value

SHAPE = make_shape(vocab_size=60)
EAGER = DraftConfig(
    source="quantized",
    length="fixed",
    toggle="always",
    guard=False,
    max_tokens=5,
    paths=1,
    min_token_prob=0.0,
    bits=4,
    weight_group=32,
)


def drafting(config=EAGER, shape=SHAPE, weights=None, **changes):
    build = functools.partial(QuantizedSpeculator, config)
    return make_engine(shape, weights or lively_weights(shape), drafter=build, **changes)


@pytest.fixture(scope="module")
def requests():
    return make_requests(SHAPE, groups=4, samples=4, max_new_tokens=80)


@pytest.fixture(scope="module")
def plain(requests):
    return outputs(finish(make_engine(SHAPE, lively_weights(SHAPE)), requests))


CASES = [
    {},
    {"bits": 8},
    {"weight_group": 64, "max_tokens": 64},
    {"length": "ladder", "toggle": "roofline", "guard": True, "max_tokens": 11},
    {"length": "mba", "guard": True},
    {"length": "aimd", "toggle": "batch"},
]


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_no_setting_changes_a_token(changes, requests, plain):
    shape = SHAPE if changes.get("weight_group") != 64 else None
    if shape is None:  # a feed-forward size that 64 divides
        shape = make_shape(vocab_size=60, ffn_size=128)
        plain = outputs(finish(make_engine(shape, lively_weights(shape)), requests))
    engine = drafting(dataclasses.replace(EAGER, **changes), shape)
    assert same(outputs(finish(engine, requests)), plain)


@pytest.mark.parametrize(
    "changes", [{}, {"kv_capacity_tokens": 512}, {"max_running": 3}, {"max_step_tokens": 19}, {"stop_token": 7}]
)
def test_chunks_preemption_and_narrow_steps_change_no_token(changes, requests):
    plain = outputs(finish(make_engine(SHAPE, lively_weights(SHAPE), **changes), requests))
    assert same(finish_in_chunks([drafting(**changes)], requests, 23), plain)


def test_drafts_are_mostly_accepted_and_save_steps(requests):
    plain = make_engine(SHAPE, lively_weights(SHAPE))
    finish(plain, requests)
    rates = []
    for bits in (4, 8):
        engine = drafting(dataclasses.replace(EAGER, bits=bits))
        results = finish(engine, requests).values()
        rates.append(sum(r.accepted_tokens for r in results) / sum(r.drafted_tokens for r in results))
        assert engine.load().steps < 0.6 * plain.load().steps
    assert 0.5 < rates[0] < rates[1] < 1


def test_new_weights_are_rounded_again(requests):
    """A drafter of other weights would agree with nothing."""
    other = lively_weights(SHAPE, seed=9)
    engine = drafting()
    finish(engine, requests)
    engine.load_weights(1, other)
    results = finish(engine, requests)
    assert same(outputs(results), outputs(finish(make_engine(SHAPE, other), requests)))
    counts = [(r.accepted_tokens, r.drafted_tokens) for r in results.values()]
    fresh = finish(drafting(weights=other), requests).values()
    assert counts == [(r.accepted_tokens, r.drafted_tokens) for r in fresh]


@pytest.mark.parametrize("acceptance", ["coupled", "rejection"])
def test_no_provisional_key_or_value_stays(acceptance, requests):
    """In the middle of everything, the cache holds what a prefill of the same text writes, bit for bit."""
    engine = drafting(dataclasses.replace(EAGER, acceptance=acceptance))
    for request in requests:
        engine.submit(request)
    for _ in range(14):
        engine.step()
    table = engine._batcher.slots
    running = [job for job in engine._jobs.values() if job.slot >= 0 and table.computed[job.slot] > job.base]
    assert len(running) > 4
    assert sum(int(table.drafted[job.slot] - table.accepted[job.slot]) for job in running) > 0
    for job in running:
        length = int(table.length[job.slot])
        text = table.tokens[job.slot, len(job.request.prompt) : length].copy()
        found = kept(engine, job.slot, length - 1)
        fresh = make_engine(SHAPE, lively_weights(SHAPE), stop_token=-1)
        fresh.submit(dataclasses.replace(job.request, generated=text))
        [other] = fresh._jobs.values()
        for _ in range(-(-length // 64)):
            fresh.step()
        for ours, theirs in zip(found, kept(fresh, other.slot, length - 1), strict=True):
            assert torch.equal(ours, theirs)


def kept(engine, slot, cells):
    """Keys and values of a request's first cells, layer by layer."""
    at = torch.from_numpy(engine._batcher.slots.cache_slots(np.full(cells, slot), np.arange(cells)))
    page, offset = at // 16, at % 16
    model = engine._model
    return [k[page, :, :, offset] for k in model._keys] + [v[page, :, offset] for v in model._values]


def test_a_rank_builds_it_and_says_how_it_multiplies(requests, plain, tmp_path):
    desk = DraftDesk()
    engine = build_engine(
        InstanceConfig(
            instance=0,
            engine=drafting()._config,
            draft=EAGER,
            model=tmp_path,
            log=tmp_path / "log",
            shape=SHAPE,
            max_context_tokens=256,
            seed=5,
            stop_token=1,
            weights_timeout_s=1,
            stop_s=1,
        ),
        desk,
    )
    engine.load_weights(0, lively_weights(SHAPE))
    results = finish(engine, requests)
    assert same(outputs(results), plain)
    assert sum(result.accepted_tokens for result in results.values()) > 0
    assert engine.info().drafter.startswith("4 bits, ")
    told = desk.tally.take()
    assert told.sources["quantized"].accepted_tokens == sum(result.accepted_tokens for result in results.values())
    assert told.steps["on"] > 0
    assert 0 < told.draft_s < told.step_s
    assert make_engine(SHAPE).info().drafter == ""


def test_without_temperature_rejection_changes_nothing(requests):
    greedy = [dataclasses.replace(request, temperature=0.0) for request in requests]
    plain = outputs(finish(make_engine(SHAPE, lively_weights(SHAPE)), greedy))
    engine = drafting(dataclasses.replace(EAGER, acceptance="rejection"))
    assert same(outputs(finish(engine, greedy)), plain)


def test_rejection_accepts_more_and_its_logprobs_are_the_models(requests):
    rates = []
    for acceptance in ("coupled", "rejection"):
        results = finish(drafting(dataclasses.replace(EAGER, acceptance=acceptance)), requests)
        drafted = sum(r.drafted_tokens for r in results.values())
        rates.append(sum(r.accepted_tokens for r in results.values()) / drafted)
    assert rates[1] > rates[0]
    request = requests[0]
    for length in (1, 2, 5):
        text = results[request.id].tokens
        asked = dataclasses.replace(
            request, generated=text[: length - 1], max_tokens=1, temperature=request.temperature
        )
        engine = make_engine(SHAPE, lively_weights(SHAPE))
        engine.submit(asked)
        seen = logits_of(engine)
        logprob = torch.log_softmax(seen / request.temperature, -1)[text[length - 1]]
        assert results[request.id].logprobs[length - 1] == pytest.approx(float(logprob), abs=1e-5)


def logits_of(engine):
    """What the model says after the only text in the engine."""
    seen = []
    forward = engine._model.forward
    engine._model.forward = lambda inputs: seen.append(forward(inputs)) or seen[-1]
    while not engine.idle:
        engine.step()
    return seen[-1][0]


def test_responses_under_rejection_are_distributed_as_without_drafts():
    """Pairs of the second and third token of 8,000 responses each, from other seeds; chi-square of both samples."""
    shape = make_shape(vocab_size=5, num_layers=1)
    prompt = np.array([2, 3, 4], np.int32)
    asked = [
        ChunkRequest(
            id=RequestId(0, i), prompt=prompt, generated=NOTHING, max_tokens=3, max_new_tokens=3, temperature=1.3
        )
        for i in range(8_000)
    ]
    wide = {"max_running": 500, "max_step_tokens": 2048, "kv_capacity_tokens": 16384, "stop_token": -1}
    config = dataclasses.replace(EAGER, acceptance="rejection", max_tokens=3)
    weights = {name: 3 * tensor if tensor.ndim > 1 else tensor for name, tensor in lively_weights(shape).items()}
    drafted = finish(drafting(config, shape, weights, seed=1, **wide), asked)
    plain = finish(make_engine(shape, weights, seed=2, **wide), asked)
    assert sum(r.drafted_tokens for r in drafted.values()) == 8_000, "after the first token there is room for one"
    assert sum(r.accepted_tokens for r in drafted.values()) < 0.9 * 8_000
    ours, theirs = (
        torch.bincount(torch.tensor([int(r.tokens[1]) * 5 + int(r.tokens[2]) for r in results.values()]), minlength=25)
        for results in (drafted, plain)
    )
    seen = (ours + theirs) > 20
    assert seen.sum() > 12
    ours, theirs = ours[seen].double(), theirs[seen].double()
    assert p_value(((ours - theirs).square() / (ours + theirs)).sum(), len(ours) - 1) > 0.01


def test_the_ladder_rises_with_training_rollouts_and_not_with_evaluations(requests):
    """Every rollout ends with new weights; two of nearly all drafts accepted lead to the next rung."""

    def longest_drafts(group):
        config = dataclasses.replace(EAGER, length="ladder", max_tokens=11, bits=8)
        engine = drafting(config)
        asked = [
            dataclasses.replace(r, id=RequestId(r.id.group + group, r.id.sample), temperature=0.3) for r in requests
        ]
        longest = []
        for version in range(1, 4):
            finish(engine, asked)
            longest.append(engine._drafter._decisions.policy._lengths.length)
            engine.load_weights(version, lively_weights(SHAPE))
        return [*longest, engine._drafter._decisions.policy._lengths.length]

    assert longest_drafts(0)[0] == 5
    assert longest_drafts(0)[-1] > 5
    assert longest_drafts(EVAL_GROUPS) == [5] * 4
