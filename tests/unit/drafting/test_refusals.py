"""Bad input is refused by a typed error, and nothing has changed then."""

import numpy as np
import pytest

from sestina.drafting.drafts import DraftBuffers
from sestina.drafting.errors import BufferTooSmallError, DraftError, ExistsError, NotFoundError, OutOfRangeError
from sestina.drafting.index import DraftSettings
from tests.unit.drafting.helpers import append, draft, index_of, tokens


@pytest.fixture
def index():
    index = index_of(vocab_size=10)
    index.start_group(1, tokens(1, 2))
    return index


@pytest.fixture
def handle(index):
    return index.start_request(1, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab_size": 0}, "vocab_size 0: must be 1 to 16777216"),
        ({"vocab_size": 1 << 25}, "vocab_size"),
        ({"depth": 1}, "depth 1: must be 2 to 255"),
        ({"depth": 256}, "depth 256"),
        ({"memory_limit_bytes": 0}, "memory_limit_bytes 0"),
        ({"first_epoch": -1}, "first_epoch -1"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(OutOfRangeError, match=message):
        index_of(**settings)


@pytest.mark.parametrize("token", [-1, 10, 2**31 - 1, -(2**31)])
def test_tokens_out_of_the_vocabulary(index, handle, token):
    with pytest.raises(OutOfRangeError, match=rf"token {token}: must be 0 to 9"):
        append(index, handle, 0, [3, token])
    with pytest.raises(OutOfRangeError, match="token"):
        index.start_group(2, tokens(token))
    with pytest.raises(OutOfRangeError, match="token"):
        index.count(1, tokens(token))
    assert (index.num_tokens(1), index.groups) == (2, [1])


def test_groups_and_requests_that_are_not_there(index, handle):
    calls = [
        lambda: index.drop_group(2),
        lambda: index.start_request(2, 0),
        lambda: index.fetch_since(2, 0),
        lambda: index.num_tokens(2),
        lambda: index.count(2, tokens(1)),
        lambda: index.find_request(1, 5),
    ]
    for call in calls:
        with pytest.raises(NotFoundError, match="was not started, or was dropped or evicted|was never started"):
            call()
    for wrong in (handle + 1, handle + (1 << 16), handle + (1 << 36), -1, 2**63 - 1, handle - 1):
        for call in (index.stop_request, lambda h: append(index, h, 0, [1]), lambda h: draft(index, h)):
            with pytest.raises(NotFoundError):
                call(wrong)


def test_what_was_stopped_or_dropped_is_gone(index, handle):
    index.stop_request(handle)
    for call in (index.stop_request, lambda h: append(index, h, 0, [1]), lambda h: draft(index, h)):
        with pytest.raises(NotFoundError, match="was stopped"):
            call(handle)
    index.drop_group(1)
    index.start_group(1, tokens())
    index.start_request(1, 0)
    with pytest.raises(NotFoundError, match="its group was dropped"):
        append(index, handle, 0, [1])


def test_what_was_started_before(index, handle):
    with pytest.raises(ExistsError, match="group 1: was started before"):
        index.start_group(1, tokens())
    with pytest.raises(ExistsError, match="group 1: request 0 was started before"):
        index.start_request(1, 0)
    index.stop_request(handle)
    with pytest.raises(ExistsError):
        index.start_request(1, 0)


def test_numbers_out_of_range(index, handle):
    for call in (
        lambda: index.start_group(-1, tokens()),
        lambda: index.start_request(1, -1),
        lambda: index.start_request(1, 9, weight=-1),
        lambda: index.start_request(1, 9, weight=1 << 21),
        lambda: index.fetch_since(1, -1),
        lambda: index.count(1, tokens()),
        lambda: index.count(1, tokens(1, 1, 1, 1, 1)),
        lambda: draft(index, handle, max_tokens=-1),
        lambda: draft(index, handle, max_tokens=65),
        lambda: draft(index, handle, top_k=0),
        lambda: draft(index, handle, top_k=65),
        lambda: draft(index, handle, own_weight=-1),
        lambda: draft(index, handle, min_match=0),
        lambda: draft(index, handle, threads=0),
        lambda: draft(index, handle, min_token_prob=-0.1),
        lambda: draft(index, handle, min_token_prob=float("nan")),
    ):
        with pytest.raises(OutOfRangeError, match=r"must|between"):
            call()


def test_batches_whose_arrays_do_not_fit(index, handle):
    one, zero = np.array([handle]), np.array([0])
    bad = [
        (one, np.array([0, 0]), np.array([0, 1]), tokens(1)),
        (one, zero, np.array([0]), tokens(1)),
        (one, zero, np.array([0, 2]), tokens(1)),
        (one, zero, np.array([1, 1]), tokens(1)),
        (np.array([handle, handle]), np.array([0, 0]), np.array([0, 5, 1]), tokens(1)),
        (np.array([handle, handle]), np.array([0, 0]), np.array([0, 1, 2]), tokens(1, 2)),
        (one.reshape(1, 1), zero, np.array([0, 1]), tokens(1)),
    ]
    for arrays in bad:
        with pytest.raises(OutOfRangeError):
            index.append(*arrays)
    with pytest.raises(TypeError):
        index.append(one, zero, np.array([0, 1]), np.array([1.0]))
    assert index.num_tokens(1) == 2


def test_one_bad_row_appends_nothing(index, handle):
    other = index.start_request(1, 1)
    with pytest.raises(DraftError):
        index.append(np.array([handle, other]), np.array([0, 7]), np.array([0, 1, 2]), tokens(1, 1))
    assert index.num_tokens(1) == 2


def test_buffers_too_small(index, handle):
    handles, limits = np.array([handle, handle]), tokens(4, 4)
    for buffers in (DraftBuffers.for_batch(2, 7), DraftBuffers.for_batch(1, 8)):
        with pytest.raises(BufferTooSmallError, match="room for"):
            index.draft(handles, limits, DraftSettings(), buffers)
    assert index.draft(handles, limits, DraftSettings(), DraftBuffers.for_batch(2, 8)).bounds.tolist() == [0, 0, 0]
