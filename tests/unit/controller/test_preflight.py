import json
import sys

import pytest

from sestina.config.load import load
from sestina.controller.preflight import inspect, prepare
from sestina.core.errors import ConfigError
from sestina.data.sums import ALPHABET
from sestina.models.tokenizer import write_character_tokenizer
from sestina.models.weights import write_model
from tests.conftest import lively_weights, make_shape
from tests.unit.config.helpers import composed

QUICK = ("+exp=quickstart", "data.num_prompts=100")
SHAPE = make_shape(vocab_size=80, max_positions=1024)
PLANNED = [
    "++model.shape={architecture: Qwen2ForCausalLM, vocab_size: 80, hidden_size: 64, num_layers: 3, ffn_size: 96, "
    "max_positions: 1024, tied: true, attention: {kind: grouped, num_heads: 4, num_kv_heads: 2, head_size: 16, "
    "qkv_bias: true, qk_norm: false}}"
]


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    write_model(folder, SHAPE, lively_weights(SHAPE).items())
    write_character_tokenizer(folder, ALPHABET)
    return folder


def inspected(*words):
    return inspect(load(composed(*QUICK, *words)))


def test_a_run_in_order_has_its_materials(model):
    config = load(composed(*QUICK, f"model.path={model}"))
    found = inspect(config)
    assert (found.violations, found.materials.shape) == ([], SHAPE)
    assert found.config.model.shape == SHAPE.planned()
    assert len(prepare(config).prompts) == 100


def test_a_calibration_is_looked_for_before_anything_starts(model, tmp_path):
    found = inspected(f"model.path={model}", f"draft.calibration={tmp_path}/none.json")
    assert found.wrong == found.unsupported == ()
    assert [line.partition(": ")[0] for line in found.absent] == ["draft.calibration"]


def test_what_is_not_here_is_all_said_and_is_not_wrong(tmp_path):
    found = inspect(
        load(
            composed(
                "data=files", f"data.path={tmp_path}/a.jsonl", f"data.eval_path={tmp_path}/b.jsonl",
                "reward=function", "reward.path=nowhere_at_all:grade",
                "model=checkpoint", f"model.path={tmp_path}/model",
                "rollout/engine=sglang", f"rollout.engine.python={tmp_path}/python",
            )
        )
    )  # fmt: skip
    assert found.wrong == found.unsupported == ()
    assert [line.partition(": ")[0] for line in found.absent] == [
        "rollout.engine.python",
        "model.path",
        "reward.path",
        "data.path",
        "data.eval_path",
    ]
    assert found.materials is None


def test_a_shape_that_is_read_is_judged_as_one_that_is_given(model):
    found = inspected(f"model.path={model}", "trainer.tensor_parallel=3", "trainer.num_ranks=3")
    assert found.wrong == (
        "trainer.tensor_parallel: 3 is not allowed with model.shape.vocab_size 80; a divisor of 80",
        "trainer.tensor_parallel: 3 is not allowed with model.shape.attention.num_heads 4; a divisor of 4",
        "trainer.tensor_parallel: 3 is not allowed with model.shape.attention.num_kv_heads 2; a divisor of 2",
    )


def test_a_model_that_is_not_as_planned_is_refused(model):
    path = f"model.path={model}"
    assert inspected(path, *PLANNED).violations == []
    other = [PLANNED[0].replace("ffn_size: 96", "ffn_size: 98").replace("tied: true", "tied: false")]
    assert inspected(path, *other).wrong == (
        f"model.shape.ffn_size: 98 is not allowed with model.path {model}, which has 96",
        f"model.shape.tied: false is not allowed with model.path {model}, which has true",
    )


