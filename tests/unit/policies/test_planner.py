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
    KvReport,
    KvReported,
    Observe,
    Observed,
    ReleaseBatch,
    Reward,
    SampleRewarded,
    TurnEnded,
)
from sestina.policies.instances import Instances
from sestina.policies.planner import build_planner

PAGE = 16


def planner_with(kind, *, instances=2, capacity=256, max_running=4, chunk_tokens=32, affinity=0):
    planner = build_planner(kind, chunk_tokens=chunk_tokens, seed=7, affinity_requests=affinity)
    for instance in range(instances):
        up = InstanceUp(instance=instance, kv_capacity_tokens=capacity, page_tokens=PAGE, max_running=max_running)
        assert not planner.handle(up, 0.0)
    return planner


def offer(batch, *groups):
    return BatchOffered(batch=batch, groups=tuple(groups))


def group(number, *, samples=2, prompt=10, limit=100, lengths=(), history=()):
    return GroupSpec(
        group=number,
        prompt_tokens=prompt,
        num_samples=samples,
        max_new_tokens=limit,
        lengths=lengths,
        history=history,
    )


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


def end(planner, dispatch, *, produced=None, done=False, now=1.0):
    """Tell the planner that a chunk ended; returns the chunks it places in answer."""
    produced = dispatch.max_tokens if produced is None else produced
    event = ChunkFinished(request=dispatch.request, instance=dispatch.instance, produced_tokens=produced, done=done)
    return [command for command in planner.handle(event, now) if isinstance(command, Dispatch)]


def names(dispatched):
    return [(str(d.request), d.reason) for d in dispatched]


def test_context_runs_probes_first_and_then_the_longest_estimate():
    planner = planner_with("context", instances=1, capacity=1024, max_running=3)
    probes = planner.handle(offer(0, *(group(g, samples=3) for g in range(3))), 0.0)
    assert names(probes) == [("g0/s0", "probe"), ("g1/s0", "probe"), ("g2/s0", "probe")]
    [rest] = end(planner, probes[0], produced=5, done=True)
    assert names([rest]) == [("g1/s1", "longest-first")], "nobody of 1 or 2 has finished: their limit counts"
    [rest] = end(planner, probes[1], produced=20, done=True)
    assert names([rest]) == [("g2/s1", "longest-first")]
    [rest] = end(planner, probes[2], produced=9, done=True)
    assert names([rest]) == [("g1/s2", "longest-first")], "20 against 5 and 9"
    [rest] = end(planner, rest, produced=1, done=True)
    assert names([rest]) == [("g2/s2", "longest-first")], "a later finish cannot lower 20, but 1 is empty"
    [rest] = end(planner, rest, produced=3, done=True)
    assert names([rest]) == [("g0/s1", "longest-first")]


def test_a_probe_that_comes_back_is_ahead_of_the_rest_and_behind_shorter_probes():
    planner = planner_with("context", instances=1, capacity=1024, max_running=2)
    first, second = planner.handle(offer(0, *(group(g) for g in range(3))), 0.0)
    [third] = end(planner, first)
    assert names([third]) == [("g2/s0", "probe")]
    [again] = end(planner, second)
    assert names([again]) == [("g0/s0", "probe")], "32 generated, as g1 has, and waiting for longer"
    [again] = end(planner, third, produced=4, done=True)
    assert names([again]) == [("g1/s0", "probe")]


def test_a_running_probe_does_not_hold_up_the_rest():
    planner = planner_with("context", instances=1, capacity=1024, max_running=3)
    dispatched = planner.handle(offer(0, group(0, samples=4)), 0.0)
    assert names(dispatched) == [("g0/s0", "probe"), ("g0/s1", "longest-first"), ("g0/s2", "longest-first")]


def test_every_so_often_the_least_served_group_is_picked():
    planner = planner_with("context", instances=1, capacity=4096, max_running=1)
    [dispatch] = planner.handle(offer(0, *(group(g, samples=40, limit=1000) for g in range(2))), 0.0)
    picked = [dispatch]
    for _ in range(60):
        [dispatch] = end(planner, dispatch, produced=900 if dispatch.request == RequestId(0, 0) else 5, done=True)
        picked.append(dispatch)
    fair = [i for i, d in enumerate(picked) if d.reason == "least-served"]
    assert fair == [19, 39, 59]
    assert {picked[i].request.group for i in fair} == {1}, "group 0 is longer and has been given all the others"


