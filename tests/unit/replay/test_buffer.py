"""Every group is trained on once and in time, whatever the order in which groups end."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sestina.policies.staleness import (
    GroupDropped,
    GroupEnded,
    GroupsOffered,
    StalenessGate,
    StalenessLimits,
    VersionPublished,
)
from sestina.replay.buffer import ReplayBuffer


class StreamMachine(RuleBasedStateMachine):
    """Gate and buffer as the controller uses them; the trainer may publish late, groups end in any order."""

    @initialize(
        eta=st.integers(0, 4),
        batch=st.integers(1, 4),
        spare=st.integers(0, 8),
        overdue=st.sampled_from(["wait", "drop"]),
    )
    def begin(self, eta, batch, spare, overdue):
        self.eta, self.batch, self.overdue = eta, batch, overdue
        limits = StalenessLimits(max_staleness=eta, batch_groups=batch, max_running=batch + spare)
        self.gate = StalenessGate(limits)
        self.buffer = ReplayBuffer(batch_groups=batch, max_staleness=eta, overdue=overdue)
        self.version, self.training, self.number = 0, False, 0
        self.running, self.given_up = [], set()
        self.trained, self.dropped, self.filtered = [], [], []
        self.tell(GroupsOffered(count=10**6))

    def tell(self, event):
        for admit in self.gate.handle(event, 0.0):
            for _ in range(admit.count):
                self.buffer.admit(self.number, admit.version)
                self.running.append(self.number)
                self.number += 1

    @precondition(lambda self: self.running)
    @rule(data=st.data(), teaches=st.sampled_from([True, True, True, False]))
    def end(self, data, teaches):
        group = data.draw(st.sampled_from(self.running))
        self.running.remove(group)
        if group in self.given_up:
            self.dropped.append(group)
            self.tell(GroupEnded(accepted=False))
        elif teaches:
            self.buffer.end(group)
            self.tell(GroupEnded(accepted=True))
        else:
            self.buffer.filter(group)
            self.filtered.append(group)
            self.tell(GroupEnded(accepted=False))

    @precondition(lambda self: not self.training)
    @rule()
    def take(self):
        born = self.buffer.born
        batch = self.buffer.take(self.version)
        if batch is not None:
            assert len(batch) == self.batch
            assert all(self.version - born[group] <= self.eta for group in batch)
            self.trained += batch
            self.training = True

    @precondition(lambda self: self.training)
    @rule()
    def publish(self):
        self.version, self.training = self.version + 1, False
        for group, ended in self.buffer.drop(self.version):
            if ended:
                self.dropped.append(group)
                self.tell(GroupDropped())
            else:
                self.given_up.add(group)
        self.tell(VersionPublished(version=self.version))

    @invariant()
    def every_group_is_in_one_place(self):
        if not hasattr(self, "buffer"):
            return
        closed = [*self.trained, *self.dropped, *self.filtered, *(g for g in self.running if g in self.given_up)]
        assert sorted([*closed, *self.buffer.born]) == list(range(self.number))

    @invariant()
    def waiting_drops_nothing(self):
        assert not hasattr(self, "buffer") or self.overdue == "drop" or not (self.dropped or self.given_up)

    @invariant()
    def the_trainer_gets_a_batch_once_all_have_ended(self):
        if hasattr(self, "buffer") and not self.training and not self.running and self.overdue == "wait":
            assert self.buffer.num_ended >= self.batch
            assert self.buffer._leaves_time(list(self.buffer.born)[: self.batch], self.version)


TestStream = StreamMachine.TestCase
TestStream.settings = settings(max_examples=120, stateful_step_count=60, deadline=None)


def make(overdue="wait", eta=1, batch=2, groups=4):
    buffer = ReplayBuffer(batch_groups=batch, max_staleness=eta, overdue=overdue)
    for group in range(groups):
        buffer.admit(group, version=0)
    return buffer


def test_a_slow_group_is_passed_over_as_long_as_there_is_time():
    buffer = make()
    for group in (2, 3):
        buffer.end(group)
    assert buffer.take(version=0) == [2, 3]
    buffer.admit(4, version=1)
    buffer.admit(5, version=1)
    for group in (4, 5, 1):
        buffer.end(group)
    assert buffer.take(version=1) is None, "group 0 would be 2 versions old in the batch after this one"
    buffer.end(0)
    assert buffer.take(version=1) == [0, 1]


def test_two_slow_groups_that_do_not_fit_into_one_batch_are_waited_for_in_time():
    buffer = make(eta=2, batch=1, groups=3)
    buffer.end(2)
    assert buffer.take(version=0) == [2]
    buffer.admit(3, version=1)
    buffer.end(3)
    assert buffer.take(version=1) is None, "then 0 and 1 would both have to be in the batch of version 2"


def test_dropping_goes_on_without_what_is_too_old():
    buffer = make("drop", eta=0, batch=1, groups=2)
    buffer.end(1)
    assert buffer.take(version=0) == [1]
    assert buffer.drop(version=1) == [(0, False)]
    assert (buffer.num_dropped, buffer.born) == (1, {})


@pytest.mark.parametrize("group", [1, 7])
def test_a_group_ends_once_and_only_if_it_is_open(group):
    buffer = make()
    buffer.end(1)
    with pytest.raises(AssertionError, match=f"group {group} ended"):
        buffer.end(group)
