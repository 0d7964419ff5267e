from dataclasses import replace

from sestina.bench.rollout import drafted
from sestina.bench.rollout.drafted import PLAN, SHAPE, WORKLOAD
from sestina.bench.rollout.workload import MODEL, QWEN2_VL
from sestina.models.tokenizer import Tokenizer
from tests.unit.bench.helpers import by_name

TINY = replace(WORKLOAD, name="tiny", num_groups=4, group_size=4, mean_tokens=20, max_tokens=60, chunk_tokens=16)
LAST_CACHE_BYTES = 32 << 20


def test_the_model_has_more_weights_than_the_caches_hold_and_the_built_in_vocabulary():
    assert 4 * SHAPE.num_parameters > 1.4 * LAST_CACHE_BYTES
    assert "12 M" in WORKLOAD.name
    assert Tokenizer(MODEL, model_vocab_size=SHAPE.vocab_size).eos_id < SHAPE.vocab_size


def test_the_iteration_keeps_its_shape():
    assert WORKLOAD.num_groups / PLAN.num_instances == QWEN2_VL.num_groups / 16
    kept = ("group_size", "mean_tokens", "max_tokens", "between", "kv_share", "chunk_tokens")
    assert all(getattr(WORKLOAD, name) == getattr(QWEN2_VL, name) for name in kept)


def test_drafts_are_compared_with_the_baseline_and_with_the_scheduler_alone():
    lines = []
    plan = replace(PLAN, workloads=(TINY,), seeds=(1,), num_instances=2)
    small = replace(SHAPE, hidden_size=64, num_heads=1, num_kv_heads=1, ffn_size=64, num_layers=1)
    found = by_name(list(drafted.figures(lines.append, plan, small)))
    assert len(lines) == len(PLAN.ways)
    over = "tiny: context, grouped drafts over"
    assert found[f"{over} group, throughput, median of 1 seeds"].must == ">= 1.9"
    assert found[f"{over} context, throughput, median"].value > 0
    assert found["tiny: context over group, throughput, median of 1 seeds"].must is None
    assert found["tiny: context, grouped drafts, acceptance length"].value >= 1
