"""Every bad input: one clear message, exit code 2, nothing written."""

import json
import os

import pytest

from tests.integration.worlds import BASE, small_model, train

pytestmark = pytest.mark.mpi


@pytest.fixture
def model(tmp_path):
    return small_model(tmp_path / "model")


def refused(tmp_path, model, **changes):
    run = train(tmp_path / "run", model, **changes)
    assert run.code == 2, run.output
    assert not run.dir.exists(), "something was written"
    assert "Traceback" not in run.output
    return run.output


def test_everything_wrong_with_a_configuration_is_said_at_once(tmp_path, model):
    output = refused(
        tmp_path,
        model,
        rollout__chunk_tokns=3,
        trainer__device="gpu",
        algorithm__batch_size=30,
        rollout__engine__kv_capacity_tokens=64,
    )
    assert "rollout.chunk_tokns" in output
    assert "rollout.chunk_tokens" in output
    assert "trainer.device: 'gpu' is not allowed" in output
    assert "algorithm.batch_size: 30 is not allowed with algorithm.group_size 4" in output
    assert "rollout.engine.kv_capacity_tokens: 64 is not allowed" in output


def test_a_missing_model(tmp_path, model):
    assert "config.json: no such file" in refused(tmp_path, tmp_path / "nowhere")


def test_an_sglang_environment_that_is_not_there(tmp_path, model):
    output = refused(
        tmp_path,
        model,
        base=(*BASE, "rollout.engine=sglang"),
        rollout__engine__python=tmp_path / "python",
        rollout__engine__max_step_tokens=None,
    )
    assert f"rollout.engine.python: '{tmp_path}/python' is not an executable file; `make sglang` sets up" in output


def test_truncated_weights(tmp_path, model):
    path = model / "model.safetensors"
    os.truncate(path, path.stat().st_size - 100)
    assert "truncated or not safetensors" in refused(tmp_path, model)


def test_a_tokenizer_with_more_tokens_than_the_model(tmp_path, model):
    path = model / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["model"]["vocab"] |= {f"extra{i}": 70 + i for i in range(30)}
    path.write_text(json.dumps(tokenizer))
    assert "the tokenizer has 100 tokens, the model's vocabulary 80" in refused(tmp_path, model)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "holds no prompt"),
        (['{"prompt": "a1b2?ab=", "label": "3"}', '{"prompt": "a1"}'], "prompts.jsonl:2: key 'label' is missing"),
        (['{"prompt": "a1b2?ab=", "label": "3"}', "nonsense"], "prompts.jsonl:2: not JSON"),
        (['{"prompt": "' + 30 * "a" + '", "label": "3"}'], "has 30 tokens; data.max_prompt_tokens allows 1 to 24"),
        (['{"prompt": "a1b2?ab=", "label": "3"}'], "one step needs 8 prompts, the prompt set holds 1"),
    ],
)
def test_bad_prompt_files(tmp_path, model, lines, said):
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(lines))
    gone = {"data__num_prompts": None, "data__num_eval_prompts": None, "data__max_terms": None}
    output = refused(tmp_path, model, base=("data=files", "reward=function"), data__path=path, **gone)
    assert said in output


def test_a_run_directory_that_cannot_be_made(tmp_path, model):
    (tmp_path / "run").write_text("a file")
    run = train(tmp_path / "run", model)
    assert run.code == 2
    assert "is not a directory" in run.output


def test_a_layout_the_model_does_not_allow(tmp_path, model):
    output = refused(tmp_path, model, trainer__num_ranks=3, trainer__tensor_parallel=3)
    assert "trainer.tensor_parallel: 3 is not allowed with model.shape.vocab_size 80; a divisor of 80" in output


def test_a_reward_that_cannot_be_imported(tmp_path, model):
    output = refused(tmp_path, model, reward__path="tests.integration.rewards:evn")
    assert "reward.path" in output
    assert "even" in output
