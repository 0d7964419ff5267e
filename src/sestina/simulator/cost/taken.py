"""What a real engine's step takes by a calibration, whatever it really took."""

from sestina.core.units import Seconds
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.serving import ServingCost
from sestina.rollout.taken import Taken


class CalibratedMeter:
    """Counts what an engine's steps take by a calibration; it is told of each."""

    def __init__(self, cost: StepCost, serving: ServingCost) -> None:
        self._cost, self._serving = cost, serving
        self._counted_s: Seconds = 0.0

    def __call__(self) -> Seconds:
        """Return what all steps so far have taken."""
        return self._counted_s

    def take(self, step: Taken) -> None:
        """Count a step."""
        self._counted_s += taken_s(step, self._cost, self._serving)


def taken_s(step: Taken, cost: StepCost, serving: ServingCost) -> Seconds:
    """Return a step's time: of the sequences that decode, of their drafts, and of the chunks that join it.

    Rows of prefill are counted with their chunk, where it joins, however many steps they are spread over.
    """
    return _decoding_s(step, cost) + _joining_s(step, serving)


def _decoding_s(step: Taken, cost: StepCost) -> Seconds:
    batch, kv_tokens = step.sequences, step.kv_tokens
    if not batch:
        return cost.weights_s + cost.step_s
    if step.drafted_tokens:
        return cost.speculative_s(batch, kv_tokens, drafted=step.drafted_tokens, longest=step.longest_draft)
    looking_s = cost.draft_s(batch, kv_tokens, drafted=0, longest=0) if step.looked else 0.0
    return cost.plain_s(batch, kv_tokens) + looking_s


def _joining_s(step: Taken, serving: ServingCost) -> Seconds:
    if not step.joined:
        return 0.0
    chunks_s = (serving.chunk_of(text=chunk.text_tokens, cached=chunk.cached_tokens) for chunk in step.joined)
    return serving.join_s + sum(chunks_s)
