"""Calibration of a real engine on a small model, its file, and what is refused."""

import dataclasses
import json

import pytest
import torch

from sestina.core.errors import AbsentError, ConfigError
from sestina.policies.drafting.calibration import VERSION, CalibratedOn, Calibration, StepPoint
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.serving import JoinPoint, ServingCost
from sestina.rollout.calibration.file import cost_for, engine_of, read_calibration, write_calibration
from sestina.rollout.calibration.grid import Cell, cells_of, joins_of
from sestina.rollout.calibration.passes import Passes
from sestina.rollout.calibration.products import flops_of, row_seconds
from sestina.rollout.config import TorchEngineConfig
from tests.conftest import lively_weights, make_shape
from tests.unit.rollout.helpers import make_engine

SHAPE = make_shape()
ENGINE = TorchEngineConfig(
    kind="torch", device="cpu", dtype="float32", kv_capacity_tokens=2048, max_running=16, max_step_tokens=64
)
COST = StepCost(
    weights_s=1e-3,
    kv_token_s=1e-7,
    row_s=1e-5,
    row_kv_s=1e-8,
    plain_sequence_s=1e-6,
    verify_sequence_s=1e-6,
    draft_token_s=1e-7,
)
SERVING = ServingCost(chunk_s=1e-5, text_token_s=0.0, join_s=1e-5, row_s=1e-5, row_kv_s=1e-8)
WRITTEN = Calibration(
    version=VERSION,
    engine=engine_of(SHAPE, ENGINE),
    taken=CalibratedOn(
        machine="a machine", accelerator=None, logical_cores=2, memory_gib=4.0, commit=None, date="2026-01-01T00:00:00Z"
    ),
    gemm_flops=1e9,
    cost=COST,
    serving=SERVING,
    residuals=(),
    left_out=(),
    points=(StepPoint(kind="plain", batch=1, sequence_tokens=64, length=0, seconds=1e-3, held_out=False),),
    joins=(
        JoinPoint(
            batch=1, sequence_tokens=64, chunks=4, text_tokens=24, cached_tokens=16, seconds=1e-3, held_out=False
        ),
    ),
)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "calibrations" / "mine.json"
    write_calibration(WRITTEN, path)
    return path


def test_a_file_reads_back_equal(path):
    assert read_calibration(path) == WRITTEN
    assert cost_for(path, SHAPE, ENGINE) == COST


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("version", 1, r"version 1 of the format, allowed is 4; `python launch/calibrate.py` takes another"),
        ("cost.row_s", -1e-5, r"cost.row_s: -1e-05, allowed is a number of seconds of at least 0"),
        ("serving.chunk_s", -1.0, r"serving.chunk_s: -1.0, allowed is a number of seconds of at least 0"),
        ("cost.row_s", "fast", r"cost.row_s: input should be a valid number"),
        ("cost.rows_s", 1.0, r"cost.rows_s: (unexpected keyword argument|extra inputs are not permitted)"),
        ("gemm_flops", None, r"gemm_flops: input should be a valid number"),
    ],
)
def test_what_is_no_calibration_is_refused(path, key, value, reason):
    tree = json.loads(path.read_text())
    *sections, name = key.split(".")
    inner = tree
    for section in sections:
        inner = inner[section]
    inner[name] = value
    path.write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match=rf"draft.calibration: {path}: {reason}"):
        read_calibration(path)


@pytest.mark.parametrize(
    ("text", "reason"), [("{", "not JSON"), ("[]", "version None of the format"), ("\xff", "not JSON")]
)
def test_a_file_of_something_else_is_refused(path, text, reason):
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=reason):
        read_calibration(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(
        AbsentError, match=r"absent.json: no such file or directory; `python launch/calibrate.py` writes"
    ):
        read_calibration(tmp_path / "absent.json")


def test_a_calibration_of_another_engine_is_refused(path):
    wider = make_shape(hidden_size=128, num_layers=4)
    with pytest.raises(
        ConfigError, match="taken with hidden_size 64, this run has 128; with num_layers 3, this run has 4"
    ):
        cost_for(path, wider, ENGINE)
    with pytest.raises(ConfigError, match="taken with dtype 'float32', this run has 'bfloat16'"):
        cost_for(path, SHAPE, dataclasses.replace(ENGINE, dtype="bfloat16"))


def test_an_engine_plans_with_the_cost_that_it_is_given():
    told = []

    class Told:
        def begin(self, cost):
            told.append(cost)

    engine = make_engine(SHAPE, speculator=Told(), cost=COST)
    engine.load_weights(0, lively_weights(SHAPE))
    assert told == [COST]


def test_the_grid_keeps_to_what_the_engine_holds():
    cells, left_out = cells_of(ENGINE, max_context_tokens=512)
    assert [cell.batch for cell in cells if cell.sequence_tokens == 64] == [1, 2, 4, 8]
    assert [cell.batch for cell in cells if cell.sequence_tokens == 256] == [1, 2, 4]
    assert {cell.batch: cell.lengths for cell in cells} == {**dict.fromkeys((1, 2, 4), (3, 7, 11, 15)), 8: (3, 7)}
    assert "batch 16 of 64 tokens: 3664 KV tokens, the engine holds 2048" in left_out
    assert "batch 8 of 64 tokens, 11 draft tokens: 96 rows, a step holds 64" in left_out


def test_a_batch_stays_whole_where_prefill_gets_few_rows():
    """The first responses decode for as long as the last prompts are prefilled beside them."""
    tight = dataclasses.replace(ENGINE, max_running=8, max_step_tokens=8, kv_capacity_tokens=8192)
    [cell] = [
        cell for cell in cells_of(tight, max_context_tokens=1024)[0] if (cell.batch, cell.sequence_tokens) == (8, 64)
    ]
    assert cell.room_tokens > 500
    assert Passes(tight, SHAPE, lively_weights(SHAPE), max_context_tokens=1024).plain_s(cell) > 0


def test_steps_of_the_engine_are_timed():
    passes = Passes(ENGINE, SHAPE, lively_weights(SHAPE), max_context_tokens=256)
    for batch in (1, 4):
        cell = Cell(batch=batch, sequence_tokens=64, room_tokens=128, lengths=(3, 7))
        assert passes.plain_s(cell) > 0
        for length in cell.lengths:
            assert min(passes.drafted_s(cell, length)) > 0


def test_chunks_that_join_are_timed_with_what_they_find():
    """Few tokens are computed of a text whose pages are cached; all chunks are in and out with one step."""
    cells, _ = cells_of(ENGINE, max_context_tokens=256)
    joins = joins_of(cells, ENGINE, max_context_tokens=256)
    assert {join.cell.batch for join in joins} == {1, 8}
    assert all(join.cell.batch + join.chunks * join.text_tokens <= ENGINE.max_step_tokens for join in joins)
    assert {join.text_tokens: join.cached_tokens for join in joins if join.cached} == {24: 16, 56: 48}
    passes = Passes(ENGINE, SHAPE, lively_weights(SHAPE), max_context_tokens=256)
    for join in joins:
        assert passes.joined_s(join) > 0
        found = [result.cached_tokens for result in passes.joined]
        assert found == [join.cached_tokens] * join.chunks


def test_products_are_counted_by_their_weights():
    weights = sum(w.numel() for n, w in lively_weights(SHAPE).items() if w.ndim > 1)
    assert flops_of(SHAPE) == 2 * weights
    assert row_seconds(SHAPE, torch.device("cpu"), torch.float32) > 0
