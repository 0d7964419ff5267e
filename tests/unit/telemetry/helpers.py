"""A rollout as a real planner decides it, on a simulated clock: the events, the commands and the rows they leave."""

import heapq
import itertools

import numpy as np

from sestina.core.ids import RequestId
from sestina.policies.events import (
    BatchOffered,
    ChunkFinished,
    Dispatch,
    GroupSpec,
    InstanceUp,
    Reward,
    SampleRewarded,
)
from sestina.policies.planner import build_planner
from sestina.telemetry.metrics import MetricsWriter
from sestina.telemetry.status import StepSummary
from sestina.telemetry.traces import ChunkRow, RequestRow, write_step

NUM_INSTANCES = 3
LIMIT = 400
TOKEN_S = 0.004
REWARD_S = 0.01


class Rollouts:
    """Drives one planner through batch after batch; `history` holds (event, now, commands)."""

    def __init__(self, kind="divided", *, seed=0, journal=None):
        self.planner = build_planner(kind, chunk_tokens=48, seed=5)
        self.rng = np.random.default_rng(seed)
        self.journal = journal
        self.history = []
        self.now = 1000.0
        self.num_groups = 0
        self.queue = []
        self.ticket = itertools.count()
        for instance in range(NUM_INSTANCES):
            self.tell(InstanceUp(instance=instance, kv_capacity_tokens=2048, page_tokens=16, max_running=6))

    def tell(self, event):
        commands = list(self.planner.handle(event, self.now))
        self.history.append((event, self.now, commands))
        if self.journal:
            self.journal.record(event, self.now, commands)
        return commands

    def step(self, step, *, num_groups=8, samples=4):
        """Run one batch to its end; returns its rows."""
        first, self.num_groups = self.num_groups, self.num_groups + num_groups
        self.step_number, self.offered_s, self.chunks, self.requests = step, self.now, [], []
        self.lengths = {
            RequestId(group, sample): int(min(LIMIT, 12 * (1 + self.rng.pareto(1.1))))
            for group in range(first, first + num_groups)
            for sample in range(samples)
        }
        self.grown = dict.fromkeys(self.lengths, 0)
        specs = (
            GroupSpec(
                group=group,
                prompt_tokens=20,
                num_samples=samples,
                max_new_tokens=LIMIT,
                lengths=tuple(self.lengths[RequestId(group, sample)] for sample in range(samples)),
            )
            for group in range(first, first + num_groups)
        )
        self.obey(self.tell(BatchOffered(batch=step, groups=tuple(specs))))
        while self.queue:
            self.now, _, happening = heapq.heappop(self.queue)
            happening()
        return self.requests, self.chunks

    def later(self, delay, happening):
        heapq.heappush(self.queue, (self.now + delay, next(self.ticket), happening))

    def obey(self, commands):
        for command in commands:
            if isinstance(command, Dispatch):
                self.dispatch(command)
            elif isinstance(command, Reward):
                self.later(REWARD_S, lambda request=command.request: self.rewarded(request))

    def dispatch(self, command):
        left = self.lengths[command.request] - self.grown[command.request]
        tokens, now = min(command.max_tokens, left), self.now
        self.grown[command.request] += tokens
        done = tokens == left
        row = ChunkRow(
            step=self.step_number, group=command.request.group, sample=command.request.sample,
            chunk=sum((c.group, c.sample) == (command.request.group, command.request.sample) for c in self.chunks),
            instance=command.instance, reason=command.reason, budget_tokens=command.max_tokens, tokens=tokens,
            finish="stop" if done else "chunk", version=self.step_number - 1, dispatched_s=now, submitted_s=now + 1e-3,
            started_s=now + 2e-3, finished_s=now + 2e-3 + tokens * TOKEN_S, received_s=now + 3e-3 + tokens * TOKEN_S,
            prefilled_tokens=20, cached_tokens=0, preemptions=0,
            drafted_tokens=0,
            accepted_tokens=0,
        )  # fmt: skip
        self.chunks.append(row)
        self.later(row.received_s - now, lambda: self.ended(row, done=done))

    def ended(self, row, *, done):
        event = ChunkFinished(
            request=RequestId(row.group, row.sample), instance=row.instance, produced_tokens=row.tokens, done=done
        )
        self.obey(self.tell(event))

    def rewarded(self, request):
        mine = [c for c in self.chunks if (c.group, c.sample) == (request.group, request.sample)]
        row = RequestRow(
            step=self.step_number, group=request.group, sample=request.sample, prompt_id=f"p{request.group}",
            evaluation=False, prompt_tokens=20, response_tokens=self.grown[request], num_chunks=len(mine),
            finish="stop", reward=1.0, reward_error=None, reward_s=REWARD_S / 2, first_version=mine[0].version,
            last_version=mine[-1].version, offered_s=self.offered_s, started_s=mine[0].started_s,
            finished_s=mine[-1].finished_s, rewarded_s=self.now, preemptions=0, prefilled_tokens=20 * len(mine),
            cached_tokens=0,
        )  # fmt: skip
        self.requests.append(row)
        self.obey(self.tell(SampleRewarded(request=request)))


def write_run(run_dir, config, *, num_steps=40, eval_every=10, num_groups=8, samples=4):
    """Leave what a run of `num_steps` leaves: metrics, and the traces of the last step."""
    run_dir.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    writer = MetricsWriter(run_dir, config, resolved={}, name="toy", first_step=0)
    for step in range(num_steps + 1):
        skill = 1 - 0.8 * np.exp(-3 * step / num_steps)
        values = {} if step == 0 else step_values(skill + 0.04 * rng.standard_normal())
        if step % eval_every == 0:
            values |= {"eval/accuracy": 0.95 * skill, "eval/correct_response_len/mean": 20 + 30 * skill}
        writer.log(step, values)
    writer.close()
    requests, chunks = Rollouts().step(num_steps, num_groups=num_groups, samples=samples)
    write_step(run_dir, num_steps, requests, chunks)


def step_values(reward, **changes):
    values = {
        "rollout/raw_reward": float(np.clip(reward, 0, 1)), "rollout/response_len/mean": 38.25,
        "rollout/correct_response_len/mean": 30.0, "rollout/reward_failures": 1.0, "rollout/preemptions": 2.0,
        "rollout/tail_share": 0.25, "perf/step_s": 3.4, "perf/rollout_s": 1.9, "perf/train_s": 1.2,
        "perf/weights_s": 0.1, "perf/tokens_per_s": 4210.4, "perf/rollout_tokens": 8000.0, "train/grad_norm": 0.7,
    }  # fmt: skip
    return values | changes


def summary_of(step, num_steps=40, *, eta_s=95.0, **changes):
    return StepSummary.of(step, num_steps, step_values(0.731, **changes), eta_s)
