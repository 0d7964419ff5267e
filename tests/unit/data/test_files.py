import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sestina.core.errors import DataError
from sestina.data.jsonl import read_jsonl
from sestina.data.parquet import read_parquet
from sestina.data.prompt_set import encode, read_file
from sestina.data.sums import ALPHABET
from sestina.models.tokenizer import Tokenizer, write_character_tokenizer


def write(path, *lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_jsonl_keeps_everything(tmp_path):
    chat = [{"role": "user", "content": "hello"}]
    path = write(
        tmp_path / "a.jsonl",
        {"prompt": "1+1=", "label": "2", "id": 7, "meta": {"level": 3}, "source": "book"},
        "",
        {"prompt": chat, "label": {"x": 1}},
    )
    first, second = read_jsonl(path)
    assert (first.id, first.prompt, first.label, first.meta) == ("7", "1+1=", "2", {"level": 3, "source": "book"})
    assert (second.id, second.prompt, second.label, second.meta) == ("3", (chat[0],), {"x": 1}, {})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"prompt": "a"', "not JSON"),
        ("[1]", "expected an object, found list"),
        ({"prompt": "a", "lable": "b"}, r"key 'label' is missing; the line has \['lable', 'prompt'\]"),
        ({"prompt": "", "label": "b"}, "'prompt' is empty"),
        ({"prompt": 3, "label": "b"}, "must be text or a list of messages, found int"),
        ({"prompt": [{"content": "x"}], "label": "b"}, "has no 'role'"),
        ({"prompt": [{"role": "user", "content": None}], "label": "b"}, "has no text 'content'"),
        ({"prompt": "a", "label": "b", "meta": 3}, "'meta' must be an object"),
        ({"prompt": "a", "label": "b", "meta": {"k": 1}, "k": 2}, "'k' stands both on the line and in 'meta'"),
        ({"prompt": "a", "label": "b", "id": "1"}, "id '1' stands already in .*a.jsonl:1"),
    ],
)
def test_a_bad_line_is_named_with_file_line_and_reason(tmp_path, line, reason):
    path = write(tmp_path / "a.jsonl", {"prompt": "fine", "label": "x"}, line)
    with pytest.raises(DataError, match=f"a.jsonl:2: .*{reason}"):
        read_jsonl(path)


def test_all_bad_lines_are_in_one_message(tmp_path):
    path = write(tmp_path / "a.jsonl", *["{"] * 14)
    with pytest.raises(DataError) as error:
        read_jsonl(path)
    assert str(error.value).count("not JSON") == 10
    assert "and 4 more bad lines" in str(error.value)


def test_empty_missing_and_unknown_files(tmp_path):
    with pytest.raises(DataError, match="holds no prompt"):
        read_jsonl(write(tmp_path / "a.jsonl"))
    for reader, name in [(read_jsonl, "b.jsonl"), (read_parquet, "b.parquet")]:
        with pytest.raises(DataError, match=rf"{name}: No such file|{name}: no such file"):
            reader(tmp_path / name)
    with pytest.raises(DataError, match=r"suffix '.csv' is not one of"):
        read_file(tmp_path / "a.csv")
    (tmp_path / "c.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="not UTF-8"):
        read_jsonl(tmp_path / "c.jsonl")


def verl_rows():
    return [
        {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": f"question {i}"}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(i)},
            "extra_info": {"index": i, "split": "train"},
        }
        for i in range(3)
    ]


def parquet(path, rows):
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_parquet_as_verl_writes_it(tmp_path):
    prompts = read_file(parquet(tmp_path / "a.parquet", verl_rows()))
    assert [p.id for p in prompts] == ["0", "1", "2"]
    assert prompts[2].prompt == ({"role": "user", "content": "question 2"},)
    assert prompts[2].label == "2"
    extra = {"index": 2, "split": "train"}
    assert prompts[2].meta == {"data_source": "openai/gsm8k", "ability": "math", "extra_info": extra}


def test_bad_parquet_is_named(tmp_path):
    rows = verl_rows()
    rows[1]["reward_model"] = {"style": "rule", "ground_truth": None}
    rows[2]["extra_info"] = rows[0]["extra_info"]
    with pytest.raises(DataError) as error:
        read_parquet(parquet(tmp_path / "a.parquet", rows))
    assert "a.parquet:2: 'reward_model' has no 'ground_truth'" in str(error.value)
    assert "a.parquet:3: id '0' stands already" in str(error.value)
    with pytest.raises(DataError, match="column 'reward_model' is missing"):
        read_parquet(parquet(tmp_path / "b.parquet", [{"data_source": "x", "prompt": "y"}]))
    (tmp_path / "c.parquet").write_text("no")
    with pytest.raises(DataError, match="not a Parquet file"):
        read_parquet(tmp_path / "c.parquet")
    pq.write_table(pa.Table.from_pylist(verl_rows()).slice(0, 0), tmp_path / "d.parquet")
    with pytest.raises(DataError, match="holds no prompt"):
        read_parquet(tmp_path / "d.parquet")


@pytest.fixture
def tokenizer(tmp_path):
    write_character_tokenizer(tmp_path / "model", ALPHABET)
    return Tokenizer(tmp_path / "model", model_vocab_size=80)


def test_prompts_are_encoded_and_overlong_ones_named(tmp_path, tokenizer):
    raw = read_jsonl(write(tmp_path / "a.jsonl", *[{"prompt": "1+" * n + "1=", "label": n} for n in range(4)]))
    prompts = encode(raw, tokenizer, max_prompt_tokens=8)
    assert [len(p.tokens) for p in prompts] == [2, 4, 6, 8]
    assert [p.label for p in prompts] == [0, 1, 2, 3]
    with pytest.raises(DataError, match=r"a.jsonl:4: prompt '4' has 8 tokens; data.max_prompt_tokens allows 1 to 7"):
        encode(raw, tokenizer, max_prompt_tokens=7)


def test_text_outside_the_tokenizer_and_chats_without_a_template_are_named(tmp_path, tokenizer):
    lines = [{"prompt": "1 1", "label": "x"}, {"prompt": [{"role": "user", "content": "1"}], "label": "x"}]
    with pytest.raises(DataError) as error:
        encode(read_jsonl(write(tmp_path / "a.jsonl", *lines)), tokenizer, max_prompt_tokens=8)
    assert "a.jsonl:1: " in str(error.value)
    assert "does not know ' '" in str(error.value)
    assert "has no chat_template" in str(error.value)
