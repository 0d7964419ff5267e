import json

import pytest
from omegaconf import OmegaConf

from sestina.config.load import load
from sestina.config.run import RunConfig
from sestina.core.errors import ConfigError, UserError
from sestina.data.config import FilesConfig
from sestina.rewards.config import FunctionConfig
from tests.unit.config.helpers import FILES, changed, composed, violations


def test_values_arrive_typed_and_frozen():
    config = load(changed("trainer.optimizer.learning_rate=1e-5", "rollout.temperature=1", "dir=runs/${name}-x"))
    assert isinstance(config, RunConfig)
    assert config.trainer.optimizer.learning_rate == 1e-5, "YAML's own reader takes 1e-5 for text"
    assert isinstance(config.rollout.temperature, float), "a whole number is a number"
    assert str(config.dir) == "runs/dev-x"
    with pytest.raises(AttributeError):
        config.seed = 2


def test_the_kind_chooses_the_section():
    config = load(changed("reward.path=grading:grade", argv=(*FILES[:2], "reward=function")))
    assert isinstance(config.data, FilesConfig)
    assert isinstance(config.reward, FunctionConfig)


def test_plain_dictionaries_are_loaded_too():
    tree = OmegaConf.to_container(changed(), resolve=True)
    assert load(tree) == load(changed())
    assert load(json.loads(json.dumps(tree))) == load(changed())


def test_a_key_with_a_default_may_be_left_out():
    sglang = changed(argv=("rollout/engine=sglang",))
    tree = OmegaConf.to_container(sglang, resolve=True)
    del tree["rollout"]["engine"]["extra_args"]
    assert load(tree) == load(sglang)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("rollout.chunk_tokens=0", "rollout.chunk_tokens: 0 is not allowed; a whole number of at least 1"),
        ("rollout.chunk_tokens=many", "rollout.chunk_tokens: 'many' is not allowed; a whole number of at least 1"),
        ("rollout.chunk_tokens='64'", "rollout.chunk_tokens: '64' is not allowed; a whole number of at least 1"),
        ("rollout.chunk_tokens=64.0", "rollout.chunk_tokens: 64.0 is not allowed; a whole number of at least 1"),
        ("rollout.chunk_tokens=[64]", "rollout.chunk_tokens: [64] is not allowed; a whole number of at least 1"),
        ("run.steps=true", "run.steps: true is not allowed; a whole number of at least 1"),
        ("run.checkpoint_every=-1", "run.checkpoint_every: -1 is not allowed; a whole number of at least 0"),
        ("async.max_staleness=-1", "async.max_staleness: -1 is not allowed; a whole number of at least 0"),
        ("seed=1.5", "seed: 1.5 is not allowed; a whole number from 0 to 2147483647"),
        ("seed=2147483648", "seed: 2147483648 is not allowed; a whole number from 0 to 2147483647"),
        ("seed={x: 1}", "seed: {'x': 1} is not allowed; a whole number from 0 to 2147483647"),
        ("seed={x: '${nowhere}'}", "seed: {'x': '${nowhere}'} is not allowed; a whole number from 0 to 2147483647"),
        ("algorithm.clip_low=1.5", "algorithm.clip_low: 1.5 is not allowed; a number from 0 to 1"),
        ("rollout.temperature=0", "rollout.temperature: 0 is not allowed; a number above 0"),
        ("rollout.temperature=.inf", "rollout.temperature: inf is not allowed; a number above 0"),
        ("weights.timeout_s=.nan", "weights.timeout_s: nan is not allowed; a number above 0"),
        ("trainer.optimizer.beta1=1", "trainer.optimizer.beta1: 1 is not allowed; a number of at least 0 and below 1"),
        ("trainer.device=gpu", "trainer.device: 'gpu' is not allowed; one of 'cpu', 'cuda'"),
        ("trainer.sequence_parallel=1", "trainer.sequence_parallel: 1 is not allowed; true or false"),
        ("run.mode=streamed", "run.mode: 'streamed' is not allowed; one of 'sync', 'pipelined', 'async'"),
        ("name=''", "name: '' is not allowed; text of at least 1 character"),
        ("name=7", "name: 7 is not allowed; text of at least 1 character"),
        ("model.path=''", "model.path: '' is not allowed; a path"),
        ("dir=null", "dir: null is not allowed; a path"),
        ("telemetry.wandb_group=3", "telemetry.wandb_group: 3 is not allowed; text or null"),
        (
            "telemetry.wandb=off",
            "telemetry.wandb: false is not allowed; one of 'off', 'offline', 'online'; in YAML, 'off' needs its quotes",
        ),
        ("model=3", "model: 3 is not allowed; a section with path, shape"),
        ("eval=null", "eval: null is not allowed; a section with every, num_prompts, temperature"),
        ("data=sums", "data: 'sums' is not allowed; a section whose kind is one of 'sums', 'files'"),
        ("data.kind=sum", "data.kind: 'sum' is not allowed; one of 'sums', 'files'"),
        ("data.kind=[sums]", "data.kind: ['sums'] is not allowed; one of 'sums', 'files'"),
        ("data.kind=???", "data.kind: must be given; one of 'sums', 'files'"),
        ("model.path=???", "model.path: must be given; a path"),
        ("rollout.engine=???", None),
        ("dir=${nme}", "dir: '${nme}' cannot be resolved: Interpolation key 'nme' not found; a path"),
        ("seed=${oc.env:SESTINA_NO_SUCH}", None),
    ],
)
def test_a_value_that_is_not_allowed_is_the_one_violation(change, line):
    (found,) = violations(change)
    assert found == line or (line is None and found.startswith(change.partition("=")[0] + ": "))


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ("rollout.chunk_tokns=3", "did you mean 'rollout.chunk_tokens'?"),
        ("rolout.chunk_tokens=3", "did you mean 'rollout.chunk_tokens'?"),
        ("rollout.chunk_tokens_=???", "did you mean 'rollout.chunk_tokens'?"),
        ("rollout.batch_size=3", "did you mean 'algorithm.batch_size'?"),
        ("batch_size=3", "did you mean 'algorithm.batch_size'?"),
        ("optimizer.learning_rate=1", "did you mean 'trainer.optimizer.learning_rate'?"),
        ("rollout.engine.max_runing=1", "did you mean 'rollout.engine.max_running'?"),
        ("eval.everi=${nowhere}", "did you mean 'eval.every'?"),
        ("model.zzz=1", "model has path, shape"),
        ("model.zzz={}", "model has path, shape"),
        (
            "data.path=x",
            "data of kind 'sums' has kind, num_prompts, num_eval_prompts, max_terms, tail, max_prompt_tokens",
        ),
        (
            "zzz=1",
            "the configuration has name, seed, dir, resume, run, async, data, model, rollout, draft, algorithm, "
            "reward, trainer, weights, eval, deadlines, telemetry, environment, "
            "cluster, sim",
        ),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_or_what_there_is(change, hint):
    key = change.partition("=")[0]
    assert violations(change) == [f"{key}: unknown key; {hint}"]


