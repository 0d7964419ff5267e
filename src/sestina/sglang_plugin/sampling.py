"""Draws tokens with the counter-based noise of core.noise: what the embedded engine draws, SGLang draws.

SGLang carries a 64-bit `sampling_seed` with each request, and uses it only in its deterministic mode, with noise of its
own. Here the seed is the request's noise key, always in use, and the noise is ours.
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
        "sglang.srt.sampling.sampling_batch_info.SamplingBatchInfo.from_schedule_batch", _keep_keys, HookType.AFTER
    )
    HookRegistry.register("sglang.srt.layers.sampler.multinomial_with_seed", draw, HookType.REPLACE)


def draw(logprobs: Tensor, keys: Tensor, positions: Tensor) -> Tensor:
    """Return [S, 1]: for each row of [S, V] log-probabilities the token its key and position choose.

    `positions` are those of the last known tokens, as in core.noise.
    """
    arrival = exponentials(keys, positions, logprobs.shape[1]).log() - logprobs.double()
    return arrival.argmin(-1, keepdim=True)


def draw_requests(logits: Tensor, sampling, rows: Tensor, positions: Tensor) -> tuple[TokenArray, LogprobArray]:
    """Return the tokens that `rows` [requests] of each draw by its key and temperature, and their logprobs.

    Unlike SGLang's sampler this draws the same in a batch of greedy and other requests.
    """
    of = torch.arange(len(rows)).repeat_interleave(rows)
    return draw_rows(
        logits,
        temperatures=sampling.temperatures[of],
        greedy=sampling.top_ks[of] == 1,  # how SGLang says that the temperature is 0
        keys=sampling.sampling_seed[of],
        positions=positions,
    )


def draw_rows(
    logits: Tensor, *, temperatures: Tensor, greedy: Tensor, keys: Tensor, positions: Tensor
) -> tuple[TokenArray, LogprobArray]:
    """Return [R] tokens and logprobs of [R, V] logits, as SGLang's sampler and `draw` come to them."""
    probs = (logits.float() / temperatures).softmax(-1)
    tokens = torch.where(greedy, probs.argmax(-1), draw(probs.double().log(), keys, positions)[:, 0])
    logprobs = probs.gather(1, tokens[:, None])[:, 0].log()
    return tokens.int().numpy(), logprobs.numpy()


def _keep_keys(info, _cls, batch, *_):
    if info.sampling_seed is None:
        keys = [request.sampling_params.sampling_seed or 0 for request in batch.reqs]
        info.sampling_seed = torch.tensor(keys, dtype=torch.int64, device=info.temperatures.device)
    return info
