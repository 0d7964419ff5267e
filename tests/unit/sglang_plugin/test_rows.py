"""What of the plugin needs no SGLang: who runs, and the stand-ins that drafts call."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sestina.core.ids import RequestId
from sestina.rollout.sglang.drafting import Whose, whose
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.suffix import SuffixSpeculator
from sestina.sglang_plugin.rows import OTHERS, Rows
from sestina.sglang_plugin.standins import assign_req_to_token_pool_cpu, copy_all_layer_kv_cache_cpu
from tests.unit.rollout.test_sglang_wire import CHUNK


def asked(rid, output=(9,), **whose):
    """As SGLang has it after prefill: prompt and earlier chunks, and what was drawn so far."""
    own = {"group": 3, "sample": 1, "prompt_tokens": 2, "max_new_tokens": 10} | whose
    return SimpleNamespace(
        rid=rid,
        origin_input_ids=[5, 6, 7],
        output_ids=list(output),
        kv=SimpleNamespace(req_pool_idx=4),
        sampling_params=SimpleNamespace(max_new_tokens=6, temperature=1.0, custom_params=own if whose != {} else None),
    )


@pytest.fixture
def left():
    return []


@pytest.fixture
def rows(left):
    return Rows(num_slots=3, max_context_tokens=16, leave=lambda job, finish: left.append((job, finish)))


def gain(rows, slot, count):
    none = np.zeros(count, np.float32)
    rows.table.extend(np.array([slot]), np.arange(count, dtype=np.int32), none, np.array([count]))


def test_a_chunk_arrives_whole():
    assert Whose(**whose(CHUNK)) == Whose(group=3, sample=1, prompt_tokens=2, max_new_tokens=10)
    assert Whose(**whose(dataclasses.replace(CHUNK, stop_at=7))).stop_at == 7


def test_who_is_new_gets_a_row_and_keeps_it(rows, left):
    a, b = asked("a", group=3), asked("b", group=8)
    [first] = rows.follow([a])
    second, again = rows.follow([b, a])
    assert again == first != second
    table = rows.table
    assert table.tokens[first, :4].tolist() == [5, 6, 7, 9]
    assert (table.length[first], table.computed[first], table.prompts[first], table.limit[first]) == (4, 3, 2, 9)
    assert (table.groups[second], table.samples[second], rows.pool[second]) == (8, 1, 4)
    assert not left


@pytest.mark.parametrize(
    ("gained", "stopped", "limit", "finish"),
    [(2, False, 10, "abort"), (5, False, 10, "chunk"), (5, False, 7, "length"), (2, True, 10, "stop")],
)
def test_who_ends_gives_the_row_back_with_all_of_the_text(rows, left, gained, stopped, limit, finish):
    [slot] = rows.follow([asked("a", max_new_tokens=limit)])
    gain(rows, slot, gained)
    rows.give_back("a", stopped=stopped)
    rows.give_back("a", stopped=stopped)
    [(job, said)] = left
    assert said == finish
    assert (job.request.id, job.known.tolist()) == (RequestId(3, 1), [5, 6, 7, 9, *range(gained)])
    assert rows.table.num_free == 3


def test_who_is_retracted_comes_back_as_another(rows, left):
    [slot] = rows.follow([asked("a", group=3)])
    before = rows.table.keys[slot]
    rows.follow([asked("b", group=4)])
    assert [(job.request.id.group, finish) for job, finish in left] == [(3, "abort")]
    _, again = rows.follow([asked("b", group=4), asked("a", (9, 8), group=3)])
    assert rows.table.keys[again] != before
    assert rows.table.length[again] == 5


def test_a_flush_frees_all_rows_and_tells_nobody(rows, left):
    rows.follow([asked("a", group=3), asked("b", group=4)])
    rows.forget()
    assert (rows.table.num_free, left) == (3, [])
    assert len(rows.follow([asked("a", group=3), asked("c", group=4)])) == 2


def test_requests_of_others_are_groups_of_their_own_that_can_be_drafted(rows):
    """As is one that comes a second time while the first still runs: the index has one place for each."""
    slots = rows.follow([asked("health"), asked("first", group=3), asked("second", group=3)])
    assert rows.table.groups[slots[1]] == 3
    assert len(set(rows.table.groups[slots].tolist())) == 3
    assert (rows.table.groups[slots[[0, 2]]] > OTHERS).all()
    draft = DraftConfig(
        source="grouped", length="fixed", toggle="always", guard=False, max_tokens=4, paths=1, min_token_prob=0.0
    )
    speculator = SuffixSpeculator(draft, vocab_size=20, num_slots=3)
    for slot in slots:
        speculator._text(RequestId(int(rows.table.groups[slot]), 0), np.array([5, 6], np.int32), np.zeros(0, np.int32))
    assert len(speculator._index.groups) == 3


def test_slots_are_written_where_each_request_begins():
    table = torch.zeros(3, 6, dtype=torch.int32)
    assign_req_to_token_pool_cpu(
        torch.tensor([2, 0]), table, torch.tensor([1, 4]), torch.tensor([4, 6]), torch.arange(10, 15), 6
    )
    assert table.tolist() == [[0, 0, 0, 0, 13, 14], [0] * 6, [0, 10, 11, 12, 0, 0]]


def test_rows_are_copied_all_at_once():
    """Each from what was there before: a path out of a tree overlaps itself."""
    buffers = [torch.arange(12.0).view(6, 2), torch.arange(18).view(6, 3)]
    expected = [buffer.clone() for buffer in buffers]
    for buffer in expected:
        buffer[[1, 2]] = buffer[[2, 4]].clone()
    addresses = torch.tensor([buffer.data_ptr() for buffer in buffers])
    widths = torch.tensor([buffer[0].nbytes for buffer in buffers])
    copy_all_layer_kv_cache_cpu(addresses, widths, torch.tensor([1, 2]), torch.tensor([2, 4]))
    for buffer, wanted in zip(buffers, expected, strict=True):
        assert torch.equal(buffer, wanted)
    copy_all_layer_kv_cache_cpu(
        addresses, widths, torch.tensor([], dtype=torch.int64), torch.tensor([], dtype=torch.int64)
    )
