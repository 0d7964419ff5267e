import dataclasses

import numpy as np
import pytest

from sestina.bench.decoders import EngineDecoder, common_prefixes, decode
from sestina.bench.engine import CASES, SMALL, Case, Effort, measure
from sestina.core.errors import RunError
from sestina.models.weights import write_model
from tests.conftest import lively_weights, make_shape
from tests.unit.bench.helpers import by_name

EFFORT = Effort(prompt_tokens=20, new_tokens=12, greedy_batch=3, greedy_prefix=12)


@pytest.mark.parametrize("num_kv_heads", [1, 2])
def test_both_decode_and_agree(num_kv_heads):
    lines = []
    shape = make_shape(num_kv_heads=num_kv_heads)
    found = by_name(
        measure(lines.append, [Case(name="tiny", shape=shape, speedups={1: 1e-9, 3: None}, turns=2)], EFFORT)
    )
    greedy = found["tiny: greedy tokens that agree, shortest of 3 responses"]
    assert (greedy.value, greedy.unit, greedy.must, greedy.met) == (12, "of 12", ">= 12", True)
    assert found["tiny: taken from the prefix cache"].value == 0
    for batch, must in ((1, ">= 1e-09"), (3, None)):
        name = f"tiny, batch {batch}"
        ratio = found[f"{name}: engine over generate, median of 2"]
        assert ratio.must == must
        assert found[f"{name}: lowest"].value <= ratio.value <= found[f"{name}: highest"].value
        assert found[f"{name}: engine"].value > 0
        assert found[f"{name}: generate"].value > 0
    assert len(found) == 2 + 2 * 6
    assert lines[0].startswith("tiny: greedy tokens agree for [12, 12, 12] of 12")
    assert [line.split(": ")[0] for line in lines[1:]] == ["tiny, batch 1"] * 2 + ["tiny, batch 3"] * 2


def test_a_decoder_that_says_too_little_is_refused():
    prompts = np.zeros((2, 5), np.int32)
    assert decode(lambda prompts, temperature: prompts, prompts, 1.0, new_tokens=5) is prompts
    with pytest.raises(RunError, match=r"of shape \(2, 5\); asked for 6 tokens for each of 2 prompts"):
        decode(lambda prompts, temperature: prompts, prompts, 1.0, new_tokens=6)


def test_prefixes_end_at_the_first_difference():
    ours = np.array([[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]])
    assert common_prefixes(ours, np.array([[1, 2, 3, 4], [1, 2, 0, 4], [0, 0, 3, 4]])) == [4, 2, 0]


def test_the_engine_spares_itself_known_prompts_and_says_so(tmp_path):
    shape = make_shape()
    write_model(tmp_path, shape, lively_weights(shape).items())
    decoder = EngineDecoder(tmp_path, batch=2, prompt_tokens=20, new_tokens=3)
    prompts = np.tile(np.arange(20, dtype=np.int32), (2, 1))
    assert decoder(prompts, 1.0).shape == (2, 3)
    assert decoder.spared_tokens == 16


def test_what_is_asked_of_the_product():
    asked = {case.name: dict(case.speedups) for case in CASES}
    assert asked["quickstart model"] == {1: 2.0, 8: None, 64: 3.0}
    assert dataclasses.asdict(Effort()).items() >= {"prompt_tokens": 32, "new_tokens": 256}.items()
    assert (SMALL.hidden_size, SMALL.num_layers, SMALL.num_kv_heads, SMALL.vocab_size) == (128, 4, 1, 80)
