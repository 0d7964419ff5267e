"""The embedded engine: a Qwen2 decoder in this process, on CPU or CUDA, with every mechanism of a serving engine.

One step: plan rows (batcher) -> forward pass (qwen2) -> draw tokens (ops) -> record them (batcher).
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

import numpy as np
import torch
from torch import Tensor

from sestina.core.errors import EngineError
from sestina.core.ids import RequestId
from sestina.core.noise import request_key
from sestina.core.records import ChunkRequest, ChunkResult, EngineInfo, EngineLoad, Finish, KvUse
from sestina.core.units import Seconds, Version
from sestina.kvpool.pool import Pool
from sestina.models.shape import ModelShape
from sestina.models.weights import check_tensors
from sestina.policies.drafting.cost import StepCost
from sestina.rollout.batcher import Batcher, Propose
from sestina.rollout.config import TorchEngineConfig
from sestina.rollout.drafts import Drafts, IntArray
from sestina.rollout.engine import Clock, Interruption, check_chunk
from sestina.rollout.forced import hold_to
from sestina.rollout.fused import Common
from sestina.rollout.job import Job
from sestina.rollout.kv_moves import KvMoves, keeps
from sestina.rollout.ops import Ops, StepInputs, step_inputs
from sestina.rollout.ops_native import NativeOps
from sestina.rollout.ops_torch import TorchOps
from sestina.rollout.pages import PAGE_TOKENS, PagePool, pages_for
from sestina.rollout.qwen2 import Qwen2
from sestina.rollout.selfcheck import gemm_is_batch_invariant
from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.costs import measure
from sestina.rollout.speculation.host import BuildSpeculator, Host
from sestina.rollout.speculation.rest import Rest
from sestina.rollout.speculation.speculator import Outcome, Speculator
from sestina.rollout.step import Step, moves, rows_of
from sestina.rollout.taken import OnStep, taken_of


class TorchEngine:
    """Implements `Engine`; see there for what each method mutates and raises.

    `drafter` makes a speculator that runs a model of its own beside the engine's; there is one speculator at most.
    With a speculator, `cost` is what steps take; None measures it when the first weights are there. `kv_thread` reads
    and writes for the pool. Engines with the same `common` are of one thread. `on_step` hears of every step.
    """

    def __init__(
        self,
        config: TorchEngineConfig,
        shape: ModelShape,
        *,
        max_context_tokens: int,
        seed: int,
        stop_token: int,
        speculator: Speculator | None = None,
        clock: Clock = time.monotonic,
        drafter: BuildSpeculator | None = None,
        kv_pool: Pool | None = None,
        kv_thread: Executor | None = None,
        interruption: Interruption = "refuse",
        cost: StepCost | None = None,
        common: Common | None = None,
        on_step: OnStep | None = None,
    ) -> None:
        self._clock = clock
        self._on_step = on_step
        self._config = config
        self._interruption: Interruption = interruption
        self._shape = shape
        self._seed = seed
        self._stop_token = stop_token
        self._device = torch.device(config.device)
        slots = SlotTable(num_slots=config.max_running, max_context_tokens=max_context_tokens)
        self._pool = PagePool(config.kv_capacity_tokens // PAGE_TOKENS)
        self._ops = _build_ops(config, shape, max_context_tokens)
        self._model = Qwen2(
            shape,
            self._ops,
            device=self._device,
            dtype=getattr(torch, config.dtype),
            num_pages=self._pool.num_pages,
            max_step_tokens=config.max_step_tokens,
            common=None if drafter else common,  # it rounds weights that stay where they are
        )
        self._kv = None if kv_pool is None else KvMoves(kv_pool, self._model, clock=clock, thread=kv_thread)
        self._batcher = Batcher(
            slots=slots,
            pool=self._pool,
            max_step_tokens=config.max_step_tokens,
            restore=self._kv and self._kv.restore,
        )
        self._drafter = None if drafter is None else drafter(self._host())
        self._speculator = speculator or self._drafter
        self._rest = Rest()
        self._max_context_tokens = max_context_tokens
        self._jobs: dict[RequestId, Job] = {}
        self._ended: list[tuple[Job, Finish]] = []
        self._version: Version | None = None
        self._cost = cost
        self._submitted = self._steps = self._decoded = self._prefilled = self._cached = self._preemptions = 0

    @property
    def version(self) -> Version | None:
        """See `Engine.version`."""
        return self._version

    @property
    def idle(self) -> bool:
        """See `Engine.idle`."""
        return not self._jobs and not (self._kv and self._kv.busy)

    def submit(self, request: ChunkRequest) -> None:
        """See `Engine.submit`."""
        job = self._job(request)
        self._jobs[request.id] = job
        self._submitted += 1
        if self._kv is None or not self._kv.fetch(job, partial(self._num_cached, job)):
            self._batcher.waiting.append(job)

    def abort(self, ids: list[RequestId]) -> None:
        """See `Engine.abort`."""
        for job in [self._jobs.pop(id) for id in ids if id in self._jobs]:
            if self._kv is None or not self._kv.withdraw(job):
                self._batcher.abort(job)
            self._ended.append((job, "abort"))
            if self._speculator:
                self._speculator.leave(job, "abort")

    def step(self) -> list[ChunkResult]:
        """See `Engine.step`."""
        ended, self._ended = self._ended, []
        if self._kv:
            self._batcher.waiting.extend(self._kv.fetched())
        if self._batcher.waiting or self._batcher.running:
            ended += self._advance()
        elif self._kv and self._kv.busy:
            self._kv.wait()
        if self._kv:
            ended += self._kv.stored()
        now = self._clock()
        return [self._report(job, finish, now) for job, finish in ended]

    def load_weights(self, version: Version, tensors: Mapping[str, torch.Tensor]) -> None:
        """See `Engine.load_weights`."""
        if self._jobs and self._interruption == "refuse":
            raise EngineError(f"weights of version {version} arrived with {len(self._jobs)} chunks in flight")
        self._version = None
        check_tensors(tensors, self._shape, f"weights of version {version}")
        self._model.load(tensors)
        self._batcher.change_weights(version, keep_kv=self._interruption == "keep_kv")
        if self._speculator or self._kv:
            self._cost = self._cost or measure(self._run_rows, self._config.max_step_tokens)
        if self._speculator and self._cost:
            self._rest.end(self._speculator, self._batcher.slots)
            self._speculator.begin(self._cost)
        if self._kv and self._cost:
            self._kv.begin(version, self._cost.row_s, self._batcher.waiting)
        self._version = version

    def expect(self, upcoming: Sequence[RequestId], near: Sequence[RequestId]) -> None:
        """See `Engine.expect`."""
        if self._kv:
            self._kv.expect(upcoming, near)

    def info(self) -> EngineInfo:
        """See `Engine.info`."""
        config = self._config
        return EngineInfo(
            kv_capacity_tokens=self._pool.num_pages * PAGE_TOKENS,
            page_tokens=PAGE_TOKENS,
            max_running=config.max_running,
            # torch's attention and norms sum by the batch, whatever its products do.
            batch_invariant=isinstance(self._ops, NativeOps)
            and gemm_is_batch_invariant(
                self._shape, self._device, getattr(torch, config.dtype), max_step_tokens=config.max_step_tokens
            ),
            drafter=self._drafter.kernel if self._drafter else "",
        )

    def load(self) -> EngineLoad:
        """See `Engine.load`."""
        return EngineLoad(
            running=len(self._batcher.running),
            waiting=len(self._batcher.waiting),
            kv_used_tokens=(self._pool.num_pages - self._pool.num_available) * PAGE_TOKENS,
            kv=self._kv_use(),
            steps=self._steps,
            decoded_tokens=self._decoded,
            prefilled_tokens=self._prefilled,
            cached_tokens=self._cached,
            preemptions=self._preemptions,
        )

    def close(self) -> None:
        """See `Engine.close`; nothing outlives the process."""
        if self._kv:
            self._kv.close()

    def _kv_use(self) -> KvUse:
        """A page that several hold is held once; chunks that have none yet may find none to share."""
        held = self._pool.num_pages - self._pool.num_available
        growth = sum(max(0, pages_for(job.limit) - len(job.pages)) for job in self._jobs.values())
        return KvUse(
            submitted=self._submitted,
            peak_tokens=(held + growth) * PAGE_TOKENS,
            capacity_tokens=self._pool.num_pages * PAGE_TOKENS,
        )

    def _advance(self) -> list[tuple[Job, Finish]]:
        began_s = self._clock()
        step = self._batcher.plan(began_s, self._asked())
        if self._on_step:
            self._on_step(taken_of(step, self._batcher))
        inputs = step_inputs(step, self._batcher.slots, self._device)
        tokens, logprobs = self._draw(self._model.forward(inputs), inputs, step)
        ended = self._batcher.complete(step, tokens.cpu().numpy(), logprobs.cpu().numpy(), self._stop_token)
        self._keep_path(step)
        self._count(inputs, began_s, step)
        for job, finish in ended:
            del self._jobs[job.request.id]
            if self._speculator:
                self._speculator.leave(job, finish)
            if self._kv and keeps(job, finish):
                self._kv.store(job, finish)
        return [(job, finish) for job, finish in ended if self._kv is None or not keeps(job, finish)]

    def _num_cached(self, job: Job) -> int:
        """Return how many tokens of a chunk are in pages."""
        pages = self._pool.match(job.known[:-1])
        self._pool.release(pages)
        return len(pages) * PAGE_TOKENS

    def _draw(self, logits: Tensor, inputs: StepInputs, step: Step) -> tuple[Tensor, Tensor]:
        drawn = self._drafter.draw(logits, inputs, step) if self._drafter else self._ops.sample(logits, inputs)
        stops = self._batcher.slots.stops[step.drawing]
        if not stops.any():
            return drawn
        return hold_to(stops, drawn, logits, inputs, self._ops, self._stop_token)

    def _run_rows(self, rows: int) -> None:
        """Do a forward pass of so many rows, each the first of a text; nothing may be running."""
        nothing = np.zeros(rows, np.int32)
        inputs = step_inputs(rows_of(nothing, nothing), self._batcher.slots, self._device)
        self._ops.sample(self._model.forward(inputs), inputs)[0].cpu()

    def _host(self) -> Host:
        return Host(
            model=self._model,
            ops=self._ops,
            slots=self._batcher.slots,
            device=self._device,
            stop_token=self._stop_token,
            num_slots=self._config.max_running,
            reserve=self._batcher.reserve,
        )

    def _asked(self) -> Propose | None:
        """Return who is asked for drafts of the next step; nobody while the speculator rests."""
        if self._speculator is None or self._rest.left or not self._batcher.decodes:
            return None
        return self._propose

    def _propose(self, slots: IntArray, most: IntArray) -> Drafts | None:
        assert self._speculator is not None
        return self._speculator.propose(self._batcher.slots, slots, most)

    def _keep_path(self, step: Step) -> None:
        """Move the KV of what was accepted out of a tree to where it belongs."""
        verified = self._batcher.verified
        if verified is None or step.branches is None:
            return
        slots, cells, targets = moves(step, verified)
        table = self._batcher.slots
        source, target = table.cache_slots(slots, cells), table.cache_slots(slots, targets)
        self._model.move(torch.from_numpy(source).to(self._device), torch.from_numpy(target).to(self._device))

    def _count(self, inputs: StepInputs, began_s: Seconds, step: Step) -> None:
        verified = self._batcher.verified
        self._steps += 1
        self._prefilled += inputs.rows - inputs.draws
        self._decoded += inputs.draws if verified is None else int(verified.counts.sum())
        if self._speculator is None:
            return
        seconds = self._clock() - began_s
        table, slots = self._batcher.slots, step.requests
        if not self._rest.left:
            self._rest.left = self._speculator.learn(table, Outcome(step=step, verified=verified, seconds=seconds))
        elif len(slots):
            self._rest.passed(slots, seconds)
            if not (self._rest.left and self._batcher.running):
                self._rest.tell(self._speculator, table)

    def _report(self, job: Job, finish: Finish, now: Seconds) -> ChunkResult:
        self._cached += job.cached_tokens
        self._preemptions += job.preemptions
        return job.result(finish, now)

    def _job(self, request: ChunkRequest) -> Job:
        if self._version is None:
            raise EngineError(f"request {request.id}: no verified weights are loaded")
        if request.id in self._jobs:
            raise EngineError(f"request {request.id} is already in the engine")
        check_chunk(
            request,
            vocab_size=self._shape.vocab_size,
            max_context_tokens=self._max_context_tokens,
            kv_capacity_tokens=self._pool.num_pages * PAGE_TOKENS,
        )
        return Job(
            request=request,
            key=request_key(self._seed, request.id),
            submitted_s=self._clock(),
            version=self._version,
            known=np.concatenate([request.prompt, request.generated]).astype(np.int32),
        )


def _build_ops(config: TorchEngineConfig, shape: ModelShape, max_positions: int) -> Ops:
    if config.device == "cpu" and config.dtype == "float32":
        return NativeOps(shape, max_positions=max_positions)
    return TorchOps(shape, max_positions=max_positions, device=torch.device(config.device))
