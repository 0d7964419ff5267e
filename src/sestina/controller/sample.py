"""One response on its way: what has come of it so far, and the rows it leaves in the traces."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sestina.controller.observation import Observation, woven
from sestina.core.ids import EVAL_GROUPS, GroupId, RequestId
from sestina.core.records import NO_TURN, ChunkRequest, ChunkResult, VersionSpan
from sestina.core.units import InstanceId, LogprobArray, Seconds, TokenArray, Version
from sestina.data.prompt import Prompt
from sestina.policies.events import Dispatch
from sestina.rewards.outcome import Outcome
from sestina.telemetry.beginnings import ALONE, Beginning, beginnings_of
from sestina.telemetry.traces import ChunkRow, RequestRow

VersionArray: TypeAlias = npt.NDArray[np.int32]
_NO_TOKENS: TokenArray = np.zeros(0, np.int32)
_NO_LOGPROBS: LogprobArray = np.zeros(0, np.float32)
_NOT_DRAWN: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)


@dataclass(slots=True, kw_only=True)
class Sample:
    """A request as the driver keeps it."""

    id: RequestId
    step: int
    prompt: Prompt
    max_new_tokens: int
    temperature: float
    offered_s: Seconds
    stop_at: int = 0
    """As in `ChunkRequest`."""
    turn_token: int = NO_TURN
    """Drawing it has an environment go on with the response."""
    max_turns: int = 1
    """The model's; the last one is not answered."""
    least_version: Version | None = None
    """Weights that draw it, or newer ones; None: those that are there."""
    parts: list[ChunkResult] = field(default_factory=list[ChunkResult])
    observations: list[Observation] = field(default_factory=list[Observation])
    chunks: list[ChunkRow] = field(default_factory=list[ChunkRow])
    outcome: Outcome | None = None
    rewarded_s: Seconds = 0.0
    restored_tokens: int = 0
    """Tokens that an earlier start of the run has generated."""
    _dispatched: tuple[Dispatch, Seconds] | None = None

    @property
    def prompt_id(self) -> str:
        """By which its prompt is known again."""
        return self.prompt.id

    @property
    def tokens(self) -> TokenArray:
        """[response tokens] so far, observed ones included."""
        return woven([part.tokens for part in self.parts], self.observations, lambda seen: seen.tokens, _NO_TOKENS)

    @property
    def logprobs(self) -> LogprobArray:
        """[response tokens] as sampled; 0 where they were observed."""
        return woven(
            [part.logprobs for part in self.parts],
            self.observations,
            lambda seen: np.zeros(len(seen.tokens), np.float32),
            _NO_LOGPROBS,
        )

    @property
    def drawn(self) -> npt.NDArray[np.bool_]:
        """[response tokens] whether the model drew each; the others were observed."""
        return woven(
            [np.ones(len(part.tokens), np.bool_) for part in self.parts],
            self.observations,
            lambda seen: np.zeros(len(seen.tokens), np.bool_),
            _NOT_DRAWN,
        )

    @property
    def spans(self) -> list[VersionSpan]:
        """Which weights drew which tokens, so far."""
        return [span for part in self.parts for span in part.spans if span.num_tokens]

    @property
    def interruptions(self) -> int:
        """How often its weights, or what becomes of its cache, changed in the middle of a chunk."""
        return len(self.spans) - sum(len(part.tokens) > 0 for part in self.parts)

    @property
    def versions(self) -> VersionArray:
        """[drawn tokens] weights that drew each."""
        return np.repeat([s.version for s in self.spans], [s.num_tokens for s in self.spans]).astype(np.int32)

    @property
    def kept_kv(self) -> npt.NDArray[np.bool_]:
        """[drawn tokens] whether each was drawn over keys and values of older weights."""
        return np.repeat([s.kept_kv for s in self.spans], [s.num_tokens for s in self.spans])

    @property
    def num_tokens(self) -> int:
        """Length of the response so far, observed tokens included."""
        return self.num_drawn + sum(len(seen.tokens) for seen in self.observations)

    @property
    def num_drawn(self) -> int:
        """Tokens that the model drew."""
        return sum(len(part.tokens) for part in self.parts)

    @property
    def room(self) -> int:
        """Tokens that the response may still grow by."""
        return self.max_new_tokens - self.num_tokens

    @property
    def paused(self) -> bool:
        """Whether a turn has ended and nothing has come of it yet."""
        answered = bool(self.observations) and self.observations[-1].after == len(self.parts)
        return bool(self.parts) and self.finish == "turn" and not answered and self.outcome is None

    @property
    def reward(self) -> float:
        """NaN when there is none."""
        return float("nan") if self.outcome is None else self.outcome.reward

    @property
    def running(self) -> InstanceId | None:
        """The instance that a chunk of it has been sent to and not come back from."""
        return None if self._dispatched is None else self._dispatched[0].instance

    @property
    def complete(self) -> bool:
        """Whether no token is missing, or none will follow since the environment has failed."""
        return bool(self.parts) and (self.finish in ("stop", "length") or self.outcome is not None)

    @property
    def finish(self) -> str:
        """Why the response ended."""
        return self.parts[-1].finish

    def start(self, dispatch: Dispatch, now: Seconds) -> ChunkRequest:
        """A chunk leaves for an instance; returns what to send."""
        self._dispatched = dispatch, now
        return ChunkRequest(
            id=self.id,
            prompt=self.prompt.tokens,
            generated=self.tokens,
            max_tokens=dispatch.max_tokens,
            max_new_tokens=self.max_new_tokens,
            temperature=self.temperature,
            stop_at=self.stop_at,
            turn_token=self.turn_token if len(self.observations) + 1 < self.max_turns else NO_TURN,
        )

    def observe(self, tokens: TokenArray, *, waited_s: Seconds, cut: bool) -> None:
        """Go on behind these tokens."""
        assert self.paused, f"request {self.id}: something was observed that nobody had asked for"
        self.observations.append(Observation(after=len(self.parts), tokens=tokens, waited_s=waited_s, cut=cut))

    def end_full(self) -> None:
        """End where a turn ended, as a response that has reached its limit."""
        self.parts[-1] = replace(self.parts[-1], finish="length")

    def fail(self, outcome: Outcome, now: Seconds) -> None:
        """End without a reward: the environment has failed."""
        self.outcome, self.rewarded_s = outcome, now

    def absorb(self, result: ChunkResult, *, ahead_s: Seconds, now: Seconds) -> None:
        """A chunk came back; the instance's clock plus `ahead_s` is the controller's."""
        assert self._dispatched is not None, f"request {self.id}: a chunk came back that was never sent"
        dispatch, dispatched_s = self._dispatched
        self._dispatched = None
        self.parts.append(result)
        self.chunks.append(
            ChunkRow(
                step=self.step,
                group=self.id.group,
                sample=self.id.sample,
                chunk=len(self.chunks),
                instance=dispatch.instance,
                reason=dispatch.reason,
                budget_tokens=dispatch.max_tokens,
                tokens=len(result.tokens),
                finish=result.finish,
                version=result.version,
                dispatched_s=dispatched_s,
                submitted_s=result.submitted_s + ahead_s,
                started_s=result.started_s + ahead_s,
                finished_s=result.finished_s + ahead_s,
                received_s=now,
                prefilled_tokens=result.prefilled_tokens,
                cached_tokens=result.cached_tokens,
                preemptions=result.preemptions,
                drafted_tokens=result.drafted_tokens,
                accepted_tokens=result.accepted_tokens,
                kv_source=result.kv.source,
                kv_target=result.kv.target,
                kv_loaded_tokens=result.kv.loaded_tokens,
                kv_moved_bytes=result.kv.moved_bytes,
                kv_demoted=result.kv.demoted,
                kv_evicted=result.kv.evicted,
                kv_s=result.kv.seconds,
            )
        )

    def count_as(self, step: int) -> None:
        """Count as a sample of this step, with all its chunks."""
        self.step = step
        self.chunks = [replace(chunk, step=step) for chunk in self.chunks]

    def row(self, beginning: Beginning = ALONE) -> RequestRow:
        """Return the finished request as the traces want it; `beginning`: its own among its siblings'."""
        assert self.outcome is not None, f"request {self.id} has no outcome yet"
        failed = self.outcome.kind != "ok"
        return RequestRow(
            step=self.step,
            group=self.id.group,
            sample=self.id.sample,
            prompt_id=self.prompt_id,
            evaluation=self.id.group >= EVAL_GROUPS,
            prompt_tokens=len(self.prompt.tokens),
            response_tokens=self.num_tokens,
            num_chunks=len(self.chunks),
            finish=self.finish,
            reward=None if failed else self.outcome.reward,
            reward_error=self.outcome.error,
            reward_s=self.outcome.elapsed_s,
            first_version=self.spans[0].version,
            last_version=self.parts[-1].version,
            offered_s=self.offered_s,
            started_s=self.chunks[0].started_s,
            finished_s=self.chunks[-1].finished_s,
            rewarded_s=self.rewarded_s,
            preemptions=sum(part.preemptions for part in self.parts),
            prefilled_tokens=sum(part.prefilled_tokens for part in self.parts),
            cached_tokens=sum(part.cached_tokens for part in self.parts),
            **beginning._asdict(),
        )


def rows_of(samples: Sequence[Sample]) -> list[RequestRow]:
    """Return finished requests as the traces want them, in their order; siblings among them are compared."""
    groups: dict[GroupId, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.id.group].append(sample)
    beginnings = {
        sample.id: beginning
        for siblings in groups.values()
        for sample, beginning in zip(siblings, beginnings_of([each.tokens for each in siblings]), strict=True)
    }
    return [sample.row(beginnings[sample.id]) for sample in samples]