def test_keys_of_an_unknown_section_are_named_one_by_one():
    found = violations("rolout={chunk_tokens: 3, max_new_tokens: 4}")
    assert found == [
        "rolout.chunk_tokens: unknown key; did you mean 'rollout.chunk_tokens'?",
        "rolout.max_new_tokens: unknown key; did you mean 'rollout.max_new_tokens'?",
    ]


def test_with_an_unknown_kind_only_keys_of_no_kind_are_unknown():
    found = violations("data.kind=filez", "data.path=x", "data.pth=x")
    assert found == [
        "data.kind: 'filez' is not allowed; one of 'sums', 'files'",
        "data.pth: unknown key; did you mean 'data.path'?",
    ]


def test_required_values_of_the_groups_must_be_given():
    assert violations(argv=(*FILES[:2], "reward=judge")) == [
        "reward.url: must be given; text of at least 1 character",
        "reward.model: must be given; text of at least 1 character",
    ]
    assert violations(argv=("data=files", "model=checkpoint", "reward=function")) == [
        "data.path: must be given; a path",
        "model.path: must be given; a path",
        "reward.path: must be given; text of at least 1 character",
    ]


def test_missing_sections_and_what_leads_to_missing_values():
    config = changed("name=???")
    del config.trainer, config.data
    with pytest.raises(ConfigError) as error:
        load(config)
    found = error.value.violations
    assert found[0] == "name: must be given; text of at least 1 character"
    assert found[1].startswith("dir: 'runs/${name}' cannot be resolved: ")
    assert found[2] == "data: must be given; a section whose kind is one of 'sums', 'files'"
    assert found[3].startswith("trainer: must be given; a section with num_ranks, ")
    assert len(found) == 4


def test_everything_wrong_is_in_one_message():
    arguments = ("seed=1.5", "rollout.chunk_tokns=3", "batch_size=3", "model=checkpoint", "dir=${nme}")
    with pytest.raises(ConfigError) as error:
        load(composed(*arguments, "algorithm.batch_size=10", "data.kind=files", "trainer.tensor_parallel=2"))
    assert str(error.value).splitlines() == [
        "configuration: 13 problems",
        "  batch_size: unknown key; did you mean 'algorithm.batch_size'?",
        "  seed: 1.5 is not allowed; a whole number from 0 to 2147483647",
        "  dir: '${nme}' cannot be resolved: Interpolation key 'nme' not found; a path",
        *(
            f"  data.{key}: unknown key; data of kind 'files' has kind, path, eval_path, max_prompt_tokens"
            for key in ("num_prompts", "num_eval_prompts", "max_terms", "tail")
        ),
        "  data.path: must be given; a path",
        "  data.eval_path: must be given; a path or null",
        "  model.path: must be given; a path",
        "  rollout.chunk_tokns: unknown key; did you mean 'rollout.chunk_tokens'?",
        "  algorithm.batch_size: 10 is not allowed with algorithm.group_size 8; a multiple of 8",
        "  trainer.num_ranks: 1 is not allowed with trainer.tensor_parallel 2, trainer.pipeline_parallel 1; "
        "a multiple of 2, the ranks that hold one model",
    ]
    assert isinstance(error.value, UserError)
