from dataclasses import replace

import pytest

from sestina.config.fit import forecast, misfits
from sestina.config.load import load
from sestina.config.rules import broken_rules
from tests.unit.config.helpers import changed, composed, violations

SEER = ("+exp=seer_qwen72b",)
MOONLIGHT = ("+exp=seer_moonlight",)
SEVEN = ("+exp=areal_7b",)
SHAPE = "model.shape"


def test_a_trainer_that_does_not_fit_is_told_how_much_it_needs_and_every_key_that_helps():
    (line,) = violations("trainer.distributed_optimizer=false", "trainer.recompute=selective", argv=SEER)
    assert line.startswith("trainer: a rank of stage 0 needs 152.9 GiB (weights 4.4, gradients 8.8, optimizer 26.3, ")
    assert "; at most 76.0, what cluster.gpu_memory_gib leaves; " in line
    for key in (
        "trainer.tensor_parallel (8)",
        "trainer.pipeline_parallel (4)",
        "cluster.gpus with trainer.num_ranks (32)",
        "trainer.max_micro_batch_tokens (43008)",
        "trainer.distributed_optimizer true",
        "trainer.recompute 'full'",
    ):
        assert key in line
    assert "expert" not in line


def test_experts_can_be_shared_out_further():
    (line,) = violations("trainer.expert_parallel=1", "cluster.gpu_memory_gib=79", argv=MOONLIGHT)
    assert "raise trainer.expert_parallel (1)" in line
    assert "recompute" not in line


def test_a_cache_without_room_for_one_longest_response_is_refused():
    assert violations("rollout.engine.memory_fraction=0.2", argv=SEVEN) == [
        "rollout.engine: beside 14.2 GiB of weights each GPU has 1.4 GiB for keys and values, an instance room for "
        "26491 tokens, too few for a longest prompt and response of 28672 tokens; "
        "raise rollout.engine.memory_fraction or cluster.gpu_memory_gib, give each of fewer rollout.num_instances "
        "more GPUs (rollout.engine.tensor_parallel, 1), or lower rollout.max_new_tokens"
    ]
    load(changed("rollout.engine.memory_fraction=0.22", argv=SEVEN))


def test_more_cache_than_there_is_memory_is_refused():
    (line,) = violations("rollout.engine.kv_capacity_tokens=2000000", argv=SEVEN)
    assert line.startswith("rollout.engine.kv_capacity_tokens: 2000000 is not allowed; beside 14.2 GiB of weights")
    assert "an instance room for 975827 tokens; lower it, or raise rollout.engine.memory_fraction" in line


