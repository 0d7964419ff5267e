import hashlib
import shutil

import numpy as np
import pytest

from sestina.bench.drafting.acceptance import TREE, Case, acceptance
from sestina.bench.drafting.batches import appends, batch_of_64
from sestina.bench.drafting.cold import cold
from sestina.bench.drafting.growth import growth
from sestina.bench.drafting.peer import accepted
from sestina.bench.drafting.sides import Rounds
from sestina.bench.drafting.store import make_store
from sestina.bench.drafting.workload import GroupText, Workload
from tests.unit.bench.helpers import by_name

STREAMS = {
    1: "ec4f3c0dd336890322feaef07431e8fc2a31ee2b2661390613596c9463817d7e",
    2: "7cefcb25f6efd8152179318e38000efd4143a8c75fbf75f843e41ac76fbc4b35",
}


def silent(line):
    return line


@pytest.fixture(scope="module")
def workload():
    return Workload(1)


@pytest.fixture(scope="module")
def groups(workload):
    whole = [workload.group(number) for number in range(4)]
    return [GroupText(prompt=g.prompt, responses=[text[:200] for text in g.responses]) for g in whole]


@pytest.mark.parametrize("seed", STREAMS)
def test_the_workload_is_the_same_wherever_it_is_made(seed):
    workload, digest = Workload(seed), hashlib.sha256()
    for number in range(6):
        group = workload.group(number)
        for text in (group.prompt, *group.responses):
            digest.update(text.tobytes())
    assert digest.hexdigest() == STREAMS[seed]


def test_a_response_depends_on_its_number_alone(workload):
    whole, late = workload.group(2), workload.group(2, first=5, count=2, most=50)
    assert [text.tolist() for text in late.responses] == [text[:50].tolist() for text in whole.responses[5:7]]


def test_siblings_lengthen_what_is_accepted_and_trees_do_more(groups):
    cases = [Case(siblings=0), Case(siblings=15), Case(siblings=15, asked=TREE)]
    found = by_name(acceptance(1, groups, None, silent, cases))
    lengths = [found[f"acceptance, seed 1, {case.name}: tokens per step"].value for case in cases]
    assert 1 < lengths[0] < lengths[1] < lengths[2]
    assert not any("peer" in name for name in found)


def test_appends_take_turns():
    rounds = Rounds([np.arange(5), np.arange(2), np.arange(3)], chunk=2)
    rows, offsets, bounds, tokens = rounds.rounds[1]
    assert (rows.tolist(), offsets.tolist(), bounds.tolist(), tokens.tolist()) == ([0, 2], [2, 2], [0, 2, 3], [2, 3, 2])
    assert (len(rounds.rounds), rounds.num_tokens) == (3, 10)


def test_every_part_gives_its_figures(workload, groups):
    store = make_store(workload, 1000, 20, 30)
    assert (len(store.live), max(len(text) for text in store.live)) == (20, 30)
    found = by_name([*cold(store, None, silent, 2), *batch_of_64(groups, None, silent), *appends(groups, None, silent)])
    asked = [name for name, figure in found.items() if figure.must]
    assert [name.partition(": ")[2] for name in asked] == [
        "resident memory", "p50, median of 2 passes", "p99, median of 2 passes", "p50 of 100 steps",
        "CPU, median of 7", "median of 7",
    ]  # fmt: skip
    assert all(figure.value > 0 for name, figure in found.items() if "resident" not in name)


@pytest.mark.slow
def test_growth_is_counted_where_valgrind_is(workload):
    lines = []
    found = by_name(growth(workload, lines.append, (2000, 20000)))
    assert found["growth of one group: time per token, last over first"].must == "<= 5"
    ratio = found.get("growth of one group: instructions per token, last over first")
    if shutil.which("valgrind"):
        assert ratio is not None
        assert 0.5 < ratio.value < 2
    else:
        assert (ratio, len(lines)) == (None, 1)


def test_what_a_draft_had_of_what_was_said():
    assert accepted([1, 2, 3], [-1, 0, 1], [1, 2, 9]) == 2
    assert accepted([5, 1, 6, 2], [-1, -1, 0, 1], [1, 2, 3]) == 2
    assert accepted([1], [-1], []) == 0
