from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sestina.config.fingerprint import FREE, differing_keys, fingerprint
from sestina.config.load import load
from sestina.config.resolved import as_dict, as_flat_dict, read_resolved, write_resolved
from sestina.config.run import RunConfig
from sestina.config.schema import keys_of
from sestina.core.errors import ConfigError, RunDirError
from tests.unit.config.helpers import FILES, changed, composed

FUNCTION = (*FILES[:2], "reward=function", "reward.path=grading:grade")


@pytest.fixture(scope="module")
def usual():
    return load(changed())


@pytest.mark.parametrize("argv", [(), FILES, FUNCTION, ("+exp=quickstart",)])
def test_the_resolved_file_reads_back_equal(argv, tmp_path):
    config = load(changed("telemetry.wandb='off'", "trainer.optimizer.eps=1e-8", argv=argv))
    write_resolved(config, tmp_path / "config.yaml")
    assert read_resolved(tmp_path / "config.yaml") == config


@given(
    name=st.text(min_size=1).filter(lambda text: text != "???"), group=st.none() | st.text(), rate=st.floats(1e-12, 1e9)
)
def test_odd_text_and_numbers_read_back_equal(tmp_path_factory, usual, name, group, rate):
    config = usual
    optimizer = replace(config.trainer.optimizer, learning_rate=rate)
    telemetry = replace(config.telemetry, wandb_group=group if group != "???" else None)
    config = replace(config, name=name, telemetry=telemetry, trainer=replace(config.trainer, optimizer=optimizer))
    path = tmp_path_factory.getbasetemp() / "odd.yaml"
    write_resolved(config, path)
    assert read_resolved(path) == config


@pytest.mark.parametrize("text", ["on", "1e3", "${name}", "null", "0x1f", "a: b", "\u00e9\u2028"])
def test_text_that_yaml_could_misread_stays_text(text, tmp_path):
    config = replace(load(changed()), name=text)
    write_resolved(config, tmp_path / "config.yaml")
    assert read_resolved(tmp_path / "config.yaml").name == text


def test_as_dict_holds_plain_values():
    tree = as_dict(load(changed()))
    assert tree["dir"] == "runs/dev"
    assert tree["rollout"]["engine"]["max_running"] == 64
    assert yaml.safe_load(yaml.safe_dump(tree)) == tree


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(RunDirError, match=r"absent.yaml: cannot be read as YAML"):
        read_resolved(tmp_path / "absent.yaml")
    bad = tmp_path / "bad.yaml"
    for text, reason in [("a: [", "cannot be read as YAML"), ("- a", "expected keys and values, found list")]:
        bad.write_text(text)
        with pytest.raises(RunDirError, match=f"bad.yaml: {reason}"):
            read_resolved(bad)
    write_resolved(load(changed()), bad)
    bad.write_text(bad.read_text().replace("seed: 1", "sed: 1"))
    with pytest.raises(ConfigError) as error:
        read_resolved(bad)
    assert error.value.violations == [
        f"{bad}: sed: unknown key; did you mean 'seed'?",
        f"{bad}: seed: must be given; a whole number from 0 to 2147483647",
    ]


def words(text: str) -> list[str]:
    return text.split()


ALLOWED_CHANGES = words(
    "name=other dir=elsewhere resume=never async.bias_alarm=0.5 "
    "run.steps=7 run.checkpoint_every=1 run.keep_checkpoints=9 eval.every=3 "
    "rollout.num_instances=16 rollout.scheduler=group rollout.chunk_tokens=7 rollout.affinity_requests=3 "
    "rollout.ranking_groups=3 "
    "rollout.lengths_from=runs/other rollout.expected_tokens=50 rollout.engine.kv_capacity_tokens=1024 "
    "rollout.engine.max_running=3 rollout.engine.max_step_tokens=32 draft.source=grouped draft.length=aimd "
    "draft.servers=2 draft.toggle=batch draft.guard=false draft.max_tokens=9 draft.paths=2 draft.min_token_prob=0 "
    "draft.thresholds_slack=0.3 draft.aimd_start=3 draft.aimd_step=4 draft.history_bytes=7 "
    "draft.bits=8 draft.weight_group=64 draft.calibration=mine.json "
    "reward.num_workers=5 trainer.max_logprob_diff=1 "
    "weights.host=node1 weights.bucket_bytes=1 weights.timeout_s=1 deadlines.start_s=1 deadlines.silence_s=1 "
    "deadlines.train_s=1 deadlines.checkpoint_s=1 deadlines.stop_s=1 telemetry.wandb=online telemetry.wandb_project=p "
    "telemetry.wandb_group=g"
)

