"""Responses whose length is given: the end of sequence is drawn where it was recorded, and nowhere before.

Comparisons of schedulers and drafts are then of equal work, whatever the weights have come to prefer. Logprobs stay
those of the model's own distribution, as the trainer computes them.
"""

import dataclasses

import numpy as np
import torch
from torch import Tensor

from sestina.rollout.drafts import IntArray
from sestina.rollout.ops import Ops, StepInputs

NOWHERE = -1e30
"""Logit of what may not be drawn: finite, so that no kernel meets a NaN."""


def hold_to(
    stops: IntArray, drawn: tuple[Tensor, Tensor], logits: Tensor, inputs: StepInputs, ops: Ops, stop_token: int
) -> tuple[Tensor, Tensor]:
    """Return tokens and logprobs [S] under forced lengths, written into those that were drawn from `logits` [S, V].

    `stops` [S]: index in the sequence of the end of sequence, for each row that draws; 0: where the model draws it.
    A row that must not end draws again with the same noise, among all other tokens.
    """
    tokens, logprobs = drawn
    at = inputs.sampled_positions.cpu().numpy() + 1
    ends = tokens.cpu().numpy() == stop_token
    early = np.flatnonzero((stops > at) & ends)
    due = np.flatnonzero((stops == at) & ~ends)
    if len(early):
        rows = torch.from_numpy(early).to(logits.device)
        again = _rows(inputs, rows)
        held = logits[rows]
        held[:, stop_token] = NOWHERE
        tokens[rows], _ = ops.sample(held, again)
        logprobs[rows] = _logprobs(logits[rows], again.temperature, tokens[rows])
    if len(due):
        rows = torch.from_numpy(due).to(logits.device)
        tokens[rows] = stop_token
        logprobs[rows] = _logprobs(logits[rows], inputs.temperature[rows], tokens[rows])
    return tokens, logprobs


def _rows(inputs: StepInputs, rows: Tensor) -> StepInputs:
    """Return what `Ops.sample` needs of these of the rows that draw."""
    return dataclasses.replace(
        inputs,
        keys=inputs.keys[rows],
        sampled_positions=inputs.sampled_positions[rows],
        temperature=inputs.temperature[rows],
    )


def _logprobs(logits: Tensor, temperature: Tensor, tokens: Tensor) -> Tensor:
    """Return [S] float32, in double precision on the way: a row's value is the same in any batch."""
    scale = torch.where(temperature > 0, temperature, torch.ones_like(temperature)).double()
    table = torch.log_softmax(logits.double() / scale[:, None], dim=-1)
    return table.gather(-1, tokens.long()[:, None])[:, 0].float()
