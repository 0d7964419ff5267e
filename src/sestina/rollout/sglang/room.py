"""What the chunks of a server can come to hold of its KV cache, as far as its replies show. No I/O."""

from collections import Counter
from collections.abc import Collection

from sestina.core.ids import GroupId
from sestina.core.records import ChunkRequest
from sestina.rollout.sglang.calls import Flight


def peak_tokens(flights: Collection[Flight], page_tokens: int) -> int:
    """Return the most that these can come to hold, in whole pages.

    A prompt that a chunk has found in SGLang's cache lies there once for all that have found it, for as long as any of
    them runs. One that has not answered, or has computed its prompt itself, may have it for itself.
    """

    def pages(tokens: int) -> int:
        return -(-tokens // page_tokens)

    needed, saved, found = 0, 0, Counter[GroupId]()
    for flight in flights:
        needed += pages(_limit(flight.chunk))
        shared = (len(flight.chunk.prompt) - 1) // page_tokens  # whatever is cached, a last token is computed
        group = flight.chunk.id.group
        if shared and flight.cached_tokens >= shared * page_tokens:
            saved += shared if found[group] else 0
            found[group] += 1
    return (needed - saved) * page_tokens


def _limit(chunk: ChunkRequest) -> int:
    return len(chunk.prompt) + min(len(chunk.generated) + chunk.max_tokens, chunk.max_new_tokens)