def test_what_is_asked_for_counts_when_there_is_room_for_more():
    foreseen = forecast(load(changed("rollout.engine.kv_capacity_tokens=90000", argv=SEVEN)))
    assert (foreseen.kv_tokens, foreseen.num_longest) == (90_000, 90_000 // 28_672)


def test_everything_wrong_with_sizes_and_memory_is_one_message():
    lines = violations("trainer.tensor_parallel=3", "cluster.limit_min=60", "cluster.gpu_memory_gib=24", argv=SEER)
    assert [line.partition(":")[0] for line in lines] == [
        "trainer.num_ranks",
        "trainer.tensor_parallel",
        "trainer.tensor_parallel",
        "cluster.limit_min",
        "trainer",
    ]


def test_nothing_is_foreseen_without_gpus_or_without_a_shape():
    config = load(composed(*SEER))
    assert forecast(replace(config, cluster=None)) is None
    assert forecast(replace(config, model=replace(config.model, shape=None))) is None
    assert misfits(load(composed("+exp=quickstart_slurm"))) == []


def test_a_dense_model_has_no_experts_to_share_out():
    lines = violations("trainer.expert_parallel=2", "rollout.engine.expert_parallel=8", argv=SEER)
    assert lines == [
        "trainer.expert_parallel: 2 is not allowed with model.shape.experts null; 1",
        "rollout.engine.expert_parallel: 8 is not allowed with model.shape.experts null; 1",
    ]


BROKEN = [
    (
        SEVEN,
        "trainer.tensor_parallel=16",
        "trainer.tensor_parallel: 16 is not allowed with {0}.attention.num_heads 28; a divisor of 28",
    ),
    (
        SEVEN,
        "trainer.tensor_parallel=16",
        "trainer.tensor_parallel: 16 is not allowed with {0}.attention.num_kv_heads 4; a divisor of 4",
    ),
    (
        SEVEN,
        "trainer.tensor_parallel=6",
        "trainer.tensor_parallel: 6 is not allowed with {0}.ffn_size 18944; a divisor of 18944",
    ),
    (
        SEVEN,
        "trainer.pipeline_parallel=3",
        "trainer.pipeline_parallel: 3 is not allowed with {0}.num_layers 28; a divisor of 28",
    ),
    (
        MOONLIGHT,
        "trainer.expert_parallel=6",
        "trainer.expert_parallel: 6 is not allowed with {0}.experts.num_experts 64; a divisor of 64",
    ),
    (
        MOONLIGHT,
        "trainer.expert_tensor_parallel=3",
        "trainer.expert_tensor_parallel: 3 is not allowed with {0}.experts.ffn_size 1408; a divisor of 1408",
    ),
    (
        MOONLIGHT,
        "trainer.expert_tensor_parallel=2",
        "trainer.num_ranks: 8 is not allowed with trainer.expert_parallel 8, trainer.expert_tensor_parallel 2, "
        "trainer.pipeline_parallel 1; a multiple of 16, the ranks that hold every expert once",
    ),
    (
        MOONLIGHT,
        "trainer.sequence_parallel=false",
        "trainer.sequence_parallel: false is not allowed with trainer.tensor_parallel 8, {0}.experts.num_experts 64; "
        "true: Megatron wants it where experts meet tensor parallelism",
    ),
    (
        MOONLIGHT,
        "model.shape.experts.top_k=65",
        "{0}.experts.top_k: 65 is not allowed with {0}.experts.num_experts 64; at most 64",
    ),
    (
        MOONLIGHT,
        "model.shape.max_positions=8192",
        "rollout.max_new_tokens: 65536 is not allowed with data.max_prompt_tokens 2048, {0}.max_positions 8192; "
        "at most 6144",
    ),
    (
        SEVEN,
        "algorithm.batch_size=16",
        "algorithm.batch_size: 16 is not allowed with algorithm.minibatches 4, trainer.num_ranks 48, "
        "trainer.tensor_parallel 4, trainer.pipeline_parallel 1; "
        "at least 48: each minibatch has a response for each of 12 replicas",
    ),
    (
        SEVEN,
        "rollout.engine.tensor_parallel=8",
        "rollout.engine.tensor_parallel: 8 is not allowed with rollout.engine.data_parallel 1, "
        "{0}.attention.num_heads 28; a divisor of 28",
    ),
    (
        SEVEN,
        "rollout.engine.tensor_parallel=7",
        "rollout.engine.tensor_parallel: 7 is not allowed with rollout.engine.data_parallel 1, "
        "{0}.attention.num_kv_heads 4; a divisor or a multiple of 4",
    ),
    (
        SEVEN,
        "rollout.engine.tensor_parallel=2",
        "rollout.engine.tensor_parallel: 2 is not allowed with rollout.num_instances 144, cluster.gpus 192, "
        "cluster.split.rollout 3, cluster.split.trainer 1; 1, the GPUs of one instance",
    ),
    (
        MOONLIGHT,
        "rollout.engine.data_parallel=2",
        "rollout.engine.data_parallel: 2 is not allowed with rollout.engine.tensor_parallel 1; a divisor of 1",
    ),
    (
        SEVEN,
        "run.checkpoint_every=0",
        "run.checkpoint_every: 0 is not allowed with cluster.limit_min 1440; "
        "at least 1: a node that fails would cost all steps of up to 1440 minutes",
    ),
    (
        SEVEN,
        "cluster.limit_min=249",
        "cluster.limit_min: 249 is not allowed with deadlines.start_s 3600.0, deadlines.train_s 7200.0, "
        "deadlines.checkpoint_s 3600.0, cluster.signal_s 600; "
        "at least 250: a start, a batch's training and a save may take so long before the signal",
    ),
    (
        ("+exp=seer_kimi_k2",),
        "cluster.gpus_per_node=12",
        "rollout.num_instances: 8 is not allowed with cluster.gpus_per_node 12, cluster.gpus 512, "
        "cluster.split.rollout 1, cluster.split.trainer 1; "
        "so many that the GPUs of one, now 32, are whole nodes of 12",
    ),
]


@pytest.mark.parametrize(("argv", "change", "line"), BROKEN)
def test_a_broken_rule_names_its_keys_and_what_is_allowed(argv, change, line):
    assert line.format(SHAPE) in violations(change, argv=argv)


def test_a_vocabulary_that_is_not_shared_out_evenly_is_refused():
    assert broken_rules({"trainer.tensor_parallel": 3, "model.shape.vocab_size": 80}) == [
        "trainer.tensor_parallel: 3 is not allowed with model.shape.vocab_size 80; a divisor of 80"
    ]
