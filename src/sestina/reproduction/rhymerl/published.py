"""What RhymeRL publishes of mathematics with 14 B parameters, and of its averages (algorithms-and-numbers 4.2)."""

from collections.abc import Mapping

IDLE = 0.46
"""Section 1: share of GPU time in which veRL is idle, "over 46 %"; taken for that of a rollout."""
EARLIEST_IDLE = 0.76
"""Figure 3c: share of a rollout of veRL for which the GPU that is done first is idle."""
ROLLOUT_SHARE = 0.91
"""Figure 2: of a step of veRL, mathematics, responses of up to 16 K tokens."""

HISTOPIPE, TWO_TIER, HISTOSPEC = 1.43, 1.10, 1.50
"""Figure 14: throughput of each over the one before, of responses of up to 16 K tokens."""

OVER_VERL: Mapping[int, float] = {8192: 1.9, 16384: 2.3}
"""Figure 13, as section 7.1 has it: RhymeRL's throughput over veRL's, means over models and tasks."""
OVER_AREAL: Mapping[int, Mapping[int, float]] = {8192: {1: 1.6, 8: 1.3}, 16384: {1: 1.8, 8: 1.4}}
"""The same over AReaL's, by eta."""

ACCEPTANCE = (0.65, 0.79)
"""Figure 17: share of draft tokens that are accepted, from the first steps to the last."""

SIMILARITY: Mapping[str, float] = {"mathematics": 0.93, "code": 0.75}
"""Section 5.1: share of a response's tokens that follow on a match of three tokens in the last epoch."""

RANKS: Mapping[int, tuple[float, float]] = {8: (0.857, 0.0149), 16: (0.797, 0.0247)}
"""Table 2, Math-1: shares that are of no higher rank than an epoch ago, and that migrate, by ranking groups."""

FIRST_TOKENS, LAST_TOKENS, GROWTH_STEPS = 1000, 10000, 320
"""Figure 3a: mean length of a response at the first step, and after so many."""
WARM_UP, STEPS = 20, 80
"""Section 7: the steps from which on is measured, and those of a run."""
