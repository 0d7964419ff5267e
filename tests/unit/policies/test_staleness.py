import doctest
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.policies import staleness
from sestina.policies.staleness import (
    GroupEnded,
    GroupsOffered,
    StalenessGate,
    StalenessLimits,
    VersionPublished,
)

LIMITS = st.builds(
    StalenessLimits, max_staleness=st.integers(0, 4), batch_groups=st.integers(1, 5), max_running=st.integers(1, 12)
)


class Training:
    """A gate, the groups it admitted, and a trainer that takes the B oldest accepted ones, in order of admission.

    Keeps N of equation 3 by itself: all that were ever admitted, less those that were rejected.
    """

    def __init__(self, limits, *, gate=None, version=0, waiting=()):
        self.limits, self.version = limits, version
        self.gate = gate or StalenessGate(limits)
        self.running, self.finished = deque(), {}
        self.order = deque(waiting)
        self.counted = version * limits.batch_groups + len(self.order)
        self.number = 0
        self.worst = 0
        self.admitted = 0
        for name, born in self.order:
            self.finished[name] = born

    def tell(self, event):
        for admit in self.gate.handle(event, 0.0):
            assert admit.version == self.version
            for _ in range(admit.count):
                self.counted += 1
                assert (self.counted - 1) // self.limits.batch_groups <= self.version + self.limits.max_staleness
                self.order.append((self.number, self.version))
                self.running.append((self.number, self.version))
                self.number += 1
                self.admitted += 1
        assert len(self.running) == self.gate.running <= self.limits.max_running

    def end(self, which, *, accepted=True):
        self.running.rotate(-(which % len(self.running)))
        name, born = self.running.popleft()
        if accepted:
            self.finished[name] = born
        else:
            self.counted -= 1
            self.order.remove((name, born))
        self.tell(GroupEnded(accepted=accepted))

    def train(self):
        """Consume the batch of the oldest groups if all of them are there; returns whether they were."""
        batch = [self.order[i] for i in range(min(self.limits.batch_groups, len(self.order)))]
        if len(batch) < self.limits.batch_groups or any(name not in self.finished for name, _ in batch):
            return False
        for _ in batch:
            name, born = self.order.popleft()
            del self.finished[name]
            self.worst = max(self.worst, self.version - born)
        self.version += 1
        self.tell(VersionPublished(version=self.version))
        return True


MOVES = st.lists(st.tuples(st.sampled_from(["offer", "end", "reject", "train"]), st.integers(0, 20)), max_size=150)


def play(training, moves):
    for move, number in moves:
        if move == "offer":
            training.tell(GroupsOffered(count=number))
        elif move == "train":
            training.train()
        elif training.running:
            training.end(number, accepted=move == "end")


@given(limits=LIMITS, moves=MOVES)
def test_in_any_order_of_events_nothing_is_trained_on_too_late(limits, moves):
    training = Training(limits)
    play(training, moves)
    assert training.worst <= limits.max_staleness


@given(limits=LIMITS, moves=MOVES)
def test_no_order_of_events_locks_it(limits, moves):
    """Whatever happened: once groups are offered and end, the next batch can be trained on."""
    training = Training(limits)
    play(training, moves)
    before = training.version
    training.tell(GroupsOffered(count=10_000))
    while not training.train():
        assert training.running, "nothing runs, and there is no batch"
        training.end(0)
    assert training.version == before + 1


@given(limits=LIMITS, moves=MOVES)
def test_it_admits_all_that_the_bound_allows(limits, moves):
    training = Training(limits)
    training.tell(GroupsOffered(count=10_000))
    play(training, [move for move in moves if move[0] != "offer"])
    room = (limits.max_staleness + training.version + 1) * limits.batch_groups - training.counted
    assert training.gate.capacity == 0
    assert len(training.running) == limits.max_running or room == 0


@given(limits=LIMITS, moves=MOVES, after=MOVES)
def test_a_resumed_gate_counts_what_the_checkpoint_keeps(limits, moves, after):
    """What ran is lost; finished groups that were not trained on are kept, and their admissions still count."""
    first = Training(limits)
    play(first, moves)
    kept = [(-1 - i, born) for i, (name, born) in enumerate(first.order) if name in first.finished]
    gate = StalenessGate(limits, version=first.version, accepted=len(kept))
    second = Training(limits, gate=gate, version=first.version, waiting=kept)
    assert second.gate.capacity == min(limits.max_running, (limits.max_staleness + 1) * limits.batch_groups - len(kept))
    play(second, after)
    assert second.worst <= limits.max_staleness


@pytest.mark.slow
@pytest.mark.parametrize("eta", [0, 1, 4])
def test_a_million_admissions(eta):
    """Groups end in random order, a tenth is rejected, and the trainer takes whatever batch is complete."""
    training = random_training(eta, num_ends=340_000)
    assert training.admitted > 333_334
    assert training.worst == eta, "never above, and the bound is used"


@pytest.mark.parametrize("eta", [0, 1, 4])
def test_ten_thousand_admissions(eta):
    training = random_training(eta, num_ends=10_000)
    assert training.admitted >= 10_000
    assert training.worst == eta


def random_training(eta, *, num_ends):
    training = Training(StalenessLimits(max_staleness=eta, batch_groups=64, max_running=400))
    training.tell(GroupsOffered(count=10**9))
    for where, luck in np.random.default_rng(eta).random((num_ends, 2)).tolist():
        training.end(int(where * len(training.running)), accepted=luck > 0.1)
        training.train()
    return training


def test_with_eta_0_a_batch_starts_when_the_one_before_is_trained_on():
    training = Training(StalenessLimits(max_staleness=0, batch_groups=3, max_running=9))
    training.tell(GroupsOffered(count=100))
    for _ in range(3):
        assert len(training.running) == 3
        while training.running:
            training.end(0)
        assert training.train()
    assert training.worst == 0


def test_a_rejected_group_makes_room_at_once():
    training = Training(StalenessLimits(max_staleness=0, batch_groups=2, max_running=9))
    training.tell(GroupsOffered(count=100))
    training.end(0, accepted=False)
    assert (len(training.running), training.admitted) == (2, 3)


@pytest.mark.parametrize("changes", [{"max_staleness": -1}, {"batch_groups": 0}, {"max_running": 0}])
def test_limits_out_of_range_are_refused(changes):
    with pytest.raises(AssertionError, match=next(iter(changes))):
        StalenessLimits(**({"max_staleness": 0, "batch_groups": 1, "max_running": 1} | changes))


def test_what_cannot_be_is_refused():
    gate = StalenessGate(StalenessLimits(max_staleness=0, batch_groups=1, max_running=1), version=3)
    with pytest.raises(AssertionError, match="not running"):
        gate.handle(GroupEnded(accepted=True), 0.0)
    with pytest.raises(AssertionError, match="version 3 published after 3"):
        gate.handle(VersionPublished(version=3), 0.0)
    with pytest.raises(AssertionError, match="exceed the bound"):
        StalenessGate(StalenessLimits(max_staleness=0, batch_groups=1, max_running=1), version=3, accepted=2)


def test_the_example():
    assert doctest.testmod(staleness).failed == 0
