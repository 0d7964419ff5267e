"""What Seer v3 publishes, by model (algorithms-and-numbers 1.2); nothing of version 1 is here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Motivation:
    """Of one rollout of veRL (section 2)."""

    preemptions: float
    idle: float
    """Mean share of it for which an instance is done."""
    spread: float
    """Share of it between the first instance to be done and the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Of one model."""

    baseline_s: float
    """Figure 8, veRL: seconds of a rollout."""
    baseline_tail_s: float
    """Figure 8, veRL: seconds in which only the last tenth of the responses was left."""
    seer_s: float
    seer_tail_s: float
    divided: float
    """Table 4: throughput over veRL, each row with the ones before it."""
    context: float
    drafting: float
    seer: dict[int, float]
    """Figure 7: throughput over veRL by responses to a prompt."""
    drafts: float
    """Figure 11: throughput of grouped drafts over none."""
    accepted: float
    """Figure 11: tokens of a step with them."""
    motivation: Motivation | None = None


MOONLIGHT = Published(
    baseline_s=3910,
    baseline_tail_s=1817,
    seer_s=2181,
    seer_tail_s=278,
    divided=1.41,
    context=1.47,
    drafting=1.90,
    seer={8: 1.78, 16: 1.83},
    drafts=1.26,
    accepted=1.89,
)
QWEN = Published(
    baseline_s=3957,
    baseline_tail_s=2301,
    seer_s=1922,
    seer_tail_s=123,
    divided=1.42,
    context=1.56,
    drafting=2.04,
    seer={8: 1.82, 16: 2.04},
    drafts=1.38,
    accepted=2.15,
    motivation=Motivation(preemptions=13686, idle=0.37, spread=0.70),
)
KIMI = Published(
    baseline_s=12202,
    baseline_tail_s=3144,
    seer_s=8267,
    seer_tail_s=850,
    divided=1.16,
    context=1.27,
    drafting=1.53,
    seer={8: 1.48, 16: 1.44},
    drafts=1.25,
    accepted=1.77,
)

QWEN_ORACLE = 1.63
"""Figure 10: throughput over veRL with lengths known; its tail is printed as 0.00."""
QWEN_TAILS = {"divided": 0.79, "context": 0.11}
"""Figure 10: tail over veRL's."""
