import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sestina.core.ids import RequestId
from sestina.policies.events import (
    BatchOffered,
    Begun,
    ChunkFinished,
    Dispatch,
    GroupSpec,
    InstanceUp,
    ReleaseBatch,
    Reward,
    SampleRewarded,
)
from sestina.policies.planner import build_planner

PAGE = 16


def planner_with(kind, *, instances=2, capacity=256, max_running=4, chunk_tokens=32):
    planner = build_planner(kind, chunk_tokens=chunk_tokens, seed=7)
    for instance in range(instances):
        up = InstanceUp(instance=instance, kv_capacity_tokens=capacity, page_tokens=PAGE, max_running=max_running)
        assert not planner.handle(up, 0.0)
    return planner


def offer(batch, *groups):
    return BatchOffered(batch=batch, groups=tuple(groups))


def group(number, *, samples=2, prompt=10, limit=100):
    return GroupSpec(group=number, prompt_tokens=prompt, num_samples=samples, max_new_tokens=limit)


def test_a_group_is_bound_to_one_instance_and_not_chunked():
    planner = planner_with("group", max_running=1)
    dispatched = planner.handle(offer(0, *(group(g, samples=4) for g in range(12))), 1.0)
    assert len(dispatched) == 48, "everything is handed over at once"
    assert {d.max_tokens for d in dispatched} == {100}
    homes = {}
    for d in dispatched:
        homes.setdefault(d.request.group, set()).add(d.instance)
    assert all(len(home) == 1 for home in homes.values())
    assert set.union(*homes.values()) == {0, 1}


def test_chunks_go_to_the_least_loaded_instance():
    planner = planner_with("divided")
    first, second, third = planner.handle(offer(0, group(0, samples=3)), 0.0)
    assert [d.instance for d in (first, second, third)] == [0, 1, 0]
    assert {d.max_tokens for d in (first, second, third)} == {32}
    end = ChunkFinished(request=first.request, instance=0, produced_tokens=32, done=False)
    (again,) = planner.handle(end, 1.0)
    assert again == Dispatch(request=first.request, instance=0, max_tokens=32, reason="least-loaded")


def test_the_last_chunk_stops_at_the_limit():
    planner = planner_with("divided", instances=1)
    request = RequestId(0, 0)
    planner.handle(offer(0, group(0, samples=1, limit=40)), 0.0)
    end = ChunkFinished(request=request, instance=0, produced_tokens=32, done=False)
    (last,) = planner.handle(end, 1.0)
    assert last.max_tokens == 8


def test_divided_waits_for_room_and_does_not_skip_the_head():
    planner = planner_with("divided", instances=1, capacity=96)
    offers = (
        group(0, samples=1, prompt=60, limit=32),
        group(1, samples=1, prompt=40, limit=8),
        group(2, prompt=1, limit=1),
    )
    (only,) = planner.handle(offer(0, *offers), 0.0)
    assert only.request == RequestId(0, 0)
    end = ChunkFinished(request=only.request, instance=0, produced_tokens=5, done=True)
    reward, *dispatched = planner.handle(end, 1.0)
    assert reward == Reward(request=only.request)
    assert [d.request.group for d in dispatched] == [1, 2, 2]


def test_a_batch_is_released_when_its_last_sample_is_rewarded():
    planner = planner_with("divided")
    for d in planner.handle(offer(3, group(0)), 0.0):
        end = ChunkFinished(request=d.request, instance=d.instance, produced_tokens=1, done=True)
        assert planner.handle(end, 1.0) == [Reward(request=d.request)]
    assert planner.handle(SampleRewarded(request=RequestId(0, 1)), 2.0) == []
    assert planner.handle(SampleRewarded(request=RequestId(0, 0)), 3.0) == [ReleaseBatch(batch=3)]