def test_everything_wrong_with_files_comes_together(model):
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] |= {f"extra{i}": 70 + i for i in range(30)}
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    (model / "model.safetensors").write_bytes(b"short")
    with pytest.raises(ConfigError) as error:
        prepare(
            load(
                composed(
                    *QUICK,
                    f"model.path={model}",
                    "reward=function",
                    "reward.path=tests.integration.rewards:evn",
                    "rollout.max_new_tokens=900",
                    "trainer.tensor_parallel=2",
                    "trainer.num_ranks=2",
                )
            )
        )
    text = str(error.value)
    assert "truncated or not safetensors" in text
    assert "the tokenizer has 100 tokens, the model's vocabulary 80" in text
    assert "did you mean 'even'?" in text
    assert "rollout.max_new_tokens: 900 is not allowed with data.max_prompt_tokens 128" in text


def test_a_pool_that_this_machine_has_no_room_for_is_refused(model, tmp_path):
    pool = ("rollout/kv_pool=local", f"rollout.kv_pool.dram_bytes={1 << 60}", f"model.path={model}")
    [line] = inspect(load(composed(*QUICK, *pool))).violations
    assert line.startswith(f"rollout.kv_pool.dram_bytes: {1 << 60} is not allowed; at most ")
    assert line.endswith(", which is what /dev/shm has free")
    (tmp_path / "file").touch()
    disk = ("rollout/kv_pool=local", "rollout.kv_pool.ssd_bytes=1", f"rollout.kv_pool.ssd_dir={tmp_path}/absent")
    [line] = inspect(load(composed(*QUICK, *disk, f"model.path={model}"))).violations
    assert line == f"rollout.kv_pool.ssd_dir: '{tmp_path}/absent' is not a folder that can be written"


def test_a_store_whose_package_is_missing_is_refused(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "mooncake.store", None)
    [line] = inspect(load(composed(*QUICK, "rollout/kv_pool=mooncake", f"model.path={model}"))).violations
    assert line.startswith("rollout.kv_pool.kind 'mooncake' needs the package mooncake (")
    assert "`pip install mooncake-transfer-engine-non-cuda==" in line


def test_a_pool_of_files_is_not_carried_by_sglang(model, tmp_path):
    other = ("rollout/kv_pool=local", "rollout/engine=sglang", f"model.path={model}")
    found = inspect(load(composed(*QUICK, *other, f"rollout.engine.python={tmp_path}/python")))
    assert found.unsupported == (
        "rollout.kv_pool.kind: 'local' is not carried by rollout.engine.kind 'sglang'; 'mooncake' is",
    )


def test_servers_share_a_store_where_they_do_not_draft(model, tmp_path, monkeypatch):
    """Only they need its package, if somebody else's master is named."""
    monkeypatch.setitem(sys.modules, "mooncake.store", None)
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    pooled = ("rollout/kv_pool=mooncake", "rollout/engine=sglang", f"rollout.engine.python={python}")
    named = (*pooled, "rollout.kv_pool.master=node:5", f"model.path={model}")
    assert inspect(load(composed(*QUICK, *named))).violations == []
    assert inspect(load(composed(*QUICK, *named, "draft=grouped"))).unsupported == (
        "rollout.kv_pool.kind: 'mooncake' is not carried by rollout.engine.kind 'sglang' with draft.source 'grouped'; "
        "'none' is",
    )
    [line] = inspect(load(composed(*QUICK, *pooled, f"model.path={model}"))).violations
    assert line.startswith("rollout.kv_pool.kind 'mooncake' needs the package mooncake (")


