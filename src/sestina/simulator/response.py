"""A response of a simulated rollout, and the rows that it leaves in the traces."""

from dataclasses import dataclass, field, replace

from sestina.core.ids import RequestId
from sestina.core.records import VersionSpan
from sestina.core.units import InstanceId, Seconds, Version
from sestina.policies.events import Dispatch
from sestina.simulator.chunk import Chunk
from sestina.simulator.siblings import Siblings
from sestina.telemetry.traces import ChunkRow, RequestRow


@dataclass(slots=True, kw_only=True, eq=False)
class Response:
    """As the driver keeps it."""

    id: RequestId
    step: int
    prompt_id: str
    prompt_tokens: int
    length: int
    """Tokens, known from the start; the planner is not told."""
    limit: int
    reward_s: Seconds
    offered_s: Seconds
    siblings: Siblings | None = None
    """As of its group in the workload."""
    least_version: Version | None = None
    """Weights that draw it, or newer ones; None: those that are there."""
    generated_tokens: int = 0
    dispatched: tuple[Dispatch, Chunk, Seconds] | None = None
    chunks: list[ChunkRow] = field(default_factory=list[ChunkRow])
    spans: list[VersionSpan] = field(default_factory=list[VersionSpan])
    """Which weights drew which tokens, so far."""
    rewarded_s: Seconds = 0.0
    reward: float = float("nan")
    """Nothing is scored."""

    @property
    def num_tokens(self) -> int:
        """Length of the response so far."""
        return self.generated_tokens

    @property
    def interruptions(self) -> int:
        """How often its weights, or what becomes of its cache, changed in the middle of a chunk."""
        return len(self.spans) - len(self.chunks)

    @property
    def finish(self) -> str:
        """How it ends."""
        return "length" if self.length == self.limit else "stop"

    @property
    def finished_s(self) -> Seconds:
        """When its last token was known."""
        return self.chunks[-1].finished_s

    def start(self, dispatch: Dispatch, now: Seconds) -> Chunk:
        """A chunk leaves for an instance; returns it."""
        tokens = min(dispatch.max_tokens, self.length - self.generated_tokens)
        chunk = Chunk(
            request=self.id,
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self.generated_tokens,
            tokens=tokens,
            budget_tokens=dispatch.max_tokens,
            done=self.generated_tokens + tokens == self.length,
            submitted_s=now,
            siblings=self.siblings,
        )
        self.dispatched = dispatch, chunk, now
        return chunk

    def absorb(self, chunk: Chunk, instance: InstanceId, now: Seconds) -> None:
        """A chunk came back."""
        assert self.dispatched is not None, f"request {self.id}: a chunk came back that was never sent"
        dispatch, _, dispatched_s = self.dispatched
        self.dispatched = None
        self.generated_tokens += chunk.tokens
        self.spans += chunk.spans
        self.chunks.append(
            ChunkRow(
                step=self.step,
                group=self.id.group,
                sample=self.id.sample,
                chunk=len(self.chunks),
                instance=instance,
                reason=dispatch.reason,
                budget_tokens=dispatch.max_tokens,
                tokens=chunk.tokens,
                finish=self.finish if chunk.done else "chunk",
                version=chunk.version,
                dispatched_s=dispatched_s,
                submitted_s=chunk.submitted_s,
                started_s=now if chunk.started_s is None else chunk.started_s,
                finished_s=chunk.finished_s,
                received_s=now,
                prefilled_tokens=chunk.prefilled_tokens,
                cached_tokens=chunk.cached_tokens,
                preemptions=chunk.preemptions,
                drafted_tokens=chunk.drafted_tokens,
                accepted_tokens=chunk.accepted_tokens,
                kv_source=chunk.kv_source,
                kv_loaded_tokens=chunk.kv_loaded_tokens,
                kv_moved_bytes=chunk.kv_moved_bytes,
                kv_s=chunk.kv_s,
            )
        )

    def count_as(self, step: int) -> None:
        """Count as a response of this step, with all its chunks."""
        self.step = step
        self.chunks = [replace(row, step=step) for row in self.chunks]

    def row(self) -> RequestRow:
        """Return the finished response as the traces want it; nothing was scored, so there is no reward."""
        return RequestRow(
            step=self.step,
            group=self.id.group,
            sample=self.id.sample,
            prompt_id=self.prompt_id,
            evaluation=False,
            prompt_tokens=self.prompt_tokens,
            response_tokens=self.generated_tokens,
            num_chunks=len(self.chunks),
            finish=self.finish,
            reward=None,
            reward_error="simulated: no response was scored",
            reward_s=self.reward_s,
            first_version=self.spans[0].version,
            last_version=self.spans[-1].version,
            offered_s=self.offered_s,
            started_s=self.chunks[0].started_s,
            finished_s=self.finished_s,
            rewarded_s=self.rewarded_s,
            preemptions=sum(row.preemptions for row in self.chunks),
            prefilled_tokens=sum(row.prefilled_tokens for row in self.chunks),
            cached_tokens=sum(row.cached_tokens for row in self.chunks),
            **self._beginning,
        )

    @property
    def _beginning(self) -> dict[str, int]:
        return {} if self.siblings is None else self.siblings.beginnings[self.id.sample]._asdict()
