import json

import pytest

from sestina.core.errors import ModelError
from sestina.data.sums import ALPHABET
from sestina.models.tokenizer import Tokenizer, write_character_tokenizer

TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }}{{ m.content }};{% endfor %}{% if add_generation_prompt %}={% endif %}"
)


@pytest.fixture
def directory(tmp_path):
    write_character_tokenizer(tmp_path, ALPHABET)
    return tmp_path


def test_round_trip(directory):
    tokenizer = Tokenizer(directory, model_vocab_size=80)
    text = "k3l8?kl=l8+3=1;#1"
    tokens = tokenizer.encode(text)
    assert len(tokens) == len(text)
    assert tokenizer.decode(tokens) == text
    assert tokenizer.eos_id == 1


def test_a_tokenizer_larger_than_the_model_is_refused(directory):
    with pytest.raises(ModelError, match="the tokenizer has 70 tokens, the model's vocabulary 69"):
        Tokenizer(directory, model_vocab_size=69)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_missing_and_malformed_files_are_named(directory, name):
    (directory / name).write_text("{")
    with pytest.raises(ModelError, match=rf"{name}: not"):
        Tokenizer(directory, model_vocab_size=80)
    (directory / name).unlink()
    with pytest.raises(ModelError, match=rf"{name}: no such file"):
        Tokenizer(directory, model_vocab_size=80)


def test_an_unknown_end_token_is_refused(directory):
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))
    with pytest.raises(ModelError, match="eos_token is '<end>'"):
        Tokenizer(directory, model_vocab_size=80)


def test_chats_are_rendered_by_the_models_template(directory):
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": TEMPLATE}))
    tokenizer = Tokenizer(directory, model_vocab_size=80)
    messages = [{"role": "system", "content": "1"}, {"role": "user", "content": "2+2"}]
    assert tokenizer.render(messages) == "s1;u2+2;="
