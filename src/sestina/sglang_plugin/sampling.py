"""Draws tokens with the counter-based noise of core.noise: what the embedded engine draws, SGLang draws.

SGLang carries a 64-bit `sampling_seed` with each request, and uses it only in its deterministic mode, with noise of its
own. Here the seed is the request's noise key, always in use, and the noise is ours. Beside it goes where the response
is to end, if that is given (rollout/forced.py): SGLang filters and merges both with its batches, as one row a request.
"""

# pyright: reportMissingImports=false

import torch
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from torch import Tensor

from sestina.core.units import LogprobArray, TokenArray
from sestina.rollout.noise_torch import exponentials


def register() -> None:
    """Hook the two functions of SGLang that decide a token's noise."""
    HookRegistry.register(
        "sglang.srt.sampling.sampling_batch_info.SamplingBatchInfo.from_schedule_batch", _carry, HookType.AFTER
    )
    HookRegistry.register("sglang.srt.layers.sampler.Sampler._sample_from_probs", _sample, HookType.REPLACE)


def draw(probs: Tensor, *, greedy: Tensor, carried: Tensor, positions: Tensor) -> Tensor:
    """Return [S]: for each row of [S, V] probabilities the token its request chooses, or is held to.

    `carried` [S, 3]: key, index in the sequence of an end of sequence that is given, or 0, and that token. `positions`
    [S] are those of the last known tokens, as in core.noise. A row that must not end yet draws again with the same
    noise, among all other tokens.
    """
    keys, ends, stop_tokens = carried.unbind(1)
    tokens = _choose(probs, greedy, keys, positions)
    early = ((ends > positions + 1) & (tokens == stop_tokens)).nonzero()[:, 0]
    if len(early):
        others = probs[early].scatter(1, stop_tokens[early, None], 0.0)
        tokens[early] = _choose(others, greedy[early], keys[early], positions[early])
    return torch.where(ends == positions + 1, stop_tokens, tokens)


def draw_requests(logits: Tensor, sampling, rows: Tensor, positions: Tensor) -> tuple[TokenArray, LogprobArray]:
    """Return the tokens that `rows` [requests] of each draw by its key and temperature, and their logprobs."""
    of = torch.arange(len(rows)).repeat_interleave(rows)
    return draw_rows(
        logits,
        temperatures=sampling.temperatures[of],
        greedy=_greedy(sampling)[of],
        carried=sampling.sampling_seed[of],
        positions=positions,
    )


def draw_rows(
    logits: Tensor, *, temperatures: Tensor, greedy: Tensor, carried: Tensor, positions: Tensor
) -> tuple[TokenArray, LogprobArray]:
    """Return [R] tokens and logprobs of [R, V] logits, as SGLang's sampler and `draw` come to them."""
    probs = (logits.float() / temperatures).softmax(-1)
    tokens = draw(probs, greedy=greedy, carried=carried, positions=positions)
    logprobs = probs.gather(1, tokens[:, None])[:, 0].log()
    return tokens.int().numpy(), logprobs.numpy()


def _choose(probs: Tensor, greedy: Tensor, keys: Tensor, positions: Tensor) -> Tensor:
    arrival = exponentials(keys, positions, probs.shape[1]).log() - probs.double().log()
    return torch.where(greedy, probs.argmax(-1), arrival.argmin(-1))


def _greedy(sampling) -> Tensor:
    return sampling.top_ks == 1  # how SGLang says that the temperature is 0


def _sample(_sampler, probs, sampling, positions, *_):
    """Stand in for SGLang's sampling, which draws otherwise in a batch of greedy and other requests."""
    tokens = draw(probs, greedy=_greedy(sampling), carried=sampling.sampling_seed, positions=positions)
    return tokens.int(), None


def _carry(info, _cls, batch, *_):
    rows = [_carried(request.sampling_params) for request in batch.reqs]
    carried = torch.tensor(rows, dtype=torch.int64, device=info.temperatures.device).view(-1, 3)
    info.sampling_seed = carried
    if carried[:, 1].any():
        info.is_all_greedy = False  # SGLang would take the likeliest tokens without asking
    return info


def _carried(asked) -> tuple[int, int, int]:
    key, own = asked.sampling_seed or 0, asked.custom_params
    if not own or not own["stop_at"]:
        return key, 0, 0
    [stop_token] = asked.stop_token_ids
    return key, own["prompt_tokens"] + own["stop_at"] - 1, stop_token
