"""Records of responses, and what rewards weigh."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.core.errors import DataError
from sestina.drafting.history.answers import (
    REWARD_WEIGHT,
    Answers,
    from_record,
    is_whole,
    prompt_key,
    to_record,
    weights_of,
)

responses = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=40), max_size=6)
NAN = math.nan


@given(responses)
def test_a_record_reads_back_equal(texts):
    answers = Answers(
        responses=tuple(np.array(text, np.int32) for text in texts), weights=tuple(range(1, len(texts) + 1))
    )
    read = from_record(to_record(answers))
    assert [response.tolist() for response in read.responses] == texts
    assert read.weights == answers.weights


@given(st.data())
def test_no_damaged_record_is_read(data):
    record = bytearray(to_record(Answers(responses=(np.arange(30, dtype=np.int32),), weights=(3,))))
    at = data.draw(st.integers(0, len(record) - 1))
    record[at] ^= data.draw(st.integers(1, 255))
    assert not is_whole(bytes(record))
    with pytest.raises(DataError, match="another checksum"):
        from_record(bytes(record))


@pytest.mark.parametrize("raw", [b"", b"short", bytes(12), bytes(4000)])
def test_what_is_no_record_is_refused(raw):
    with pytest.raises(DataError, match="history record"):
        from_record(raw)


@pytest.mark.parametrize(
    ("rewards", "weights"),
    [
        ([0.0, 1.0], (1, 1 + REWARD_WEIGHT)),
        ([-1.0, 0.0, 1.0], (1, 1 + REWARD_WEIGHT // 2, 1 + REWARD_WEIGHT)),
        ([-3.0, -2.0], (1, 1 + REWARD_WEIGHT)),
        ([0.0, 0.0, 0.0], (1, 1, 1)),
        ([5.0], (1,)),
        ([NAN, 2.0, 4.0], (1, 1, 1 + REWARD_WEIGHT)),
        ([NAN, NAN], (1, 1)),
        ([], ()),
    ],
)
def test_only_differences_of_rewards_weigh(rewards, weights):
    assert weights_of(rewards) == weights


def test_prompts_of_the_same_tokens_have_the_same_key():
    one, other = np.array([1, 2, 3], np.int32), np.array([1, 2, 4], np.int32)
    assert prompt_key(one) == prompt_key(one.astype(np.int64)) != prompt_key(other)
