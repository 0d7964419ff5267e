import pytest

from sestina.config.load import load
from sestina.config.rules import RULES
from sestina.config.run import RunConfig
from sestina.config.schema import keys_of
from tests.unit.config.helpers import FILES, changed, violations

QUANTIZED = ["draft.source=quantized", "draft.min_token_prob=0"]

BROKEN = [
    *(
        (
            [f"draft.source={source}", "draft.servers=1"],
            f"draft.servers: 1 is not allowed with draft.source '{source}'; "
            "0: what servers bring is of the group, and goes with 'grouped'",
        )
        for source in ("none", "self")
    ),
    (
        [*QUANTIZED, "draft.paths=2"],
        "draft.paths: 2 is not allowed with draft.source 'quantized'; 1: a model drafts one chain",
    ),
    (
        ["draft.source=quantized"],
        "draft.min_token_prob: 0.1 is not allowed with draft.source 'quantized'; "
        "0: a model's drafts are drawn, the unlikely among them too",
    ),
    (
        ["draft.acceptance=rejection", "draft.source=self"],
        "draft.acceptance: 'rejection' is not allowed with draft.source 'self'; "
        "'coupled', or draft.source 'quantized': other drafts have no distribution to reject by",
    ),
    (
        [*QUANTIZED, "draft.acceptance=rejection", "rollout.scheduler=oracle", "rollout.lengths_from=runs/other"],
        "draft.acceptance: 'rejection' is not allowed with rollout.scheduler 'oracle'; "
        "'coupled': under rejection the lengths of another run are not those of this one",
    ),
    (
        ["algorithm.batch_size=10", "algorithm.minibatches=1"],
        "algorithm.batch_size: 10 is not allowed with algorithm.group_size 8; a multiple of 8",
    ),
    (
        ["rollout.scheduler=oracle"],
        "rollout.lengths_from: null is not allowed with rollout.scheduler 'oracle', rollout.forced_lengths_from null; "
        "the directory of a run with the same prompts and seed, under another scheduler",
    ),
    (
        ["algorithm.minibatches=3"],
        "algorithm.minibatches: 3 is not allowed with algorithm.batch_size 512, algorithm.group_size 8; "
        "a divisor of 64, the number of groups in a batch",
    ),
    (
        ["algorithm.group_size=1"],
        "algorithm.group_size: 1 is not allowed with algorithm.kind 'grpo'; "
        "at least 2: a response is compared with others to the same prompt",
    ),
    (
        ["data.num_prompts=63"],
        "data.num_prompts: 63 is not allowed with algorithm.batch_size 512, algorithm.group_size 8; "
        "at least 64, the number of groups in a batch",
    ),
    (
        ["data.max_prompt_tokens=107"],
        "data.max_prompt_tokens: 107 is not allowed with data.max_terms 52; at least 108: a sum of n terms takes 2n+4",
    ),
    (
        ["reward={kind: math, num_workers: 1, timeout_s: 1}"],
        "reward.kind: 'math' is not allowed with data.kind 'sums'; 'exact', 'function', 'judge' or 'remote'",
    ),
    (
        ["reward.answer_mark='='"],
        "reward.answer_mark: '=' is not allowed with data.kind 'sums'; '#', as the task writes it",
    ),
    (
        ["eval.every=5", "eval.num_prompts=257"],
        "eval.num_prompts: 257 is not allowed with data.num_eval_prompts 256, eval.every 5; at most 256",
    ),
    (
        ["rollout.engine.kv_capacity_tokens=527"],
        "rollout.engine.kv_capacity_tokens: 527 is not allowed with data.max_prompt_tokens 128, "
        "rollout.max_new_tokens 400; at least 528: the longest prompt and response in whole pages of 16",
    ),
    (
        ["rollout.engine.kv_capacity_tokens=535", "rollout.max_new_tokens=401"],
        "rollout.engine.kv_capacity_tokens: 535 is not allowed with data.max_prompt_tokens 128, "
        "rollout.max_new_tokens 401; at least 544: the longest prompt and response in whole pages of 16",
    ),
    (
        ["run.mode=async", "async.max_running_groups=63"],
        "async.max_running_groups: 63 is not allowed with run.mode 'async', algorithm.batch_size 512, "
        "algorithm.group_size 8; at least 64, the groups of a batch, or null",
    ),
    (
        ["async.keep_kv=true"],
        "async.keep_kv: true is not allowed with run.mode 'sync'; false: weights change between responses there",
    ),
    (
        ["run.mode=pipelined", "async.keep_kv=true"],
        "async.keep_kv: true is not allowed with run.mode 'pipelined'; false: weights change between responses there",
    ),
    *(
        (
            [f"run.mode={mode}", "rollout.over_issue=1.5"],
            f"rollout.over_issue: 1.5 is not allowed with run.mode '{mode}'; 1, or run.mode 'sync': in others what has "
            "not ended when a batch has goes on anyway",
        )
        for mode in ("async", "pipelined")
    ),
    (
        ["rollout.over_issue=2.5", "async.max_staleness=1"],
        "rollout.over_issue: 2.5 is not allowed with rollout.stopped 'carry', async.max_staleness 1; at most 2, or "
        "rollout.stopped 'drop': more could not be trained on in time",
    ),
    (
        ["rollout.scheduler=histopipe"],
        "rollout.scheduler: 'histopipe' is not allowed with run.mode 'sync'; another scheduler, or run.mode "
        "'pipelined': it balances over two steps",
    ),
    (
        ["rollout.history_from=runs/a"],
        "rollout.history_from: 'runs/a' is not allowed with rollout.scheduler 'divided'; null, or rollout.scheduler "
        "'histopipe', which alone ranks by it",
    ),
    (
        ["rollout.engine.max_running=257"],
        "rollout.engine.max_running: 257 is not allowed with rollout.engine.max_step_tokens 256; at most 256",
    ),
    (
        ["trainer.max_micro_batch_tokens=527"],
        "trainer.max_micro_batch_tokens: 527 is not allowed with data.max_prompt_tokens 128, "
        "rollout.max_new_tokens 400; at least 528: the longest prompt and response",
    ),
    (
        ["trainer.num_ranks=6", "trainer.tensor_parallel=2", "trainer.pipeline_parallel=2"],
        "trainer.num_ranks: 6 is not allowed with trainer.tensor_parallel 2, trainer.pipeline_parallel 2; "
        "a multiple of 4, the ranks that hold one model",
    ),
    (
        ["trainer.sequence_parallel=true"],
        "trainer.sequence_parallel: true is not allowed with trainer.tensor_parallel 1; "
        "false, or tensor_parallel of at least 2",
    ),
    (
        ["trainer.optimizer.decay=cosine", "trainer.optimizer.decay_steps=20", "trainer.optimizer.warmup_steps=20"],
        "trainer.optimizer.decay_steps: 20 is not allowed with trainer.optimizer.warmup_steps 20, "
        "trainer.optimizer.decay 'cosine'; above 20, as warm-up is included, or decay 'constant'",
    ),
    (
        ["trainer.optimizer.min_learning_rate=0.001"],
        "trainer.optimizer.min_learning_rate: 0.001 is not allowed with trainer.optimizer.learning_rate 0.0003; "
        "at most 0.0003",
    ),
]