def test_a_batch_that_was_begun_goes_on_where_it_was_left():
    planner = planner_with("divided")
    begun = (
        Begun(request=RequestId(0, 0), generated_tokens=70, done=False, rewarded=False),
        Begun(request=RequestId(0, 1), generated_tokens=30, done=True, rewarded=False),
        Begun(request=RequestId(0, 2), generated_tokens=100, done=True, rewarded=True),
    )
    reward, first, fresh = planner.handle(BatchOffered(batch=0, groups=(group(0, samples=4),), begun=begun), 0.0)
    assert reward == Reward(request=RequestId(0, 1))
    assert (first.request, first.max_tokens) == (RequestId(0, 0), 30)
    assert (fresh.request, fresh.max_tokens) == (RequestId(0, 3), 32)
    assert planner.instances[first.instance].reserved_pages == -(-(10 + 70 + 30) // PAGE)


def test_a_batch_of_which_nothing_was_left_to_do_is_released_at_once():
    begun = (Begun(request=RequestId(0, 0), generated_tokens=3, done=True, rewarded=True),)
    offered = BatchOffered(batch=5, groups=(group(0, samples=1),), begun=begun)
    assert planner_with("group").handle(offered, 0.0) == [ReleaseBatch(batch=5)]


@pytest.mark.parametrize("event", ["offer", "chunk", "instance"])
def test_the_same_thing_cannot_happen_twice(event):
    planner = planner_with("divided")
    (d,) = planner.handle(offer(0, group(0, samples=1)), 0.0)
    end = ChunkFinished(request=d.request, instance=d.instance, produced_tokens=1, done=True)
    planner.handle(end, 0.0)
    again = {"offer": offer(0, group(1)), "chunk": end, "instance": InstanceUp(
        instance=0, kv_capacity_tokens=16, page_tokens=16, max_running=1)}[event]  # fmt: skip
    with pytest.raises((AssertionError, KeyError)):
        planner.handle(again, 1.0)


class PlannerMachine(RuleBasedStateMachine):
    """A world that ends chunks and rewards samples in any order; checks what the planner promises."""

    @initialize(
        kind=st.sampled_from(["group", "divided"]),
        num_instances=st.integers(1, 3),
        chunk_tokens=st.integers(1, 60),
        max_running=st.integers(1, 5),
    )
    def start(self, kind, num_instances, chunk_tokens, max_running):
        self.kind, self.chunk_tokens, self.max_running = kind, chunk_tokens, max_running
        arguments = {"instances": num_instances, "capacity": 160, "max_running": max_running}
        self.planner = planner_with(kind, chunk_tokens=chunk_tokens, **arguments)
        self.twin = planner_with(kind, chunk_tokens=chunk_tokens, **arguments)
        self.running: dict[RequestId, Dispatch] = {}
        self.grown: dict[RequestId, int] = {}
        self.limits: dict[RequestId, int] = {}
        self.to_reward: list[RequestId] = []
        self.open_batches: dict[int, set[RequestId]] = {}
        self.num_groups = self.num_batches = 0
        self.now = 0.0

    def tell(self, event):
        self.now += 1.0
        commands = list(self.planner.handle(event, self.now))
        assert commands == list(self.twin.handle(event, self.now)), "equal journals give equal commands"
        for command in commands:
            match command:
                case Dispatch():
                    assert command.request not in self.running
                    assert 1 <= command.max_tokens <= self.limits[command.request] - self.grown[command.request]
                    assert self.kind == "group" or command.max_tokens <= self.chunk_tokens
                    self.running[command.request] = command
                case Reward():
                    self.to_reward.append(command.request)
                case ReleaseBatch():
                    assert not self.open_batches.pop(command.batch)

    @rule(
        sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 100)), min_size=1, max_size=3),
        data=st.data(),
    )
    def offer_batch(self, sizes, data):
        groups = []
        for samples, prompt, limit in sizes:
            spec = group(self.num_groups, samples=samples, prompt=prompt, limit=limit)
            groups.append(spec)
            for s in range(samples):
                self.limits[RequestId(spec.group, s)] = limit
                self.grown[RequestId(spec.group, s)] = 0
            self.num_groups += 1
        members = {RequestId(g.group, s) for g in groups for s in range(g.num_samples)}
        begun = [
            self.begin(request, data) for request in data.draw(st.lists(st.sampled_from(sorted(members)), unique=True))
        ]
        self.open_batches[self.num_batches] = members - {each.request for each in begun if each.rewarded}
        self.num_batches += 1
        self.tell(BatchOffered(batch=self.num_batches - 1, groups=tuple(groups), begun=tuple(begun)))

    def begin(self, request, data):
        """An earlier start has come some way with this request."""
        tokens = data.draw(st.integers(1, self.limits[request]))
        done = tokens == self.limits[request] or data.draw(st.booleans())
        self.grown[request] = tokens
        return Begun(request=request, generated_tokens=tokens, done=done, rewarded=done and data.draw(st.booleans()))

    @precondition(lambda self: getattr(self, "running", None))
    @rule(data=st.data(), early=st.booleans())
    def end_chunk(self, data, early):
        dispatch = self.running.pop(data.draw(st.sampled_from(sorted(self.running))))
        produced = data.draw(st.integers(1, dispatch.max_tokens)) if early else dispatch.max_tokens
        self.grown[dispatch.request] += produced
        done = early or self.grown[dispatch.request] == self.limits[dispatch.request]
        instance = dispatch.instance
        self.tell(ChunkFinished(request=dispatch.request, instance=instance, produced_tokens=produced, done=done))

    @precondition(lambda self: getattr(self, "to_reward", None))
    @rule(data=st.data())
    def reward(self, data):
        request = self.to_reward.pop(data.draw(st.integers(0, len(self.to_reward) - 1)))
        next(members for members in self.open_batches.values() if request in members).remove(request)
        self.tell(SampleRewarded(request=request))

    @invariant()
    def promises_are_kept(self):
        for instance in self.planner.instances if hasattr(self, "planner") else ():
            here = {r for r, d in self.running.items() if d.instance == instance.id}
            assert set(instance.promises) == here
            assert instance.reserved_pages == sum(instance.promises.values())
            if self.kind == "divided":
                assert instance.reserved_pages <= instance.num_pages
                assert instance.num_running <= self.max_running

    def teardown(self):
        """Whatever is open can always be brought to its end: nothing is lost."""
        while getattr(self, "running", None) or getattr(self, "to_reward", None):
            while self.running:
                request, dispatch = self.running.popitem()
                self.grown[request] += dispatch.max_tokens
                done = self.grown[request] == self.limits[request]
                self.tell(
                    ChunkFinished(
                        request=request, instance=dispatch.instance, produced_tokens=dispatch.max_tokens, done=done
                    )
                )
            while self.to_reward:
                request = self.to_reward.pop()
                next(m for m in self.open_batches.values() if request in m).remove(request)
                self.tell(SampleRewarded(request=request))
        assert not getattr(self, "open_batches", {})


TestPlannerMachine = PlannerMachine.TestCase
