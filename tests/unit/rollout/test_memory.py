from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sestina.config.load import load
from sestina.rollout.memory import CONTEXT_BYTES, instance_memory
from tests.unit.config.helpers import composed
from tests.unit.models.shapes import DENSE, SPARSE, shape_of

GIB = 2**30
EIGHT = load(composed("+exp=seer_qwen72b")).rollout.engine
"""SGLang over eight GPUs, 0.85 of each."""
ONE = replace(EIGHT, tensor_parallel=1)


def test_by_hand_72_billion_parameters_on_eight_gpus():
    memory = instance_memory(shape_of("qwen2_5_72b"), EIGHT, 80 * GIB)
    norms = 161 * 8192
    assert memory.weights == 2 * ((72_706_203_648 - norms) // 8 + norms)
    assert memory.token_bytes == 327_680 // 8
    assert memory.kv_tokens == (int(0.85 * (80 * GIB - CONTEXT_BYTES)) - memory.weights) // 40_960


def test_key_value_heads_are_repeated_where_there_are_fewer_than_gpus():
    shape = shape_of("r1_distill_1_5b")
    two, four = (instance_memory(shape, replace(ONE, tensor_parallel=n), 80 * GIB) for n in (2, 4))
    assert two.token_bytes == four.token_bytes == 2 * 28 * 2 * 128


def test_a_latent_cache_is_whole_on_each_gpu_unless_requests_are_spread():
    shape = shape_of("kimi_k2")
    together = replace(ONE, tensor_parallel=32, expert_parallel=32)
    spread = replace(together, data_parallel=32)
    one, many = (instance_memory(shape, engine, 140 * GIB) for engine in (together, spread))
    assert one.token_bytes == many.token_bytes == 70_272
    assert many.weights > one.weights
    assert many.kv_tokens == 32 * many.replica_tokens > one.kv_tokens == one.replica_tokens


def test_an_instance_without_room_holds_nothing():
    memory = instance_memory(shape_of("qwen2_5_72b"), ONE, 80 * GIB)
    assert memory.kv_bytes < 0
    assert memory.kv_tokens == 0


def test_the_embedded_engine_has_one_gpu():
    engine = load(composed("+exp=quickstart")).rollout.engine
    memory = instance_memory(DENSE, engine, GIB * 4)
    assert memory.token_bytes == 4 * 8 * 2 * 8 * 8
    assert memory.kv_bytes == int(0.9 * 2 * GIB) - memory.weights


@given(
    st.sampled_from([DENSE, SPARSE]),
    st.sampled_from([1, 2, 4]),
    st.floats(0.1, 0.8),
    st.integers(8, 140),
    st.sampled_from(["float32", "bfloat16"]),
)
def test_room_grows_with_memory_share_and_parallelism(shape, tensor, share, gib, dtype):
    def tokens(**changes):
        given_ = {"tensor_parallel": tensor, "memory_fraction": share, "dtype": dtype, "gib": gib} | changes
        size = given_.pop("gib") * GIB
        return instance_memory(shape, replace(ONE, **given_), size).kv_tokens

    assert tokens(gib=gib + 1) > tokens()
    assert tokens(memory_fraction=share + 0.1) > tokens()
    assert tokens(tensor_parallel=2 * tensor) >= tokens()
    assert tokens(dtype="float32") < tokens(dtype="bfloat16")
