"""A chunk of a response on a simulated instance."""

from dataclasses import dataclass, field

from sestina.core.ids import RequestId
from sestina.core.records import KvSource, VersionSpan
from sestina.core.units import Seconds, Version
from sestina.simulator.siblings import Siblings


@dataclass(slots=True, kw_only=True, eq=False)
class Chunk:
    """What it is, and what has become of it; the instance that it is on mutates it."""

    request: RequestId
    prompt_tokens: int
    generated_tokens: int
    """Of earlier chunks."""
    tokens: int
    """That it will produce."""
    budget_tokens: int
    """That it might have produced."""
    done: bool
    """The response is complete with it."""
    submitted_s: Seconds
    classes: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Of its acceptance, each with the token of the chunk that it goes up to; beyond the last it is of the first."""
    siblings: Siblings | None = None
    """With what the responses of its group begin; None: nothing that any two have in common is known."""
    started_s: Seconds | None = None
    finished_s: Seconds = 0.0
    produced: float = 0.0
    """Tokens so far, up to when it entered its class; a fraction where drafts yield one in the mean."""
    joined_at: float = 0.0
    """Tokens, steps and draft tokens of the instance's counts, when it entered its class."""
    joined_steps: int = 0
    joined_drafts: int = 0
    running_class: int = 0
    ticket: int = 0
    """Of its admission; 0 while it does not run."""
    steps: int = 0
    drafted_tokens: int = 0
    """Both up to when it entered its class."""
    prefilled_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    kv_source: KvSource = "none"
    kv_loaded_tokens: int = 0
    kv_moved_bytes: int = 0
    kv_s: Seconds = 0.0
    version: Version = 0
    """Weights that draw it now."""
    kept_kv: bool = False
    """Whether they do so over keys and values of older ones."""
    spans: list[VersionSpan] = field(default_factory=list[VersionSpan])
    """Of earlier weights, or another cache; when it has ended, of all its tokens."""

    def stage(self) -> tuple[int, int]:
        """Return the token of the chunk at which its class changes, or it ends, and its class until then."""
        ahead = ((end, number) for end, number in self.classes if end > self.produced)
        end, number = next(ahead, (self.tokens, 0))
        return min(end, self.tokens), number

    @property
    def accepted_tokens(self) -> int:
        """Of an ended chunk: what it has beyond the one token that each step draws."""
        return max(0, self.tokens - self.steps) if self.drafted_tokens else 0

    @property
    def own_tokens(self) -> float:
        """Tokens of the response whose keys and values it has, as of when it entered its class."""
        return self.generated_tokens + self.produced

    @property
    def context_tokens(self) -> float:
        """The same with the prompt."""
        return self.prompt_tokens + self.own_tokens

    def turn(self, version: Version, *, kept_kv: bool) -> None:
        """Close the span of the tokens so far, all of them whole; the next are drawn otherwise."""
        drawn = int(self.produced) - sum(span.num_tokens for span in self.spans)
        if drawn:
            self.spans.append(VersionSpan(version=self.version, num_tokens=drawn, kept_kv=self.kept_kv))
        self.version, self.kept_kv = version, kept_kv