def test_context_does_not_skip_what_fits_nowhere():
    planner = planner_with("context", instances=1, capacity=96)
    [only] = planner.handle(offer(0, group(0, samples=1, prompt=60, limit=32), group(1, prompt=1, limit=1)), 0.0)
    assert only.request == RequestId(0, 0)
    assert [d.request.group for d in end(planner, only, produced=1, done=True)] == [1, 1]


def test_the_oracle_runs_what_has_most_left():
    planner = planner_with("oracle", instances=1, capacity=4096, max_running=1)
    offers = (group(0, lengths=(10, 90)), group(1, lengths=(40, 70)))
    [dispatch] = planner.handle(offer(0, *offers), 0.0)
    order = []
    left = {RequestId(g.group, s): n for g in offers for s, n in enumerate(g.lengths)}
    while True:
        produced = min(left[dispatch.request], 32)
        left[dispatch.request] -= produced
        order.append(str(dispatch.request))
        following = end(planner, dispatch, produced=produced, done=not left[dispatch.request])
        if not following:
            break
        [dispatch] = following
        assert dispatch.reason == "oracle"
    assert order == ["g0/s1", "g1/s1", "g0/s1", "g1/s0", "g1/s1", "g0/s1", "g0/s0", "g1/s0", "g1/s1"]


@pytest.mark.parametrize("kind", ["divided", "context", "oracle"])
def test_with_affinity_a_chunk_returns_to_its_instance_while_loads_are_alike(kind):
    def second_chunk(affinity):
        planner = planner_with(kind, instances=2, capacity=1024, affinity=affinity)
        a, b, c, d = planner.handle(offer(0, group(0, samples=4)), 0.0)
        assert [one.instance for one in (a, b, c, d)] == [0, 1, 0, 1]
        end(planner, b, produced=1, done=True)
        end(planner, d, produced=1, done=True)
        [again] = end(planner, a)
        return again.instance

    assert second_chunk(affinity=0) == 1, "the least loaded"
    assert second_chunk(affinity=1) == 0


def test_affinity_gives_way_to_an_imbalance_and_to_room():
    instances = Instances()
    for number in range(2):
        instances.add(InstanceUp(instance=number, kv_capacity_tokens=160, page_tokens=PAGE, max_running=9))
    for sample in range(3):
        instances.reserve(0, RequestId(0, sample), PAGE)
    assert instances.choose(PAGE, home=0, within=3) == 0
    assert instances.choose(PAGE, home=0, within=2) == 1
    assert instances.choose(PAGE, home=None, within=3) == 1
    assert instances.choose(8 * PAGE, home=0, within=3) == 1
    assert instances.choose(11 * PAGE, home=0, within=3) is None


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