PINNED_CHANGES = words(
    "draft.acceptance=rejection "
    "seed=2 data.num_prompts=999 data.num_eval_prompts=300 data.max_terms=9 data.tail=0 data.max_prompt_tokens=200 "
    "model.path=other rollout.max_new_tokens=300 rollout.temperature=0.9 rollout.engine.device=cuda "
    "rollout.forced_lengths_from=runs/a rollout.over_issue=1.5 rollout.stopped=drop "
    "rollout.engine.dtype=bfloat16 algorithm.batch_size=1024 algorithm.group_size=16 algorithm.minibatches=4 "
    "algorithm.clip_low=0.1 algorithm.clip_high=0.3 algorithm.advantage_scale=none algorithm.loss_mean=sequence "
    "algorithm.kl_coefficient=0.1 reward.timeout_s=3 trainer.num_ranks=2 trainer.tensor_parallel=1 "
    "trainer.distributed_optimizer=true trainer.recompute=full trainer.device=cuda trainer.dtype=bfloat16 "
    "trainer.max_micro_batch_tokens=4096 trainer.optimizer.learning_rate=1 trainer.optimizer.min_learning_rate=1e-5 "
    "trainer.optimizer.warmup_steps=3 trainer.optimizer.decay=linear trainer.optimizer.decay_steps=9 "
    "trainer.optimizer.weight_decay=1 trainer.optimizer.beta1=0 trainer.optimizer.beta2=0 trainer.optimizer.eps=1 "
    "trainer.optimizer.clip_grad=0 eval.num_prompts=9 eval.temperature=0 run.mode=async async.max_staleness=1 "
    "async.max_running_groups=999 async.overdue=drop algorithm.proximal=loglinear algorithm.behaviour_weight_cap=3"
)


def test_every_key_of_the_usual_run_is_either_free_or_pinned():
    fixed = {"async.keep_kv", "data.kind", "rollout.engine.kind", "algorithm.kind", "reward.kind", "reward.answer_mark"}
    fixed |= {"trainer.pipeline_parallel", "trainer.sequence_parallel", "cluster", "sim", "model.shape"}
    fixed |= {"rollout.kv_pool.kind", "rollout.history_from", "environment.kind"}
    fixed |= {"trainer.expert_parallel", "trainer.expert_tensor_parallel"}
    listed = [change.partition("=")[0] for change in ALLOWED_CHANGES + PINNED_CHANGES]
    assert sorted([*listed, *fixed]) == sorted(as_flat_dict(load(changed())))


def test_a_shape_may_be_added_to_the_model_that_has_it():
    before, after = (
        composed("model=checkpoint", "model.path=m", *FILES),
        composed("model=qwen2_5_7b", "model.path=m", *FILES),
    )
    assert fingerprint(load(before)) == fingerprint(load(after))


def test_a_pool_of_keys_and_values_may_come_and_go():
    for kind in ("local", "mooncake"):
        assert fingerprint(load(changed())) == fingerprint(load(changed(argv=(f"rollout/kv_pool={kind}",))))


REMOTE = (*FILES[:2], "reward=remote", "reward.url=http://a")
JUDGE = (*FILES[:2], "reward=judge", "reward.url=http://a", "reward.model=m")
CODE = (*FILES[:2], "reward=code")


