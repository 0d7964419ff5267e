"""An instance's suffix index, kept in step with those of other instances through draft servers."""

import logging
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sestina.core.errors import RunDirError
from sestina.core.ids import RequestId
from sestina.core.units import Seconds, TokenArray, Version
from sestina.drafting.drafts import DraftBuffers, HandleArray
from sestina.drafting.index import DraftSettings, IndexSettings, SuffixIndex
from sestina.drafting.service.client import DraftClient
from sestina.drafting.service.keys import read_client_keys

_log = logging.getLogger(__name__)

TTL_S: Seconds = 300.0
"""Of a group that nothing runs in, here and at its server."""
VERSION = 1 << 41
"""Above every group: what other weights said is of other groups, whichever instance has them first."""
COUNTS = ("tokens_taken_over", "lost_exchanges", "refused_frames", "conflicts", "pauses", "unreachable")


class SharedIndex:
    """What `SuffixSpeculator` asks of an index; while there is no server, one of this instance's responses alone."""

    def __init__(self, settings: IndexSettings) -> None:
        self._client = DraftClient(SuffixIndex(settings))
        self._version: Version = 0

    def connect(self, addresses: tuple[str, ...], keys: Path) -> None:
        """Exchange through these servers from here on; without the run's keys drafts stay this instance's own."""
        try:
            self._client.connect(addresses, read_client_keys(keys))
        except RunDirError as error:
            _log.warning("drafts are of this instance's responses alone: %s", error)

    def begin(self, version: Version) -> None:
        """Forget what other weights said."""
        self._client.forget()
        self._version = version

    def start_request(self, id: RequestId, prompt: TokenArray, said: TokenArray) -> int:
        """Decode a response here that has said `said` so far; returns its handle; raises IndexFullError."""
        group = self._version * VERSION + id.group
        self._client.register_group(group, prompt, TTL_S)
        return self._client.start_request(group, id.sample, said)

    def append(
        self, handles: HandleArray, offsets: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64], tokens: TokenArray
    ) -> None:
        """See SuffixIndex.append."""
        self._client.append(handles, offsets, bounds, tokens)

    def draft(self, handles: HandleArray, max_tokens: npt.NDArray[np.int32], settings: DraftSettings) -> DraftBuffers:
        """See SuffixIndex.draft."""
        return self._client.draft(handles, max_tokens, settings)

    def stop_request(self, handle: int) -> None:
        """Its chunk has left: what it says elsewhere is taken over from there."""
        self._client.stop_request(handle)

    def exchange(self, now: Seconds) -> None:
        """Tell the servers what is said here and take in what is said elsewhere; never waits."""
        self._client.pump(now)

    @property
    def counts(self) -> dict[str, int]:
        """Of the exchanges since the start, by name."""
        counts = self._client.counts
        return {f"service_{name}": counts.get(name, 0) for name in COUNTS} | {
            "service_replies": self._client.num_replies
        }

    def close(self) -> None:
        """Disconnect."""
        self._client.close()