@pytest.mark.parametrize("kind", ["group", "divided", "context", "oracle"])
def test_a_request_whose_turn_has_ended_is_held_back_until_something_is_observed(kind):
    planner = planner_with(kind, instances=1, affinity=1)
    (d,) = planner.handle(offer(0, group(0, samples=1)), 0.0)
    turn = TurnEnded(request=d.request, instance=0, produced_tokens=6)
    assert planner.handle(turn, 1.0) == [Observe(request=d.request)]
    assert not planner.upcoming(9)
    assert not planner.instances[0].promises, "what waits for an environment keeps no room"
    (again,) = planner.handle(Observed(request=d.request, observed_tokens=10, done=False), 2.0)
    assert again.max_tokens == (84 if kind == "group" else 32)
    assert planner.instances[0].promises[d.request] == -(-(10 + 16 + again.max_tokens) // PAGE)


def test_a_request_goes_on_where_its_turn_has_ended():
    planner = planner_with("divided", instances=2, affinity=2)
    first, second = planner.handle(offer(0, group(0, samples=2)), 0.0)
    planner.handle(TurnEnded(request=second.request, instance=1, produced_tokens=32), 1.0)
    planner.handle(ChunkFinished(request=first.request, instance=0, produced_tokens=1, done=True), 1.0)
    (again,) = planner.handle(Observed(request=second.request, observed_tokens=4, done=False), 2.0)
    assert again.instance == 1, "0 has as much room, and would come first"


def test_an_observation_may_be_the_end():
    planner = planner_with("divided")
    (d,) = planner.handle(offer(0, group(0, samples=1)), 0.0)
    planner.handle(TurnEnded(request=d.request, instance=0, produced_tokens=6), 1.0)
    assert planner.handle(Observed(request=d.request, observed_tokens=0, done=True), 2.0) == [Reward(request=d.request)]
    assert planner.handle(SampleRewarded(request=d.request), 3.0) == [ReleaseBatch(batch=0)]


def test_a_request_that_was_held_back_when_the_run_was_interrupted_asks_again():
    request = RequestId(0, 1)
    begun = Begun(request=request, generated_tokens=9, done=False, rewarded=False, paused=True)
    planner = planner_with("divided")
    observe, dispatch = planner.handle(BatchOffered(batch=0, groups=(group(0),), begun=(begun,)), 0.0)
    assert (observe, dispatch.request) == (Observe(request=request), RequestId(0, 0))
    (d,) = planner.handle(Observed(request=request, observed_tokens=3, done=False), 1.0)
    assert planner.instances[d.instance].promises[request] == -(-(10 + 12 + 32) // PAGE)


@pytest.mark.parametrize(
    "event",
    [
        TurnEnded(request=RequestId(0, 0), instance=0, produced_tokens=100),
        Observed(request=RequestId(0, 0), observed_tokens=1, done=False),
    ],
)
def test_a_turn_leaves_room_and_nothing_is_observed_unasked(event):
    planner = planner_with("divided")
    planner.handle(offer(0, group(0, samples=1)), 0.0)
    with pytest.raises(AssertionError, match="no tokens left yet goes on|observed something while running"):
        planner.handle(event, 1.0)


def reported(peak, *on_the_way, capacity=256):
    return KvReport(peak_tokens=peak, capacity_tokens=capacity, on_the_way=on_the_way)


def test_what_an_instance_says_of_itself_lets_more_run_or_less():
    planner = planner_with("divided", instances=1, max_running=9)
    first = planner.handle(offer(0, group(0, samples=8, prompt=60)), 0.0)
    assert len(first) == 2, "6 pages each, of 16"
    room = planner.instances[0]
    more = planner.handle(KvReported(instance=0, kv=reported(7 * PAGE, first[1].request)), 1.0)
    assert (len(more), room.reserved_pages) == (0, 13), "one is on its way"
    more = planner.handle(KvReported(instance=0, kv=reported(9 * PAGE)), 2.0)
    assert (len(more), room.reserved_pages) == (1, 15), "the prompt is there once"
    assert planner.handle(KvReported(instance=0, kv=reported(20 * PAGE)), 3.0) == []
    ended = ChunkFinished(request=first[0].request, instance=0, produced_tokens=9, done=True, kv=reported(10 * PAGE))
    assert [type(command) for command in planner.handle(ended, 4.0)] == [Reward, Dispatch]
    assert room.reserved_pages == 16
    silent = ChunkFinished(request=first[1].request, instance=0, produced_tokens=9, done=True)
    planner.handle(silent, 5.0)
    assert room.reserved_pages == 12, "what it shared is not known: each of the others counts whole"


def test_an_instance_that_came_back_with_less_room_is_given_less():
    planner = planner_with("divided", instances=2)
    planner.handle(KvReported(instance=0, kv=reported(0, capacity=5 * PAGE)), 0.0)
    dispatched = planner.handle(offer(0, group(0, samples=4, prompt=60)), 1.0)
    assert [d.instance for d in dispatched] == [1, 1], "6 pages fit nowhere else, however little the other has"
    assert planner.handle(KvReported(instance=0, kv=reported(0, capacity=7 * PAGE)), 2.0)[0].instance == 0


@pytest.mark.parametrize(
    ("kv", "news"),
    [(reported(12 * PAGE), False), (reported(11 * PAGE), True), (reported(13 * PAGE), True),
     (reported(12 * PAGE, capacity=240), True)],
)  # fmt: skip
def test_a_report_is_news_when_it_changes_where_what_waits_may_run(kv, news):
    planner = planner_with("divided", instances=1)
    planner.handle(offer(0, group(0, samples=4, prompt=60)), 0.0)
    assert planner.is_news(0, kv) == news
    assert not planner.is_news(7, kv), "not up yet"
    served = planner_with("divided", instances=1)
    served.handle(offer(0, group(0, samples=2, prompt=60)), 0.0)
    assert not served.is_news(0, reported(11 * PAGE)), "nothing waits"


class PlannerMachine(RuleBasedStateMachine):
    """A world that ends chunks and rewards samples in any order; checks what the planner promises."""

    @initialize(
        kind=st.sampled_from(["group", "divided", "context", "oracle", "histopipe"]),
        num_instances=st.integers(1, 3),
        chunk_tokens=st.integers(1, 60),
        max_running=st.integers(1, 5),
        affinity=st.sampled_from([0, 1, 32]),
    )
    def start(self, kind, num_instances, chunk_tokens, max_running, affinity):
        self.kind, self.chunk_tokens, self.max_running = kind, chunk_tokens, max_running
        arguments = {"instances": num_instances, "capacity": 160, "max_running": max_running, "affinity": affinity}
        self.planner = planner_with(kind, chunk_tokens=chunk_tokens, **arguments)
        self.twin = planner_with(kind, chunk_tokens=chunk_tokens, **arguments)
        self.running: dict[RequestId, Dispatch] = {}
        self.grown: dict[RequestId, int] = {}
        self.limits: dict[RequestId, int] = {}
        self.to_reward: list[RequestId] = []
        self.paused: list[RequestId] = []
        self.open_batches: dict[int, set[RequestId]] = {}
        self.num_groups = self.num_batches = self.version = 0
        self.needs: dict[RequestId, int] = {}
        self.loaded = dict.fromkeys(range(num_instances), 0)
        self.now = 0.0

    def tell(self, event):
        self.now += 1.0
        commands = list(self.planner.handle(event, self.now))
        assert commands == list(self.twin.handle(event, self.now)), "equal journals give equal commands"
        placed = set()
        for command in commands:
            match command:
                case Dispatch():
                    assert command.request not in (*self.running, *self.paused)
                    assert 1 <= command.max_tokens <= self.limits[command.request] - self.grown[command.request]
                    assert self.kind == "group" or command.max_tokens <= self.chunk_tokens
                    self.load(command)
                    placed.add(command.instance)
                    self.running[command.request] = command
                case Observe():
                    self.paused.append(command.request)
                case Reward():
                    self.to_reward.append(command.request)
                case ReleaseBatch():
                    assert not self.open_batches.pop(command.batch)
        for instance in () if self.kind == "group" else map(self.planner.instances.__getitem__, placed):
            assert instance.reserved_pages <= instance.num_pages

    def account(self, instance, data):
        """An instance that has been given some of its chunks says that they need less than each of them alone."""
        running = [each for each in self.planner.instances[instance].promises if each in self.running]
        given = data.draw(st.integers(0, len(running)))
        pages = sum(self.planner.instances[instance].promises[each] for each in running[:given])
        peak = PAGE * data.draw(st.integers(0, pages))
        return KvReport(peak_tokens=peak, capacity_tokens=160, on_the_way=tuple(running[given:]))

    @precondition(lambda self: hasattr(self, "planner"))
    @rule(data=st.data())
    def report(self, data):
        instance = data.draw(st.sampled_from(self.planner.instances.ids))
        self.tell(KvReported(instance=instance, kv=self.account(instance, data)))

    def load(self, dispatch):
        """A worker of the pipeline loads newer weights with the first chunk that asks for them, and has to be idle."""
        instance, needed = dispatch.instance, self.needs[dispatch.request]
        if self.kind == "histopipe" and needed > self.loaded[instance]:
            assert not [other for other in self.running.values() if other.instance == instance]
            self.loaded[instance] = needed

    @rule(
        sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 100)), min_size=1, max_size=3),
        recorded=st.booleans(),
        newer=st.booleans(),
        data=st.data(),
    )
    def offer_batch(self, sizes, recorded, newer, data):
        groups = []
        for samples, prompt, limit in sizes:
            lengths = tuple(1 + (7 * prompt * s) % limit for s in range(samples)) if recorded else ()
            spec = group(self.num_groups, samples=samples, prompt=prompt, limit=limit, lengths=lengths, history=lengths)
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
        self.version += newer
        self.needs |= dict.fromkeys(members, self.version)
        number = self.num_batches - 1
        self.tell(
            BatchOffered(batch=number, groups=tuple(groups), begun=tuple(begun), version=self.version, train_s=3.0)
        )

    def begin(self, request, data):
        """An earlier start has come some way with this request."""
        tokens = data.draw(st.integers(1, self.limits[request]))
        done = tokens == self.limits[request] or data.draw(st.booleans())
        self.grown[request] = tokens
        rewarded = done and data.draw(st.booleans())
        paused = not done and self.kind != "histopipe" and data.draw(st.booleans())
        return Begun(request=request, generated_tokens=tokens, done=done, rewarded=rewarded, paused=paused)

    @precondition(lambda self: getattr(self, "running", None))
    @rule(data=st.data(), early=st.booleans(), says=st.booleans())
    def end_chunk(self, data, early, says):
        dispatch = self.running.pop(data.draw(st.sampled_from(sorted(self.running))))
        produced = data.draw(st.integers(1, dispatch.max_tokens)) if early else dispatch.max_tokens
        self.grown[dispatch.request] += produced
        done = early or self.grown[dispatch.request] == self.limits[dispatch.request]
        instance = dispatch.instance
        kv = self.account(instance, data) if says else None
        self.tell(
            ChunkFinished(request=dispatch.request, instance=instance, produced_tokens=produced, done=done, kv=kv)
        )

    @precondition(lambda self: getattr(self, "running", None) and self.kind != "histopipe")
    @rule(data=st.data())
    def end_turn(self, data):
        request = data.draw(st.sampled_from(sorted(self.running)))
        dispatch = self.running[request]
        produced = min(dispatch.max_tokens, self.limits[request] - self.grown[request] - 1)
        if produced:
            del self.running[request]
            self.grown[request] += produced
            self.tell(TurnEnded(request=request, instance=dispatch.instance, produced_tokens=produced))
            assert request in self.paused

    @precondition(lambda self: getattr(self, "paused", None))
    @rule(data=st.data())
    def observe(self, data):
        request = self.paused.pop(data.draw(st.integers(0, len(self.paused) - 1)))
        done = data.draw(st.booleans())
        tokens = data.draw(st.integers(0, self.limits[request] - self.grown[request] - 1))
        self.grown[request] += tokens
        self.tell(Observed(request=request, observed_tokens=tokens, done=done))

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
            assert instance.promised_pages == sum(instance.promises.values())
            assert instance.reserved_pages <= instance.promised_pages
            if self.kind != "group":
                assert instance.num_running <= self.max_running

    def teardown(self):
        """Whatever is open can always be brought to its end: nothing is lost."""
        while any(getattr(self, name, None) for name in ("running", "paused", "to_reward")):
            while self.paused:
                self.tell(Observed(request=self.paused.pop(), observed_tokens=0, done=False))
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


def test_a_turns_end_says_what_its_instance_holds():
    planner = planner_with("divided", instances=1, max_running=9)
    first, *_ = planner.handle(offer(0, group(0, samples=8, prompt=60)), 0.0)
    assert len(planner.instances[0].promises) == 2
    turn = TurnEnded(request=first.request, instance=0, produced_tokens=9, kv=reported(5 * PAGE))
    observe, *more = planner.handle(turn, 1.0)
    assert observe == Observe(request=first.request)
    assert len(more) == 1
    assert planner.instances[0].reserved_pages == 11, "five that it reports, and one chunk more"
