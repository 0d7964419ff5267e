"""Engines of one thread that have weights and activations in common decode as they do alone."""

import gc

import pytest

from sestina.models.weights import random_weights
from sestina.rollout.fused import Common
from tests.unit.rollout.helpers import make_engine, make_requests, outputs, same
from tests.unit.rollout.test_suffix_speculator import SHAPE

OLD, NEW = random_weights(SHAPE, seed=1), random_weights(SHAPE, seed=2)


@pytest.fixture(scope="module")
def requests():
    return make_requests(SHAPE, groups=3, samples=2, max_new_tokens=40)


def alone(weights, requests):
    return outputs(together([make_engine(SHAPE, weights)], requests)[0])


def together(engines, requests):
    """Decode all requests with each engine, the engines taking turns step by step."""
    for engine in engines:
        for request in requests:
            engine.submit(request)
    results = [{} for _ in engines]
    while any(not engine.idle for engine in engines):
        for engine, found in zip(engines, results, strict=True):
            found.update({result.id: result for result in engine.step()})
    return results


def test_engines_with_different_weights_take_turns(requests):
    """One of them turns to the new weights while the others still have the old ones."""
    common = Common()
    engines = [make_engine(SHAPE, OLD, common=common) for _ in range(3)]
    first, second, third = engines
    assert first._model.layers[0] is second._model.layers[0]
    second.load_weights(1, NEW)
    assert first._model.layers[0] is third._model.layers[0] is not second._model.layers[0]
    found = [outputs(each) for each in together(engines, requests)]
    assert same(found[0], alone(OLD, requests))
    assert same(found[1], alone(NEW, requests))
    assert same(found[2], found[0])
    assert not same(found[1], found[0])


def test_weights_that_nobody_has_any_more_are_not_kept():
    common = Common()
    engines = [make_engine(SHAPE, dict(OLD), common=common) for _ in range(2)]
    for version in range(1, 4):
        published = dict(NEW)
        for engine in engines:
            engine.load_weights(version, published)
    gc.collect()
    assert len(common._weights) == 1