@pytest.mark.parametrize(("changes", "line"), BROKEN)
def test_a_broken_rule_states_its_keys_their_values_and_what_is_allowed(changes, line):
    assert violations(*changes) == [line]


def test_evaluation_on_files_needs_a_held_out_file():
    assert violations("eval.every=5", argv=FILES) == [
        "data.eval_path: null is not allowed with eval.every 5; a file of held-out prompts, or eval.every 0"
    ]
    load(changed("eval.every=5", "data.eval_path=held-out.jsonl", argv=FILES))


@pytest.mark.parametrize(
    "changes",
    [
        ["algorithm.minibatches=64"],
        ["algorithm.batch_size=8", "algorithm.minibatches=1", "data.num_prompts=1"],
        ["algorithm.group_size=2"],
        ["data.max_prompt_tokens=108"],
        ["eval.num_prompts=257", "eval.every=0"],
        ["eval.num_prompts=256", "eval.every=5"],
        ["rollout.engine.kv_capacity_tokens=528"],
        ["rollout.engine.kv_capacity_tokens=544", "rollout.max_new_tokens=401"],
        ["rollout.engine.max_running=256"],
        ["trainer.max_micro_batch_tokens=528"],
        ["trainer.num_ranks=8", "trainer.tensor_parallel=2", "trainer.pipeline_parallel=2"],
        ["trainer.num_ranks=2", "trainer.tensor_parallel=2", "trainer.sequence_parallel=true"],
        ["trainer.optimizer.decay=linear", "trainer.optimizer.decay_steps=21", "trainer.optimizer.warmup_steps=20"],
        ["trainer.optimizer.decay=constant", "trainer.optimizer.decay_steps=20", "trainer.optimizer.warmup_steps=20"],
        ["trainer.optimizer.min_learning_rate=0.0003"],
        ["trainer.dtype=bfloat16"],
        ["rollout.scheduler=group", "rollout.chunk_tokens=1"],
        ["rollout.scheduler=oracle", "rollout.lengths_from=runs/other"],
        ["rollout.scheduler=oracle", "rollout.forced_lengths_from=runs/other"],
        ["rollout.scheduler=context", "rollout.affinity_requests=32"],
        [*QUANTIZED, "draft.acceptance=rejection", "draft.bits=8"],
        ["async.max_running_groups=63"],
        ["run.mode=async", "async.max_running_groups=64", "async.max_staleness=0", "async.keep_kv=true"],
    ],
)
def test_what_a_rule_still_allows(changes):
    load(changed(*changes))


