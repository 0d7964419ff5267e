import json

import pytest
import torch
from safetensors.torch import save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from sestina.core.errors import ModelError
from sestina.models.shape import read_shape
from sestina.models.weights import read_weights, write_model
from tests.conftest import lively_weights, make_shape


@pytest.mark.parametrize("tied", [True, False])
def test_transformers_reads_what_is_written_and_the_reverse(tmp_path, tied):
    shape = make_shape(tied=tied)
    weights = lively_weights(shape)
    write_model(tmp_path / "ours", shape, weights.items())
    model = Qwen2ForCausalLM.from_pretrained(tmp_path / "ours", dtype=torch.float32)
    model.save_pretrained(tmp_path / "theirs")
    assert read_shape(tmp_path / "theirs") == read_shape(tmp_path / "ours") == shape
    again = read_weights(tmp_path / "theirs", shape)
    assert again.keys() == weights.keys()
    assert all(torch.equal(again[name], weights[name]) for name in weights)


def test_sharded_checkpoints_are_read(tmp_path):
    config = Qwen2Config(
        vocab_size=61, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=96, tie_word_embeddings=False,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    weights = read_weights(tmp_path, read_shape(tmp_path))
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def written(tmp_path):
    shape = make_shape()
    write_model(tmp_path, shape, lively_weights(shape).items())
    return shape


def test_missing_files_are_named(tmp_path):
    with pytest.raises(ModelError, match=r"config.json: no such file"):
        read_shape(tmp_path)
    shape = written(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model.safetensors: no such file"):
        read_weights(tmp_path, shape)


def test_a_truncated_file_is_named(tmp_path):
    shape = written(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ModelError, match=r"model.safetensors: truncated or not safetensors"):
        read_weights(tmp_path, shape)


def test_tensors_must_be_exactly_the_models(tmp_path):
    shape = written(tmp_path)
    weights = lively_weights(shape)
    del weights["model.norm.weight"]
    weights["extra"] = torch.zeros(1)
    weights["model.embed_tokens.weight"] = torch.zeros(60, 64)
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ModelError) as error:
        read_weights(tmp_path, shape)
    for part in ("extra is not part", "model.norm.weight is missing", "has shape [60, 64], config.json says [61, 64]"):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "architectures is"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope type is 'yarn'"),
        ({"use_sliding_window": True}, "use_sliding_window is true"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"vocab_size": None}, "vocab_size"),
    ],
)
def test_unsupported_models_are_refused(tmp_path, change, message):
    written(tmp_path)
    path = tmp_path / "config.json"
    config = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    with pytest.raises(ModelError, match=message):
        read_shape(tmp_path)


def test_config_that_is_not_json(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="not JSON"):
        read_shape(tmp_path)