@pytest.mark.parametrize(
    ("engine", "device", "said"),
    [
        ("sglang", "cpu", ()),
        ("sglang_cuda", "cuda", ("draft.source: 'grouped' is not carried by rollout.engine.kind 'sglang' on",)),
        ("torch", "cpu", ()),
    ],
)
def test_drafts_are_carried_where_they_were_verified(model, engine, device, said):
    found = inspected(f"rollout/engine={engine}", f"trainer.device={device}", f"model.path={model}", "draft=grouped")
    drafts = [line for line in found.unsupported if line.startswith("draft.")]
    assert len(drafts) == len(said)
    assert all(line.startswith(start) for line, start in zip(drafts, said, strict=True))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        *(
            (
                ("environment=calculator", *others),
                f"environment.kind: 'calculator' is not carried {where}; 'none' is",
            )
            for others, where in (
                (("rollout/engine=sglang",), "by rollout.engine.kind 'sglang'"),
                (("run.mode=async",), "by run.mode 'async'"),
                (("run.mode=pipelined",), "by run.mode 'pipelined'"),
                (("sim=emulated",), "by a simulation"),
                (("sim=simulated",), "by a simulation"),
                (("rollout.forced_lengths_from=runs/a",), "with rollout.forced_lengths_from"),
                (("draft=grouped", "draft.servers=1"), "with draft.servers"),
            )
        ),
        (
            ("run.mode=async", "draft=grouped", "draft.servers=1"),
            "draft.servers: 1 is not carried by run.mode 'async'; 0 is",
        ),
        (
            ("run.mode=async", "rollout/kv_pool=local"),
            "rollout.kv_pool.kind: 'local' is not carried by run.mode 'async'; 'none' is",
        ),
        (
            ("sim=emulated", "draft=history"),
            "draft.source: 'history' is not carried by an emulation; a source without 'history' is",
        ),
        (
            ("run.mode=pipelined", "draft=grouped", "draft.servers=1"),
            "draft.servers: 1 is not carried by run.mode 'pipelined'; 0 is",
        ),
        (
            ("run.mode=pipelined", "rollout=histopipe", "rollout/kv_pool=local"),
            "rollout.kv_pool.kind: 'local' is not carried by run.mode 'pipelined'; 'none' is",
        ),
        (
            ("sim=emulated", "rollout/kv_pool=mooncake"),
            "rollout.kv_pool.kind: 'mooncake' is not carried by an emulation; 'local' is",
        ),
        (
            ("cluster=cpu", "rollout/kv_pool=mooncake"),
            "rollout.kv_pool.master: null is not carried by jobs; host:port of one that their nodes reach is",
        ),
        *(
            (("rollout.over_issue=1.5", *changes), f"{said} with rollout.over_issue above 1; {instead} is")
            for changes, said, instead in (
                (("draft=grouped", "draft.servers=1"), "draft.servers: 1 is not carried", "0"),
                (("rollout/kv_pool=local",), "rollout.kv_pool.kind: 'local' is not carried", "'none'"),
                (("environment=calculator",), "environment.kind: 'calculator' is not carried", "'none'"),
            )
        ),
        (
            ("rollout.over_issue=1.5", "rollout.forced_lengths_from=runs/other"),
            "rollout.over_issue: 1.5 is not carried with recorded lengths, which are of a batch's groups alone; 1 is",
        ),
        (
            ("run.mode=async", "async.overdue=drop", "rollout.forced_lengths_from=runs/other"),
            "async.overdue: 'drop' is not carried with rollout.forced_lengths_from, which lacks what takes a group's "
            "place; 'wait' is",
        ),
        (("sim=emulated", "rollout.over_issue=1.5"), "rollout.over_issue: 1.5 is not carried by simulations; 1 is"),
        (
            ("rollout/engine=sglang", "draft=grouped", "draft.servers=2"),
            "draft.servers: 2 is not carried by rollout.engine.kind 'sglang'; 0 is",
        ),
    ],
)
def test_what_nobody_has_brought_together_is_refused(model, overrides, said):
    assert said in inspected(*overrides, f"model.path={model}").unsupported


def test_what_ends_a_turn_is_looked_up_in_the_models_tokenizer(model):
    calculator = ("environment=calculator", f"model.path={model}")
    config = load(composed(*QUICK, *calculator))
    assert prepare(config).turn_token == ALPHABET.index("=") + 3
    [line] = inspected(*calculator, "environment.turn_end='++'").wrong
    assert line == "environment.turn_end: '++' is 2 tokens of model.path; it must be one other token"
    tool = ("environment=tool", "environment.turn_end='+'", "environment.path=nowhere_at_all:f", calculator[1])
    [line] = inspected(*tool).absent
    assert line.startswith("environment.path: 'nowhere_at_all:f': module 'nowhere_at_all' not found")