def test_a_group_of_weights_divides_what_goes_into_every_product():
    argv = ("model=qwen2_5_7b", "model.path=m", *FILES, "draft=quantized")
    load(changed(argv=argv))
    assert violations("model.shape.ffn_size=18912", argv=argv) == [
        "draft.weight_group: 128 is not allowed with draft.source 'quantized', model.shape.hidden_size 3584, "
        "model.shape.ffn_size 18912, model.shape.attention.num_heads 28, model.shape.attention.head_size 128; "
        "a divisor of 3584 and 18912, the inputs of the quantised products"
    ]


def test_bits_and_groups_that_no_kernel_has_are_refused():
    assert violations("draft.bits=3", "draft.weight_group=100") == [
        "draft.bits: 3 is not allowed; one of 4, 8",
        "draft.weight_group: 100 is not allowed; one of 32, 64, 128, 256",
    ]


def test_a_pool_moves_whole_pages_and_needs_a_folder_for_its_ssd():
    pool = ("rollout/kv_pool=local",)
    assert violations("rollout.chunk_tokens=15", "rollout.kv_pool.ssd_bytes=1", argv=pool) == [
        "rollout.chunk_tokens: 15 is not allowed with rollout.kv_pool.kind 'local', rollout.scheduler 'divided'; "
        "at least 16, a page of keys and values, which is what the pool moves",
        "rollout.kv_pool.ssd_dir: null is not allowed with rollout.kv_pool.ssd_bytes 1; "
        "a folder on a disk of the node's own, or ssd_bytes 0",
    ]
    load(changed("rollout.chunk_tokens=16", argv=pool))
    load(changed("rollout.chunk_tokens=1", "rollout.scheduler=group", argv=pool))
    load(changed("rollout.kv_pool.ssd_bytes=1", "rollout.kv_pool.ssd_dir=/tmp", argv=pool))


def test_a_store_has_an_address_whole_pages_and_devices_for_rdma_alone():
    pool = ("rollout/kv_pool=mooncake",)
    wrong = ("rollout.chunk_tokens=15", "rollout.kv_pool.master=here", "rollout.kv_pool.device=mlx5_0")
    assert violations(*wrong, argv=pool) == [
        "rollout.chunk_tokens: 15 is not allowed with rollout.kv_pool.kind 'mooncake', rollout.scheduler 'divided'; "
        "at least 16, a page of keys and values, which is what the pool moves",
        "rollout.kv_pool.master: 'here' is not allowed with rollout.kv_pool.kind 'mooncake'; "
        "host:port of a mooncake_master, or null for one of the run's own",
        "rollout.kv_pool.device: 'mlx5_0' is not allowed with rollout.kv_pool.protocol 'tcp'; "
        "'': only rdma has devices",
    ]
    for master in ("node:0", "node:65536", ":5"):
        assert len(violations(f"rollout.kv_pool.master={master}", argv=pool)) == 1
    assert violations("rollout.kv_pool.segment_bytes=1000", argv=pool) == [
        "rollout.kv_pool.segment_bytes: 1000 is not allowed; a whole number of at least 16777216"
    ]
    load(changed(argv=pool))
    load(changed("rollout.kv_pool.master=node:5", "rollout.kv_pool.protocol=rdma", argv=pool))


