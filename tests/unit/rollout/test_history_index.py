"""Histories and those followed in them, without an engine: drafts are those of an index told the same."""

import dataclasses

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sestina.core.ids import RequestId
from sestina.core.noise import request_key
from sestina.core.records import ChunkRequest
from sestina.drafting.drafts import DraftBuffers
from sestina.drafting.history.answers import Answers, to_record
from sestina.drafting.index import SuffixIndex
from sestina.drafting.settings import DraftSettings, IndexSettings
from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.history import HistoryDrafts
from sestina.rollout.speculation.sources import _better, _merged
from sestina.rollout.speculation.tally import Tally
from tests.unit.drafting.helpers import append

NOTHING = np.zeros(0, np.int32)
PROMPT = np.array([9, 8], np.int32)
INDEX = IndexSettings(vocab_size=10, depth=5)
ASKED = DraftSettings(min_token_prob=0.0, own_weight=0, min_match=2)
texts = st.lists(st.integers(0, 3), max_size=30)


class Decoding:
    """One row of a slot table, and the history that follows it."""

    def __init__(self, answers, weights):
        self.history = HistoryDrafts(INDEX, num_slots=2, tally=Tally(("history",), max_length=8))
        record = to_record(Answers(responses=answers, weights=weights))
        self.history.take(7, PROMPT, record)
        self.history.settle()
        self.table = SlotTable(num_slots=2, max_context_tokens=64)
        self.request = ChunkRequest(
            id=RequestId(7, 0), prompt=PROMPT, generated=NOTHING, max_tokens=60, max_new_tokens=60, temperature=1.0
        )
        self.key = request_key(1, self.request.id)
        self.enter(PROMPT)

    def enter(self, known):
        self.slot = self.table.take(self.request, known, limit=64, key=self.key)
        self.rows = np.array([self.slot], np.int32)

    def say(self, text):
        for token in text:
            self.table.append(self.rows, np.array([token], np.int32), np.zeros(1, np.float32))

    def leave(self):
        known = self.table.tokens[self.slot, : self.table.length[self.slot]].copy()
        self.history.leave(self.key)
        self.table.give_back(self.slot)
        return known

    def draft(self):
        self.history.follow(self.table, self.rows)
        return self.history.draft(self.rows, np.array([8], np.int32), ASKED).draft(0)


def reference(answers, weights, streams):
    """Draft for the last of the streams from an index in which they were said after the answers."""
    index = SuffixIndex(INDEX)
    index.start_group(0, PROMPT)
    for number, (answer, weight) in enumerate(zip(answers, weights, strict=True)):
        append(index, index.start_request(0, number, weight=weight), 0, answer)
    for number, said in enumerate(streams):
        handle = index.start_request(0, 99 + number, weight=0)
        append(index, handle, 0, said)
    return index.draft(np.array([handle]), np.array([8], np.int32), ASKED).draft(0)


@settings(deadline=None, max_examples=50)
@example([([0, 1, 0, 1], 1)], [[0, 1, 0, 0, 1, 0]], False)  # an index that saw all matches three of them
@example([([1, 0, 1], 1)], [[1, 0, 0, 0, 1, 0]], True)
@given(
    st.lists(st.tuples(texts, st.integers(1, 5)), min_size=1, max_size=3), st.lists(texts, max_size=4), st.booleans()
)
def test_drafts_are_those_of_an_index_that_was_told_as_much(answers, parts, leaves):
    """Of what is said between two drafts, or by a row that comes back: as many tokens as the index is deep."""
    responses = tuple(np.array(text, np.int32) for text, _ in answers)
    weights = tuple(weight for _, weight in answers)
    decoding, said, streams = Decoding(responses, weights), [], [[]]
    for part in parts:
        part = part[: 60 - len(said)]
        decoding.say(part)
        said += part
        streams[-1] += (part if streams[-1] else said)[-INDEX.depth :]
        found, expected = decoding.draft(), reference(responses, weights, streams)
        assert found.token_ids.tolist() == expected.token_ids.tolist()
        assert found.match_len == expected.match_len
        if leaves:
            decoding.enter(decoding.leave())
            streams.append([])
    assert decoding.history._index.check_integrity() == ""


def test_rows_without_a_history_draft_nothing():
    decoding = Decoding((np.array([1, 2, 3], np.int32),), (1,))
    other = dataclasses.replace(decoding.request, id=RequestId(8, 0))
    slot = decoding.table.take(other, PROMPT, limit=64, key=request_key(1, other.id))
    rows = np.array([slot, decoding.slot], np.int32)
    decoding.history.follow(decoding.table, rows)
    found = decoding.history.draft(rows, np.array([8, 8], np.int32), ASKED)
    assert found.bounds.tolist() == [0, 0, 3]
    assert found.draft(1).token_ids.tolist() == [1, 2, 3]
    assert found.match_lens.tolist() == [0, 2]


def drafts(*rows):
    tokens = [token for row, _ in rows for token in row]
    return DraftBuffers(
        token_ids=np.array([*tokens, 99], np.int32),
        parents=np.array([i - 1 for row, _ in rows for i in range(len(row))] + [99], np.int32),
        probs=np.ones(len(tokens) + 1, np.float32),
        bounds=np.append(0, np.cumsum([len(row) for row, _ in rows])),
        scores=np.array([len(row) for row, _ in rows], np.float32),
        match_lens=np.array([length for _, length in rows], np.int32),
    )


@pytest.mark.parametrize(
    "taken", [(False, True, False), (True, True, True), (False, False, False), (True, False, True)]
)
def test_merged_rows_are_whole(taken):
    first = drafts(([1, 2], 3), ([], 0), ([3], 5))
    second = drafts(([4], 2), ([5, 6, 7], 4), ([], 0))
    merged = _merged(first, second, np.array(taken))
    for row, of_second in enumerate(taken):
        expected = (second if of_second else first).draft(row)
        found = merged.draft(row)
        assert found.token_ids.tolist() == expected.token_ids.tolist()
        assert found.parents.tolist() == expected.parents.tolist()
        assert (found.score, found.match_len) == (expected.score, expected.match_len)


def test_the_longer_match_is_better_and_of_equal_ones_the_higher_score():
    one = drafts(([1], 5), ([1, 2, 3], 2), ([1, 2], 3), ([1], 3))
    other = drafts(([1, 2], 4), ([1], 3), ([1], 3), ([1], 3))
    assert _better(one, other).tolist() == [True, False, True, False]
