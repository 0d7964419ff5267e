"""Chunks as one request to SGLang. No I/O."""

from collections.abc import Mapping

import msgspec

from sestina.core.noise import request_key
from sestina.core.records import ChunkRequest
from sestina.rollout.sglang.drafting import whose


def generate_body(chunks: Mapping[str, ChunkRequest], *, seed: int, stop_token: int) -> bytes:
    """Return the body of /generate that asks for chunks by their request ids.

    One call for many costs SGLang a third of one for each. The reply is a stream, so that each chunk comes when it
    ends.
    """
    body = {
        "rid": list(chunks),
        "input_ids": [[*chunk.prompt.tolist(), *chunk.generated.tolist()] for chunk in chunks.values()],
        "sampling_params": [_sampling(chunk, seed, stop_token) for chunk in chunks.values()],
        "return_logprob": True,
        "stream": True,
    }
    return msgspec.json.encode(body)


def _sampling(chunk: ChunkRequest, seed: int, stop_token: int) -> dict[str, object]:
    return {
        "max_new_tokens": min(chunk.max_tokens, chunk.max_new_tokens - len(chunk.generated)),
        "temperature": chunk.temperature,
        "stop_token_ids": [stop_token],
        "sampling_seed": signed(request_key(seed, chunk.id)),
        "stream_interval": chunk.max_new_tokens,  # its first token is sent, and then its end
        "custom_params": whose(chunk),
    }


def signed(key: int) -> int:
    """Return a 64-bit key as the signed number of the same bits, which is how SGLang carries a seed."""
    return key - (1 << 64) if key >> 63 else key
