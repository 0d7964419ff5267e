"""The context scheduler against the same rules written out over a plain list."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sestina.policies.context import FAIR_EVERY, ContextScheduler
from sestina.policies.events import GroupSpec, InstanceUp
from sestina.policies.instances import Instances
from sestina.policies.request_buffer import RequestBuffer

LIMIT = 60


class Written:
    """Waiting requests in a list; each pick looks at all of them.

    Ties: who has had the same key for longer; groups of which nobody is finished take turns.
    """

    def __init__(self):
        self.waiting, self.known, self.chunks, self.picks, self.turn = [], {}, {}, 0, 0
        self.since, self.finished_groups = {}, set()

    def estimate(self, group):
        return max(self.known[group]) if group in self.finished_groups else LIMIT

    def learn(self, entry, *, done):
        group = entry.id.group
        before = self.estimate(group)
        self.known.setdefault(group, []).append(entry.generated_tokens)
        if done:
            self.finished_groups.add(group)
        if self.estimate(group) != before:
            self.since[group] = self.tick()

    def tick(self):
        self.turn += 1
        return self.turn

    def push(self, entry):
        group = entry.id.group
        self.learn(entry, done=False)
        if not entry.speculative and not any(e.id.group == group and not e.speculative for e in self.waiting):
            self.since[group] = self.tick()
        self.waiting.append(entry)

    def pick(self):
        probes = [e for e in self.waiting if e.speculative]
        rest = [e for e in self.waiting if not e.speculative]
        if (self.picks + 1) % FAIR_EVERY == 0 and rest:
            return None  # any group that was given fewest; `least_served` names them
        if probes:
            return min(probes, key=lambda e: e.generated_tokens)
        return min(rest, key=lambda e: (-self.estimate(e.id.group), self.since[e.id.group]), default=None)

    def take(self, entry):
        group = entry.id.group
        self.waiting.remove(entry)
        self.picks += 1
        self.chunks[group] = self.chunks.get(group, 0) + 1
        if not entry.speculative and group not in self.finished_groups:
            self.since[group] = self.tick()

    def least_served(self):
        """The first waiting request, its probe apart, of each group that was given fewest chunks."""
        first = {}
        for entry in self.waiting:
            if not entry.speculative:
                first.setdefault(entry.id.group, entry)
        fewest = min(self.chunks.get(group, 0) for group in first)
        return [entry for group, entry in first.items() if self.chunks.get(group, 0) == fewest]

    def finished(self, entry):
        self.learn(entry, done=True)


@settings(max_examples=150)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    room=st.integers(1, 8),
    moves=st.lists(st.tuples(st.integers(0, 100), st.integers(1, 20), st.booleans()), max_size=120),
)
def test_every_pick_is_the_one_that_the_rules_name(sizes, room, moves):
    scheduler, written = ContextScheduler(chunk_tokens=20), Written()
    buffer, instances = RequestBuffer(), Instances()
    instances.add(InstanceUp(instance=0, kv_capacity_tokens=10_000, page_tokens=1, max_running=room))
    for number, samples in enumerate(sizes):
        spec = GroupSpec(group=number, prompt_tokens=1, num_samples=samples, max_new_tokens=LIMIT)
        for entry in buffer.add(0, spec):
            scheduler.push(entry)
            written.push(entry)
    running = []
    for which, produced, done in [(0, 0, False), *moves]:
        if running and produced:
            entry, budget = running.pop(which % len(running))
            grown = min(produced, budget)
            done = done or entry.generated_tokens + grown == LIMIT
            instances.release(0, entry.id)
            buffer.finish_chunk(entry.id, grown, done=done)
            for one in (scheduler, written):
                one.finished(entry) if done else one.push(entry)
        while len(running) < room and written.waiting:
            placement = scheduler.next(instances)
            if placement.reason == "least-served":
                assert any(placement.entry is entry for entry in written.least_served())
            else:
                assert placement.entry is written.pick()
            written.take(placement.entry)
            instances.reserve(0, placement.entry.id, placement.max_tokens)
            buffer.start(placement.entry.id, 0)
            running.append((placement.entry, placement.max_tokens))
        assert scheduler.next(instances) is None


def test_a_member_that_outgrows_its_group_does_not_wait_for_the_end():
    scheduler, buffer, instances = ContextScheduler(chunk_tokens=20), RequestBuffer(), Instances()
    instances.add(InstanceUp(instance=0, kv_capacity_tokens=10_000, page_tokens=1, max_running=4))
    for number in (0, 1):
        spec = GroupSpec(group=number, prompt_tokens=1, num_samples=3, max_new_tokens=LIMIT)
        for entry in buffer.add(0, spec):
            scheduler.push(entry)
    placed = {}
    while len(placed) < 4:
        placement = scheduler.next(instances)
        placed[placement.entry.id] = placement.entry
        instances.reserve(0, placement.entry.id, placement.max_tokens)
        buffer.start(placement.entry.id, 0)
    for entry, tokens, done in zip(placed.values(), (2, 15, 20, 0), (True, True, False, False), strict=True):
        if tokens:  # probes of both groups end, the first sibling of group 0 goes on
            instances.release(0, entry.id)
            buffer.finish_chunk(entry.id, tokens, done=done)
            (scheduler.finished if done else scheduler.push)(entry)
    assert [entry.id.group for entry in scheduler.upcoming(3)] == [0, 0, 1]


def test_groups_of_which_nothing_is_known_take_turns():
    scheduler, buffer, instances = ContextScheduler(chunk_tokens=20), RequestBuffer(), Instances()
    instances.add(InstanceUp(instance=0, kv_capacity_tokens=10_000, page_tokens=1, max_running=8))
    for number in (0, 1):
        for entry in buffer.add(0, GroupSpec(group=number, prompt_tokens=1, num_samples=4, max_new_tokens=LIMIT)):
            scheduler.push(entry)
    picked = []
    while (placement := scheduler.next(instances)) is not None:
        picked.append(placement.entry.id.group)
        instances.reserve(0, placement.entry.id, placement.max_tokens)
        buffer.start(placement.entry.id, 0)
    assert picked == [0, 1] * 4


def test_nothing_is_kept_of_groups_that_are_done():
    scheduler, buffer, instances = ContextScheduler(chunk_tokens=20), RequestBuffer(), Instances()
    instances.add(InstanceUp(instance=0, kv_capacity_tokens=10_000, page_tokens=1, max_running=1))
    for _ in range(2):
        for entry in buffer.add(0, GroupSpec(group=7, prompt_tokens=1, num_samples=3, max_new_tokens=LIMIT)):
            scheduler.push(entry)
        while (placement := scheduler.next(instances)) is not None:
            buffer.start(placement.entry.id, 0)
            buffer.finish_chunk(placement.entry.id, 1, done=True)
            scheduler.finished(placement.entry)
            buffer.drop(placement.entry.id)
        assert not scheduler._groups