@pytest.mark.parametrize(
    ("argv", "free", "pinned"),
    [
        (REMOTE, ["url=http://b", "key_env=T", "key_file=f", "max_attempts=9", "num_workers=9"], ["timeout_s=9"]),
        (
            JUDGE,
            ["url=http://b", "key_env=T", "max_requests=9", "max_tokens=9"],
            ["model=n", "rubric=r", "max_score=2"],
        ),
        (CODE, ["isolation=namespaces", "num_workers=9"], ["run_s=9", "memory_bytes=9", "python=/usr/bin/python3"]),
    ],
)
def test_what_rewards_are_asked_of_may_change_and_what_they_are_may_not(argv, free, pinned):
    before = load(changed(argv=argv))
    assert fingerprint(before) == fingerprint(load(changed(*(f"reward.{change}" for change in free), argv=argv)))
    for change in pinned:
        assert fingerprint(before) != fingerprint(load(changed(f"reward.{change}", argv=argv)))


def test_who_answers_between_turns_is_pinned_and_by_how_many_processes_is_not():
    argv = ("environment=calculator",)
    before = load(changed(argv=argv))
    assert fingerprint(before) == fingerprint(load(changed("environment.num_workers=9", argv=argv)))
    for change in ("turn_end=;", "modulus=7", "max_turns=3", "max_observation_tokens=2", "timeout_s=1"):
        assert len(differing_keys(before, load(changed(f"environment.{change}", argv=argv)))) == 1
    assert "environment.kind: 'none' -> 'calculator'" in differing_keys(load(changed()), before)


def test_keeping_keys_and_values_is_pinned():
    kept = load(changed("run.mode=async", "async.keep_kv=true"))
    assert differing_keys(load(changed("run.mode=async")), kept) == ["async.keep_kv: false -> true"]


def test_what_cannot_change_a_weight_may_change():
    before, after = load(changed()), load(changed(*ALLOWED_CHANGES))
    assert len([key for key in as_flat_dict(before) if as_flat_dict(before)[key] != as_flat_dict(after)[key]]) == len(
        ALLOWED_CHANGES
    )
    assert fingerprint(before) == fingerprint(after)
    assert differing_keys(before, after) == []


@pytest.mark.parametrize("change", [change for change in PINNED_CHANGES if change != "trainer.tensor_parallel=1"])
def test_what_can_change_a_weight_is_pinned(change):
    both_devices = ("trainer.device=cuda", "rollout.engine.device=cuda")
    changes = both_devices if change in both_devices else (change,)
    base: tuple[str, ...] = ()
    if change.startswith("draft."):
        base = ("draft.source=quantized", "draft.min_token_prob=0")
    before, after = load(changed(*base)), load(changed(*base, *changes))
    assert fingerprint(before) != fingerprint(after)
    lines = differing_keys(before, after)
    assert len(lines) == len(changes)
    assert any(line.startswith(f"{change.partition('=')[0]}: ") for line in lines)


def test_differing_keys_state_both_values():
    before = load(changed())
    assert differing_keys(before, load(changed("seed=2", "algorithm.loss_mean=sequence"))) == [
        "seed: 1 -> 2",
        "algorithm.loss_mean: 'token' -> 'sequence'",
    ]
    lines = differing_keys(before, load(changed(argv=FILES)))
    assert "data.kind: 'sums' -> 'files'" in lines
    assert "data.tail: 1.1 -> absent" in lines
    assert "data.path: absent -> 'prompts.jsonl'" in lines
    assert "data.eval_path: absent -> null" in lines


def test_free_keys_exist_and_equal_numbers_have_one_fingerprint():
    known = {key.path for key in keys_of(RunConfig)}
    sections = {".".join(path.split(".")[:depth]) for path in known for depth in (1, 2)}
    assert set(FREE) <= known | sections
    assert fingerprint(load(changed("data.tail=1"))) == fingerprint(load(changed("data.tail=1.0")))
    assert fingerprint(replace(load(changed()), dir=Path("/x"))) == fingerprint(load(changed()))
