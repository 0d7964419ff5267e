"""Parts are predicted in processes of their own; what these are is `launch/reproduce.py`'s test."""

import pickle

import pytest

from sestina.core.errors import AbsentError, ConfigError
from sestina.reproduction import papers
from sestina.reproduction.papers import PAPERS, predicted
from tests.unit.reproduction.helpers import cell


def one(say):
    say("one")
    return [cell("a", 1.0, 1.0), cell("b", 2.0, 2.0)]


def other(say):
    return [cell("c", 3.0, 3.0)]


def refused(say):
    raise AbsentError(["conf: there is none", "runs: nor one"])


def test_parts_come_in_their_papers_order(monkeypatch, capfd):
    monkeypatch.setattr(papers, "PAPERS", {"last": (other,), "first": (one, other)})
    found = predicted(["first", "last"], print)
    assert [each.row for each in found.cells] == ["a", "b", "c", "c"]
    assert found.cpu_s >= 0
    assert "one" in capfd.readouterr().out


def test_what_a_part_raises_is_raised_whole(monkeypatch):
    monkeypatch.setattr(papers, "PAPERS", {"one": (one, refused)})
    with pytest.raises(AbsentError) as error:
        predicted(["one"], print)
    assert error.value.violations == ["conf: there is none", "runs: nor one"]
    assert str(error.value) == str(ConfigError(error.value.violations))


def test_every_part_can_be_given_to_another_process():
    for parts in PAPERS.values():
        for part in parts:
            pickle.dumps(part)
