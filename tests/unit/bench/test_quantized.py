"""The bench of the quantised drafter on few tokens: equality is held, figures come."""

import dataclasses

import numpy as np
import pytest

from sestina.bench import quantized
from sestina.core.errors import RunError
from tests.conftest import lively_weights, make_shape


@pytest.fixture
def case():
    shape = make_shape(hidden_size=128, ffn_size=128, head_size=32)
    prompts = [np.array([3, 4, token], np.int32) for token in range(20)]
    weights = lively_weights(shape)
    return quantized.Case(name="tiny", shape=shape, weights=weights, prompts=prompts, new_tokens=12, stop_token=-1)


def test_one_turn_holds_coupled_tokens_equal(case):
    engines = {way: quantized._engine(case, draft) for way, draft in quantized.WAYS.items()}
    turns = [quantized._turn(engines, case, 3, 0)]
    names = [figure.name for figure in quantized._figures("tiny", turns)]
    assert len(names) == 1 + 5 * (len(quantized.WAYS) - 1)
    assert 0 < turns[0]["8 bits"].acceptance <= 1


def test_another_token_ends_it(case):
    other = dataclasses.replace(case, weights=lively_weights(case.shape, seed=5))
    engines = {way: quantized._engine(case, draft) for way, draft in quantized.WAYS.items()}
    engines["4 bits"] = quantized._engine(other, quantized.WAYS["4 bits"])
    with pytest.raises(RunError, match="4 bits: response g0/s0 has other tokens"):
        quantized._turn(engines, case, 3, 0)