def test_a_pool_of_servers_keeps_their_pages_in_a_part_of_each_gpu():
    pool = ("rollout/engine=sglang_cuda", "rollout/kv_pool=mooncake")
    gpus = ("rollout.engine.tensor_parallel=8", "trainer.device=cuda")
    wrong = ("rollout.chunk_tokens=63", "rollout.engine.page_tokens=64", "rollout.kv_pool.segment_bytes=134217727")
    assert violations(*gpus, *wrong, argv=pool) == [
        "rollout.chunk_tokens: 63 is not allowed with rollout.engine.page_tokens 64, rollout.kv_pool.kind 'mooncake', "
        "rollout.scheduler 'divided'; at least 64: the pool keeps whole pages, and each chunk would compute its own "
        "again",
        "rollout.kv_pool.segment_bytes: 134217727 is not allowed with rollout.engine.tensor_parallel 8; "
        "at least 134217728: 16777216 of each of a server's GPUs",
    ]
    load(changed(*gpus, "rollout.kv_pool.segment_bytes=134217728", argv=pool))
    twice = violations('rollout.engine.extra_args=["--hicache-write-policy=write_back"]', argv=pool[:1])
    assert any("without --hicache-write-policy, which other keys" in line for line in twice)


def test_sglang_is_interrupted_held_to_lengths_and_a_step_ahead():
    load(
        changed(
            "run.mode=async", "async.keep_kv=true", "rollout.forced_lengths_from=a", argv=("rollout.engine=sglang",)
        )
    )
    load(changed("run.mode=pipelined", "rollout.scheduler=histopipe", argv=("rollout.engine=sglang",)))


def test_dynamic_sampling_needs_a_stream():
    [line] = violations("algorithm.dynamic_sampling=true", argv=("algorithm=dapo", "algorithm.minibatches=1"))
    assert line == (
        "algorithm.dynamic_sampling: true is not allowed with run.mode 'sync'; false, or run.mode 'async', "
        "eta 0 included"
    )
    load(changed("algorithm.dynamic_sampling=true", "run.mode=async", argv=("algorithm=dapo",)))


def test_the_penalty_on_length_grows_within_the_response():
    [line] = violations("algorithm.overlong_tokens=401", argv=("algorithm=dapo",))
    assert line == "algorithm.overlong_tokens: 401 is not allowed with rollout.max_new_tokens 400; at most 400"


@pytest.mark.parametrize("kind", ["rloo", "dapo", "gspo"])
def test_objectives_that_compare_responses_need_two_of_them(kind):
    [line] = violations("algorithm.group_size=1", argv=(f"algorithm={kind}", "algorithm.minibatches=1"))
    assert line.startswith(f"algorithm.group_size: 1 is not allowed with algorithm.kind '{kind}'; at least 2")


def test_files_go_with_any_reward_and_mark():
    load(changed(argv=FILES))
    load(changed("reward.answer_mark='####'", argv=(*FILES[:2], "reward=exact")))


def test_tests_of_code_end_before_their_worker_does():
    code = (*FILES[:2], "reward=code")
    load(changed(argv=code))
    assert violations("reward.timeout_s=10", argv=code) == [
        "reward.timeout_s: 10.0 is not allowed with reward.run_s 10.0; "
        "above 10, after which slow code has its reward of 0"
    ]


def test_a_judges_scores_have_a_range():
    judge = (*FILES[:2], "reward=judge", "reward.url=http://judge/v1", "reward.model=m")
    load(changed(argv=judge))
    assert violations("reward.max_score=0", argv=judge) == [
        "reward.max_score: 0.0 is not allowed with reward.min_score 0.0; above 0"
    ]


def test_all_broken_rules_come_together():
    chosen = [(changes, line) for changes, line in BROKEN[-6:] if changes != ["trainer.sequence_parallel=true"]]
    found = violations(*(change for changes, _ in chosen for change in changes))
    assert sorted(found) == sorted(line for _, line in chosen)


def test_a_rule_on_a_refused_value_is_not_judged():
    assert violations("algorithm.group_size=0") == [
        "algorithm.group_size: 0 is not allowed; a whole number of at least 1"
    ]
    assert len(violations("data.kind=filez", "data.max_prompt_tokens=1")) == 1


def test_rules_need_keys_that_exist():
    known = {key.path for key in keys_of(RunConfig)}
    sections = {path.rpartition(".")[0] for path in known}  # known to rules where they are null
    for rule in RULES:
        assert set(rule.needs) <= known | sections
        assert len(rule.needs) >= 2
