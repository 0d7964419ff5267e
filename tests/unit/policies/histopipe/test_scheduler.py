from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.core.ids import RequestId
from sestina.policies.events import BatchOffered, ChunkFinished, Dispatch, GroupSpec, InstanceUp, KvReport, KvReported
from sestina.policies.histopipe.batch import lay_out
from sestina.policies.histopipe.profile import Part, Profile
from sestina.policies.planner import build_planner

CHUNK = 10


class World:
    """Instances whose chunks end when they are told to."""

    def __init__(self, num_instances=4, ranking_groups=4):
        self.planner = build_planner("histopipe", chunk_tokens=CHUNK, seed=0, ranking_groups=ranking_groups)
        for number in range(num_instances):
            up = InstanceUp(instance=number, kv_capacity_tokens=10_000, page_tokens=16, max_running=64)
            self.planner.handle(up, 0.0)
        self.running: dict[RequestId, Dispatch] = {}
        self.now = 0.0

    def tell(self, event):
        self.now += 1.0
        dispatched = [command for command in self.planner.handle(event, self.now) if isinstance(command, Dispatch)]
        self.running |= {each.request: each for each in dispatched}
        return dispatched

    def offer(self, batch, histories, *, samples=2, version=0, beta=1.1):
        """Prompts of a batch are numbered from 100 times its own number."""
        groups = tuple(
            GroupSpec(group=100 * batch + i, prompt_tokens=4, num_samples=samples, max_new_tokens=1000, history=history)
            for i, history in enumerate(histories)
        )
        return self.tell(BatchOffered(batch=batch, groups=groups, version=version, beta=beta))

    def end(self, request, *, done=True):
        chunk = self.running.pop(request)
        tokens = 1 if done else chunk.max_tokens
        return self.tell(ChunkFinished(request=request, instance=chunk.instance, produced_tokens=tokens, done=done))

    def end_batch(self, batch):
        for request in [each for each in self.running if each.group // 100 == batch]:
            self.end(request)

    def where(self):
        """Instances by prompt."""
        homes = {}
        for request, chunk in self.running.items():
            homes.setdefault(request.group, set()).add(chunk.instance)
        return homes


def test_without_history_each_worker_gets_as_many_prompts():
    world = World()
    world.offer(0, [()] * 8)
    assert world.where() == {0: {0}, 1: {0}, 2: {1}, 3: {1}, 4: {2}, 5: {2}, 6: {3}, 7: {3}}


def test_ranked_prompts_lie_on_workers_up_one_step_and_down_the_next():
    world = World()
    histories = [(40,), (10,), (30,), (20,)]
    world.offer(0, histories)
    assert world.where() == {0: {3}, 1: {0}, 2: {2}, 3: {1}}
    world.offer(1, histories, version=1)
    world.end_batch(0)
    assert world.where() == {100: {0}, 101: {3}, 102: {1}, 103: {2}}


def test_a_prompt_without_history_counts_as_one_in_the_middle():
    world = World(num_instances=3, ranking_groups=3)
    world.offer(0, [(5,), (), (50,), (20,), (6,), (60,)])
    assert world.where()[1] == {1}


def test_where_tokens_alone_take_time_groups_of_any_length_get_as_many_workers():
    """Two steps then fill every worker: one short part and one long."""
    world = World(num_instances=8, ranking_groups=2)
    world.offer(0, [(1,)] * 4 + [(100,)] * 4, samples=4)
    workers = [set.union(*(world.where()[prompt] for prompt in half)) for half in (range(4), range(4, 8))]
    assert workers == [{0, 1, 2, 3}, {4, 5, 6, 7}]


@given(
    histories=st.lists(st.lists(st.integers(1, 300), max_size=3).map(tuple), min_size=1, max_size=12),
    num_workers=st.integers(1, 9),
    num_groups=st.integers(1, 9),
    step=st.integers(1, 2),
    step_s=st.floats(0, 1),
    train_s=st.floats(0, 1000),
)
def test_every_worker_is_given_away_and_every_prompt_has_some(
    histories, num_workers, num_groups, step, step_s, train_s
):
    profile = Profile()
    for longest, tokens in ((10, 50), (20, 60)):
        profile.learn(Part(longest=longest, tokens=tokens, seconds=step_s * longest + 0.1 * tokens))
    groups = tuple(
        GroupSpec(group=i, prompt_tokens=4, num_samples=2, max_new_tokens=300, history=history)
        for i, history in enumerate(histories)
    )
    offer = BatchOffered(batch=0, groups=groups, train_s=train_s)
    batch = lay_out(offer, range(len(groups)), range(num_workers), profile, num_groups=num_groups, step=step)
    assert sorted(worker for group in batch.groups for worker in group.workers) == list(range(num_workers))
    assert all(group.workers for group in batch.groups)
    assert batch.by_prompt.keys() == set(range(len(groups)))
    assert batch.ranked == any(histories)


def test_without_the_second_tier_groups_have_equally_many_workers():
    groups = tuple(
        GroupSpec(group=i, prompt_tokens=4, num_samples=2, max_new_tokens=300, history=(length,))
        for i, length in enumerate((10, 20, 100, 290))
    )
    offer = BatchOffered(batch=0, groups=groups)
    counts = [
        [len(group.workers) for group in
         lay_out(offer, range(4), range(10), Profile(), num_groups=4, step=1, two_tier=two_tier).groups]
        for two_tier in (False, True)
    ]  # fmt: skip
    assert counts[0] == [3, 3, 2, 2]
    assert counts[1][-1] > counts[1][1], "the plan gives more to long ones"


def test_a_worker_turns_when_its_part_is_done_and_not_before():
    world = World(num_instances=2, ranking_groups=2)
    world.offer(0, [(10,), (40,)])
    world.offer(1, [(10,), (40,)], version=1)
    assert {request.group for request in world.running} == {0, 1}
    assert not world.end(RequestId(0, 0)), "its sibling still runs here"
    assert {each.request.group for each in world.end(RequestId(0, 1))} == {101}, "the other end of the line is taken"
    assert world.where() == {1: {1}, 101: {0}}


def test_a_chunk_returns_to_its_worker():
    world = World()
    world.offer(0, [(40,), (10,), (30,), (20,)])
    home = world.running[RequestId(0, 0)].instance
    [again] = world.end(RequestId(0, 0), done=False)
    assert (again.instance, again.reason) == (home, "ranked")


def outgrown(world, request, chunks):
    """Let a response grow by chunks; returns the last."""
    for _ in range(chunks):
        [chunk] = [each for each in world.end(request, done=False) if each.request == request]
    return chunk


@pytest.mark.parametrize(("alone", "reason"), [(True, "intra-step"), (False, "ranked")])
def test_the_last_of_a_short_group_that_outgrew_history_goes_to_a_later_group(alone, reason):
    world = World(num_instances=2, ranking_groups=2)
    world.offer(0, [(10,)] * 5 + [(200,)] * 5)
    straggler = RequestId(0, 0)
    for request in [each for each in list(world.running) if each.group < 5 and each != straggler]:
        if alone or request.group == 1:
            world.end(request)
    assert outgrown(world, straggler, 1).reason == "ranked", "10 tokens are no more than 1.1 times 10"
    assert outgrown(world, straggler, 1).reason == reason
    assert world.running[straggler].instance == (1 if alone else 0)


def test_one_long_response_of_the_last_epoch_holds_nothing_back():
    world = World(num_instances=2, ranking_groups=2)
    world.offer(0, [(10, 10, 900)] * 5 + [(1000,)] * 5)
    straggler = RequestId(0, 0)
    for request in [each for each in list(world.running) if each.group < 5 and each != straggler]:
        world.end(request)
    assert outgrown(world, straggler, 2).reason == "intra-step", "20 tokens are more than 1.1 times the median"


def test_the_last_of_a_long_group_goes_to_a_worker_that_has_turned_and_stays_there():
    world = World(num_instances=2, ranking_groups=2)
    world.offer(0, [(10,)] * 5 + [(12,)] * 5)
    straggler = RequestId(9, 0)
    for request in [each for each in list(world.running) if each.group >= 5 and each != straggler]:
        world.end(request)
    assert outgrown(world, straggler, 3).reason == "ranked", "nobody has turned"
    world.offer(1, [(10,)] * 5 + [(12,)] * 5, version=1)
    for request in [each for each in list(world.running) if each.group < 5]:
        world.end(request)
    moved = outgrown(world, straggler, 1)
    assert (moved.instance, moved.reason) == (0, "inter-step")
    assert outgrown(world, straggler, 2) == moved
    world.end(straggler)
    assert {100 + i for i in range(10)} <= set(world.where())


@given(
    step_s=st.floats(0, 1),
    token_s=st.floats(0.001, 1),
    parts=st.lists(st.tuples(st.integers(1, 500), st.integers(1, 5000)), min_size=2, max_size=20),
)
def test_a_profile_finds_the_costs_that_made_its_parts(step_s, token_s, parts):
    profile = Profile()
    assert not profile.learnt
    for longest, tokens in parts:
        profile.learn(Part(longest=longest, tokens=tokens, seconds=step_s * longest + token_s * tokens))
    for longest, tokens in parts:
        assert profile.seconds(longest, tokens) == pytest.approx(step_s * longest + token_s * tokens, rel=0.01)


def test_what_a_profile_foretells_never_falls_with_work():
    profile = Profile()
    for longest, tokens, seconds in ((10, 100, 9.0), (20, 100, 5.0), (10, 200, 20.0)):
        profile.learn(Part(longest=longest, tokens=tokens, seconds=seconds))
    assert profile.seconds(20, 100) >= profile.seconds(10, 100) > 0
    profile.learn(Part(longest=0, tokens=0, seconds=1.0))
    assert profile.seconds(10, 200) > profile.seconds(10, 100)


def test_room_that_an_instance_reports_is_used_at_once():
    world = World(num_instances=1)
    none = KvReport(peak_tokens=0, capacity_tokens=0)
    world.tell(KvReported(instance=0, kv=none))
    assert world.offer(1, [(5,)]) == []
    assert len(world.tell(KvReported(instance=0, kv=replace(none, capacity_tokens=10_000)))) == 2
