"""The race and its figures, on a small model whose text can be drafted."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from sestina.bench.speculation import epoch, measure, subjects, ways_of
from sestina.bench.speculation.asked import requests_of
from sestina.bench.speculation.lengths import Stretched
from sestina.bench.speculation.race import MAX_CONTEXT_TOKENS, engine_of, race
from sestina.bench.speculation.subjects import BUILT_IN, CHAIN, SHAPE_60M, WHOLE, write_chain
from sestina.core.errors import RunError
from sestina.models.shape import read_shape
from sestina.models.weights import read_weights
from sestina.rollout.speculation.desk import DraftDesk
from tests.unit.bench.helpers import by_name

SMALL = dataclasses.replace(CHAIN, name="chain", batches=(1, 8))


@pytest.fixture
def small(monkeypatch):
    """The larger model's text from one of fewer layers."""
    monkeypatch.setattr(
        subjects, "SHAPE_60M", dataclasses.replace(SHAPE_60M, num_layers=1, hidden_size=128, ffn_size=128)
    )


def test_every_source_is_raced_always_and_adaptively():
    ways = ways_of(BUILT_IN.sources)
    assert list(ways) == ["none", "none, again"] + [
        f"{source}, {way}" for source in ("self", "grouped", "history", "quantized") for way in ("always", "adaptive")
    ]
    for way, draft in ways.items():
        assert draft.guard == (not way.endswith("always")), way
        assert draft.source == way.split(",")[0]
    assert ways["history, adaptive"].length == "aimd"
    assert (ways["quantized, always"].length, ways["quantized, adaptive"].length) == ("fixed", "ladder")


def test_lengths_are_forced_and_their_tail_is_heavy():
    lengths = [r.max_new_tokens for turn in range(40) for r in requests_of(CHAIN, 64, turn)]
    assert min(lengths) >= 4
    assert max(lengths) == CHAIN.lengths.most_tokens
    assert np.median(lengths) == pytest.approx(CHAIN.lengths.median_tokens, rel=0.2)
    assert np.mean(lengths) > 1.15 * np.median(lengths)
    assert len(requests_of(CHAIN, 1, 0)) == 4
    assert len({r.id for r in requests_of(BUILT_IN, 128, 0)}) == 512


@pytest.mark.parametrize("turn", range(WHOLE.turns))
def test_a_whole_rollout_has_groups_and_tail_of_a_published_one(turn):
    requests = requests_of(WHOLE, 64, turn)
    lengths = [r.max_new_tokens for r in requests]
    assert [len([r for r in requests if r.id.group == group]) for group in {r.id.group for r in requests}] == [16] * 4
    assert max(lengths) / np.mean(lengths) == pytest.approx(5.4, rel=0.02)
    assert np.mean(lengths) == pytest.approx(WHOLE.lengths.mean_tokens, rel=0.02)
    assert max(lengths) + len(requests[0].prompt) < MAX_CONTEXT_TOKENS
    assert np.median(lengths) < 0.9 * np.mean(lengths), "a few are long"


def test_of_a_whole_rollout_only_grouped_drafts_are_raced(small):
    subject = dataclasses.replace(
        WHOLE, name="whole", turns=1, lengths=Stretched(mean_tokens=12, longest_over_mean=5.4)
    )
    found = by_name(measure(lambda line: None, [subject]))
    assert found["whole, batch 64: grouped, adaptive over none, by CPU time, median"].must == ">= 1.3"
    assert not [name for name in found if "self" in name]


def test_figures_say_what_is_asked_of_which(small):
    lines = []
    found = by_name(measure(lines.append, [SMALL]))
    adaptive, over = "chain, batch 8: grouped, adaptive", "over none, by CPU time, median"
    assert found[f"{adaptive} {over}"].must == ">= 0.98"
    assert found[f"chain, batch 1: quantized, adaptive {over}"].must == ">= 0.98"
    assert found[f"chain, batch 8: grouped, always {over}"].must is None
    assert found["chain, batch 8: grouped, always, acceptance length"].value > 1.3
    assert found["chain, batch 1: history, always, acceptance length"].value > 1.3, "siblings have not said it yet"
    assert found["chain, batch 8: none"].value > 0
    assert [line.split(":")[0] for line in lines] == ["chain, batch 1", "chain, batch 8"]


def test_another_token_ends_the_race(small, tmp_path):
    model = write_chain(tmp_path / "one")
    way = ways_of(["grouped"])["grouped, always"]
    engines = {"none": engine_of(model, way, 8), "grouped, always": engine_of(model, way, 8)}
    requests = requests_of(SMALL, 8, 0)
    assert race(engines, requests)["none"].num_tokens == sum(r.max_new_tokens for r in requests)
    engines["grouped, always"].load_weights(1, spoilt(model))
    with pytest.raises(RunError, match="grouped, always: response g0/s"):
        race(engines, requests)


def test_histories_that_are_not_read_end_the_bench(small, tmp_path, monkeypatch):
    monkeypatch.setattr(epoch, "LIMIT_S", 0.05)
    model, desk = write_chain(tmp_path / "one"), DraftDesk()
    desk.take_history = lambda group, prompt, record: None
    before = engine_of(model, ways_of([])["none"], 8)
    with pytest.raises(RunError, match="0 of 1 histories were read in 0 s"):
        epoch.remember([desk], before, requests_of(SMALL, 8, 0))


def spoilt(model: Path):
    tensors = read_weights(model, read_shape(model))
    tensors["lm_head.weight"] = tensors["lm_head.weight"].flip(0)
    return tensors


def test_the_larger_model_has_60_million_parameters():
    assert SHAPE_60M.num_parameters == pytest.approx(60e6, rel=0.05)
