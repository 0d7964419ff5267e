"""What a simulated rollout came to: metrics under the names of a real run's."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sestina.core.units import Seconds
from sestina.simulator.response import Response
from sestina.telemetry.traces import tail_start


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Of one step, in virtual time but for the last; in asynchronous training, the trainer's."""

    rollout_s: Seconds
    train_s: Seconds
    weights_s: Seconds
    simulation_s: Seconds
    """What it took here."""

    @property
    def step_s(self) -> Seconds:
        """The whole step."""
        return self.rollout_s + self.train_s + self.weights_s


def step_metrics(responses: Sequence[Response], spans: Spans, uncalibrated: Sequence[str]) -> dict[str, float]:
    """Return the line of a step; a metric `perf/uncalibrated/NAME` for each assumed value that it rests on."""
    tokens = float(sum(response.generated_tokens for response in responses))
    perf = {
        "rollout_s": spans.rollout_s,
        "train_s": spans.train_s,
        "weights_s": spans.weights_s,
        "step_s": spans.step_s,
        "rollout_tokens": tokens,
        "tokens_per_s": tokens / spans.rollout_s if spans.rollout_s else float("nan"),
        "simulation_s": spans.simulation_s,
        **{f"uncalibrated/{name}": 1.0 for name in uncalibrated},
    }
    return _rollout(responses) | {f"perf/{name}": value for name, value in perf.items()}


def finished_after(responses: Sequence[Response]) -> list[Seconds]:
    """Return when responses had finished, since their offer, rising."""
    return sorted(response.finished_s - response.offered_s for response in responses)


def _rollout(responses: Sequence[Response]) -> dict[str, float]:
    lengths = np.array([response.generated_tokens for response in responses])
    chunks = [row for response in responses for row in response.chunks]
    finished = finished_after(responses)
    tokens, accepted = int(lengths.sum()), sum(row.accepted_tokens for row in chunks)
    values = {
        "rollout/response_len/mean": lengths.mean(),
        "rollout/response_len/max": lengths.max(),
        "rollout/response_len/p90": np.quantile(lengths, 0.9),
        "rollout/truncated_ratio": np.mean([response.finish == "length" for response in responses]),
        "rollout/reward_s/mean": np.mean([response.reward_s for response in responses]),
        "rollout/chunks": len(chunks),
        "rollout/preemptions": sum(row.preemptions for row in chunks),
        "rollout/prefilled_tokens": sum(row.prefilled_tokens for row in chunks),
        "rollout/cached_tokens": sum(row.cached_tokens for row in chunks),
        "rollout/kv_moved_bytes": sum(row.kv_moved_bytes for row in chunks),
        "rollout/tail_share": (finished[-1] - tail_start(finished)) / max(finished[-1], 1e-9),
        "spec/drafted_tokens": sum(row.drafted_tokens for row in chunks),
        "spec/accepted_tokens": accepted,
        "spec/acceptance_length": tokens / max(1, tokens - accepted),
    }
    return {name: float(value) for name, value in values.items()}
