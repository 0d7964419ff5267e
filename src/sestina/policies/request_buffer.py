"""The life cycle of requests under divided rollout (Seer, section 3.2; algorithms-and-numbers S-A).

WAITING --start--> RUNNING --finish_chunk--> WAITING | DONE --drop--> gone
                   RUNNING --end_turn--> PAUSED --observe--> WAITING | DONE
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sestina.core.ids import RequestId
from sestina.core.units import InstanceId
from sestina.policies.events import Begun, GroupSpec

State: TypeAlias = Literal["waiting", "running", "paused", "done"]


@dataclass(slots=True, kw_only=True)
class Entry:
    """One request and what has become of it; owned by the buffer, read by schedulers."""

    id: RequestId
    batch: int
    prompt_tokens: int
    max_new_tokens: int
    recorded_tokens: int | None = None
    """Length of the same response in a recorded run."""
    generated_tokens: int = 0
    """Of the response, what was observed included."""
    num_chunks: int = 0
    state: State = "waiting"
    instance: InstanceId | None = None
    """Where it runs, or ran last."""

    @property
    def speculative(self) -> bool:
        """The group's first request: its length informs the others' (Seer, section 3.3)."""
        return self.id.sample == 0

    @property
    def context_tokens(self) -> int:
        """Tokens an instance must hold before it can continue."""
        return self.prompt_tokens + self.generated_tokens

    @property
    def remaining_tokens(self) -> int:
        """Tokens the response may still grow by."""
        return self.max_new_tokens - self.generated_tokens


class RequestBuffer:
    """Holds every request between its offer and the release of its batch."""

    def __init__(self) -> None:
        self._entries: dict[RequestId, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, request: RequestId) -> Entry:
        return self._entries[request]

    def add(self, batch: int, group: GroupSpec) -> list[Entry]:
        """Create the group's requests, all waiting; returns them in order of sample."""
        entries = [
            Entry(
                id=RequestId(group.group, sample),
                batch=batch,
                prompt_tokens=group.prompt_tokens,
                max_new_tokens=group.max_new_tokens,
                recorded_tokens=group.lengths[sample] if group.lengths else None,
            )
            for sample in range(group.num_samples)
        ]
        for entry in entries:
            assert entry.id not in self._entries, f"request {entry.id} offered twice"
            self._entries[entry.id] = entry
        return entries

    def take_up(self, begun: Begun) -> Entry:
        """A request that nobody has begun here goes on from what it came to elsewhere; returns its entry."""
        entry = self._entries[begun.request]
        assert not entry.num_chunks, f"request {begun.request} was begun here"
        assert not (begun.paused and begun.done), f"request {begun.request} is done and awaits an observation"
        grown = self._grow(entry, begun.generated_tokens, done=begun.done)
        entry.state = "paused" if begun.paused else grown
        return entry

    def start(self, request: RequestId, instance: InstanceId | None) -> None:
        """A waiting request begins a chunk."""
        entry = self._entries[request]
        assert entry.state == "waiting", f"request {request} started while {entry.state}"
        entry.state, entry.instance, entry.num_chunks = "running", instance, entry.num_chunks + 1

    def finish_chunk(self, request: RequestId, produced_tokens: int, *, done: bool) -> Entry:
        """A running request ends its chunk, and with `done` its life on the instances; returns its entry."""
        entry = self._entries[request]
        assert entry.state == "running", f"request {request} ended a chunk while {entry.state}"
        entry.state = self._grow(entry, produced_tokens, done=done)
        return entry

    def end_turn(self, request: RequestId, produced_tokens: int) -> None:
        """A running request ends its chunk and is held back until something is observed."""
        entry = self._entries[request]
        assert entry.state == "running", f"request {request} ended a turn while {entry.state}"
        self._grow(entry, produced_tokens, done=False)
        entry.state = "paused"

    def observe(self, request: RequestId, observed_tokens: int, *, done: bool) -> Entry:
        """A request that was held back goes on behind what was observed, or is done; returns its entry."""
        entry = self._entries[request]
        assert entry.state == "paused", f"request {request} observed something while {entry.state}"
        entry.state = self._grow(entry, observed_tokens, done=done)
        return entry

    def drop(self, request: RequestId) -> Entry:
        """Forget a done request; returns its entry."""
        entry = self._entries.pop(request)
        assert entry.state == "done", f"request {request} dropped while {entry.state}"
        return entry

    @staticmethod
    def _grow(entry: Entry, tokens: int, *, done: bool) -> State:
        """Lengthen a response; returns the state that follows where nothing holds it back."""
        entry.generated_tokens += tokens
        assert entry.remaining_tokens >= 0, f"request {entry.id} grew past {entry.max_new_tokens} tokens"
        assert done or entry.remaining_tokens, f"request {entry.id} has no tokens left yet goes on"
        return "done" if done else "waiting"
