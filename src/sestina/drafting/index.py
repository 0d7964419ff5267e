"""The grouped suffix index: appends in constant time, drafts without matching anything again.

One automaton per group holds the prompt once and every response that forks from it; each append moves its request's
own pointer, which is where a draft begins. What Seer (arXiv 2511.14617) keeps in its grouped draft server; scores
follow SuffixDecoding (arXiv 2411.04975). Safe for several threads; batches release the GIL.
"""

import numpy as np
import numpy.typing as npt

from sestina.core.errors import DataError
from sestina.core.ids import GroupId
from sestina.core.units import TokenArray
from sestina.drafting import _native
from sestina.drafting.drafts import DraftBuffers, HandleArray
from sestina.drafting.log import LogSlice
from sestina.drafting.settings import DraftSettings, IndexSettings, Rehearsal

MAX_DRAFT_TOKENS: int = _native.MAX_DRAFT_TOKENS


class SuffixIndex:
    """All groups of a process. A request is named by the handle that `start_request` returns."""

    def __init__(self, settings: IndexSettings) -> None:
        """Raise OutOfRangeError when a setting is outside of what is allowed."""
        self.settings = settings
        self._native = _native.SuffixIndex(
            settings.vocab_size, settings.depth, settings.memory_limit_bytes, settings.first_epoch
        )

    def start_group(self, group: GroupId, prompt: TokenArray) -> None:
        """Index a prompt, from which the group's requests fork; raises ExistsError, OutOfRangeError, IndexFullError."""
        self._native.start_group(group, prompt)

    def drop_group(self, group: GroupId) -> None:
        """Forget a group and all of its requests; raises NotFoundError."""
        self._native.drop_group(group)

    def start_request(self, group: GroupId, request: int, *, weight: int = 1) -> int:
        """Start a response of a group and return its handle; raises NotFoundError, ExistsError, OutOfRangeError.

        Every occurrence of it counts `weight`, such as its reward. What has weight 0 is matched but never drafted:
        rewards that may be negative are to be shifted by the caller, as less than 0 is refused.
        """
        return self._native.start_request(group, request, weight)

    def find_request(self, group: GroupId, request: int) -> int:
        """Return the handle of a request, such as one that a replayed log started; raises NotFoundError."""
        return self._native.find_request(group, request)

    def stop_request(self, handle: int) -> None:
        """End a response: it grows and drafts no more, and stays what others draft from; raises NotFoundError."""
        self._native.stop_request(handle)

    def append(
        self, handles: HandleArray, offsets: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64], tokens: TokenArray
    ) -> None:
        """Append tokens[bounds[i] : bounds[i + 1]] to request handles[i], whose token number offsets[i] is the first.

        Tokens that are there already are passed over, so a repeated call changes nothing. All rows or none: raises
        NotFoundError, OutOfRangeError, OffsetGapError, OffsetConflictError, IndexFullError. A request may have one row.
        """
        self._native.append(handles, offsets, bounds, tokens)

    def draft(
        self,
        handles: HandleArray,
        max_tokens: npt.NDArray[np.int32],
        settings: DraftSettings,
        buffers: DraftBuffers | None = None,
    ) -> DraftBuffers:
        """Draft at most max_tokens[i] tokens (64) after the last of request handles[i].

        Returns `buffers`, or new ones; raises NotFoundError, OutOfRangeError, BufferTooSmallError.
        """
        out = buffers or DraftBuffers.for_batch(len(handles), max(0, int(max_tokens.sum())))
        self._native.draft(
            handles,
            max_tokens,
            settings.top_k,
            settings.min_token_prob,
            settings.own_weight,
            settings.min_match,
            settings.threads,
            out.bounds,
            out.token_ids,
            out.parents,
            out.probs,
            out.scores,
            out.match_lens,
        )
        return out

    def rehearse(self, handle: int, text: TokenArray, max_tokens: int, settings: DraftSettings) -> Rehearsal:
        """Append a text in the steps in which a model that says it would have decoded it with drafts.

        Raises NotFoundError, OutOfRangeError.
        """
        num_steps, num_drafted = self._native.rehearse(handle, text, *_limits(max_tokens, settings))
        return Rehearsal(num_tokens=len(text), num_steps=num_steps, num_drafted=num_drafted)

    def time_drafts(self, handles: HandleArray, max_tokens: int, settings: DraftSettings) -> npt.NDArray[np.int64]:
        """Draft for one request after the other and return the nanoseconds of each; raises NotFoundError."""
        return self._native.time_drafts(handles, *_limits(max_tokens, settings))

    def fetch_since(self, group: GroupId, cursor: int) -> LogSlice:
        """Return the records of a group's log from `cursor` on; raises NotFoundError, OffsetGapError beyond its end."""
        epoch, records, starts, tokens = self._native.fetch(group, cursor)
        return LogSlice(group=group, epoch=epoch, cursor=cursor, records=records, starts=starts, tokens=tokens)

    def replay(self, log: LogSlice) -> None:
        """Apply a slice, starting the group with the first; its drafts are then those of the index it came from.

        Records that are there already are passed over. Raises OffsetGapError when some before it are missing,
        OffsetConflictError when it differs or is of another epoch, OutOfRangeError when it is no log.
        """
        self._native.replay(log.group, log.epoch, log.cursor, log.records, log.starts, log.tokens)

    def serialise(self, group: GroupId) -> bytes:
        """Return all of a group as bytes, for `restore`; raises NotFoundError."""
        return self.fetch_since(group, 0).to_bytes()

    def restore(self, raw: bytes) -> GroupId:
        """Build a group from what `serialise` returned; raises DataError, and what `replay` raises."""
        log = LogSlice.from_bytes(raw)
        if log.cursor != 0:
            raise DataError(f"a group is restored from its first record on, not from {log.cursor}")
        self.replay(log)
        return log.group

    def count(self, group: GroupId, tokens: TokenArray) -> int:
        """Return how often a string of 1 to `depth` tokens occurs, weighted; raises NotFoundError, OutOfRangeError."""
        return self._native.count(group, tokens)

    def take_evicted(self) -> list[GroupId]:
        """Return the groups evicted since the last call, oldest first."""
        return self._native.take_evicted()

    @property
    def groups(self) -> list[GroupId]:
        """The groups held, in order."""
        return self._native.groups()

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return self._native.bytes()

    def num_tokens(self, group: GroupId) -> int:
        """Return the tokens of a group, prompt included; raises NotFoundError."""
        return self._native.num_tokens(group)

    def check_integrity(self) -> str:
        """Count everything anew from the text; return the first thing that is wrong, empty if nothing is. Slow."""
        return self._native.check()


def _limits(max_tokens: int, settings: DraftSettings) -> tuple[int, int, float, int, int]:
    return max_tokens, settings.top_k, settings.min_token_prob, settings.own_weight, settings.min_match
