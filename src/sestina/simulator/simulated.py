"""The driver of a simulated world: the planner and the journal of a real run, fluid instances, one virtual clock.

The controller takes no time and messages take none on their way: what an instance ends, the planner hears at that
instant, and what it answers has arrived.
"""

from collections.abc import Sequence
from functools import partial
from typing import assert_never

from sestina.core.errors import RunError
from sestina.core.ids import GroupId, RequestId
from sestina.core.units import InstanceId, Seconds
from sestina.policies.events import (
    BatchOffered,
    ChunkFinished,
    Command,
    Dispatch,
    Event,
    GroupSpec,
    InstanceUp,
    Observe,
    ReleaseBatch,
    Reward,
    SampleRewarded,
)
from sestina.policies.planner import RolloutPlanner
from sestina.simulator.acceptance import Drafting
from sestina.simulator.agenda import Agenda
from sestina.simulator.fluid import FluidInstance
from sestina.simulator.response import Response
from sestina.simulator.resume import Resume
from sestina.simulator.scoring import Workers
from sestina.simulator.workload import SimulatedGroup
from sestina.telemetry.journal import Journal


class SimulatedDriver:
    """Rolls out one batch after the other."""

    def __init__(
        self,
        planner: RolloutPlanner,
        instances: Sequence[FluidInstance],
        *,
        page_tokens: int,
        journal: Journal | None,
        drafting: Drafting,
        resume: Resume,
        num_workers: int,
        tell_lengths: bool,
    ) -> None:
        """`tell_lengths`: the planner knows how long responses will be, as the oracle does."""
        self._planner = planner
        self._instances = {instance.id: instance for instance in instances}
        self._journal = journal
        self._drafting, self._resume = drafting, resume
        self._workers = Workers(num_workers)
        self._tell_lengths = tell_lengths
        self._agenda = Agenda()
        self.now_s: Seconds = 0.0
        """The world's time."""
        self._due: dict[InstanceId, Seconds | None] = dict.fromkeys(self._instances)
        self._versions = dict.fromkeys(self._instances, 0)
        """Of what is in the agenda; older entries are void."""
        self._touched: dict[InstanceId, None] = {}
        self._responses: dict[RequestId, Response] = {}
        self._finished: dict[GroupId, int] = {}
        self._num_batches = 0
        self._released = True
        for instance in instances:
            limits = instance.limits
            self._hear(
                InstanceUp(
                    instance=instance.id,
                    kv_capacity_tokens=limits.kv_capacity_tokens,
                    page_tokens=page_tokens,
                    max_running=limits.max_running,
                )
            )

    @property
    def instances(self) -> list[FluidInstance]:
        """All of them; for figures and tests."""
        return list(self._instances.values())

    def roll_out(self, step: int, groups: Sequence[SimulatedGroup], max_new_tokens: int) -> list[Response]:
        """Return the batch's responses, all finished and rewarded, ordered by (group, sample)."""
        self._responses = {
            response.id: response for group in groups for response in self._begin(step, group, max_new_tokens)
        }
        self._finished = {group.group: 0 for group in groups}
        self._released = False
        self._num_batches += 1
        self._hear(BatchOffered(batch=self._num_batches, groups=self._specs(groups, max_new_tokens)))
        self._settle()
        while not self._released:
            if not self._agenda.run_next():
                left = sum(response.generated_tokens < response.length for response in self._responses.values())
                raise RunError(f"{left} of {len(self._responses)} responses are left, and nothing goes on")
        return list(self._responses.values())

    def _begin(self, step: int, group: SimulatedGroup, max_new_tokens: int) -> list[Response]:
        return [
            Response(
                id=RequestId(group.group, sample),
                step=step,
                prompt_tokens=group.prompt_tokens,
                length=length,
                limit=max_new_tokens,
                reward_s=reward_s,
                offered_s=self.now_s,
            )
            for sample, (length, reward_s) in enumerate(zip(group.lengths, group.rewards_s, strict=True))
        ]

    def _specs(self, groups: Sequence[SimulatedGroup], max_new_tokens: int) -> tuple[GroupSpec, ...]:
        return tuple(
            GroupSpec(
                group=group.group,
                prompt_tokens=group.prompt_tokens,
                num_samples=len(group.lengths),
                max_new_tokens=max_new_tokens,
                lengths=group.lengths if self._tell_lengths else (),
            )
            for group in groups
        )

    def _hear(self, event: Event) -> None:
        commands = self._planner.handle(event, self.now_s)
        if self._journal is not None:
            self._journal.record(event, self.now_s, commands)
        for command in commands:
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case Observe():
                raise AssertionError("no simulated response ends a turn")
            case Dispatch():
                response = self._responses[command.request]
                number = self._drafting.class_of(self._finished[command.request.group])
                self._instances[command.instance].submit(response.start(command, number, self.now_s))
                self._touched[command.instance] = None
            case Reward():
                done = self._workers.take(self.now_s, self._responses[command.request].reward_s)
                self._agenda.put(done, partial(self._rewarded, command.request))
            case ReleaseBatch():
                self._released = True
            case _:
                assert_never(command)

    def _settle(self) -> None:
        """Have every instance that something has come to take it in, and put down its next event."""
        for number in self._touched:
            due = self._instances[number].settle(self.now_s)
            if due != self._due[number]:
                self._due[number] = due
                self._versions[number] += 1
                if due is not None:
                    self._agenda.put(due, partial(self._event, number, self._versions[number]))
        self._touched.clear()

    def _event(self, number: InstanceId, version: int, at: Seconds) -> None:
        if version != self._versions[number]:
            return
        self.now_s = at
        self._due[number] = None
        self._touched[number] = None
        for chunk in self._instances[number].finish():
            response = self._responses[chunk.request]
            response.absorb(chunk, number, at)
            self._resume.left(chunk, number)
            if chunk.done:
                self._one_more(chunk.request.group)
            self._hear(
                ChunkFinished(request=chunk.request, instance=number, produced_tokens=chunk.tokens, done=chunk.done)
            )
        self._settle()

    def _one_more(self, group: GroupId) -> None:
        """A response has finished, and its siblings' drafts may be better from then on."""
        before, after = self._finished[group], self._finished[group] + 1
        self._finished[group] = after
        number = self._drafting.class_of(after)
        if number == self._drafting.class_of(before):
            return
        sample = 0
        while (sibling := self._responses.get(RequestId(group, sample))) is not None:
            if sibling.dispatched is not None:
                dispatch, chunk, _ = sibling.dispatched
                self._instances[dispatch.instance].reclass(chunk, number)
                self._touched[dispatch.instance] = None
            sample += 1

    def _rewarded(self, request: RequestId, at: Seconds) -> None:
        self.now_s = at
        self._responses[request].rewarded_s = at
        self._hear(SampleRewarded(request=request))
        self._settle()
