"""What EfficientRollout publishes (algorithms-and-numbers 3.2)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A row of table 2 that drafts with the quantised model."""

    prep_s: float
    tau: float
    length: float
    """g, the mean of a run that changes it."""
    accepted: float
    """Of drafted tokens, each given that those before it were."""
    rollout_s: float
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Of a step on one A100, as the authors' calibration has them (their repository)."""

    memory_bytes_s: float
    weights_bytes: float
    drafter_bytes: float
    row_flops: float
    row_kv_flops: float
    kv_token_bytes: float
    drafter_share: float
    """eta_D"""
    plain_s: float
    """c_T, of a sequence"""
    draft_s: float
    """c_D"""
    verify_s: float
    """c_V"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Of one model."""

    name: str
    constants: Constants
    rollout_s: float
    """Table 2, plain decoding."""
    step_s: float
    completed_s: tuple[float, float, float, float]
    """When 50, 90, 99 and 100 % of a rollout's responses are complete, plainly decoded."""
    always: Method
    toggled: Method


FLOPS = 233.5e12
"""F_eff, of all three."""
SHARES = (0.5, 0.9, 0.99, 1.0)
REPLICAS = 8
RESPONSES = 1024
MOST_TOKENS = 8192
_QWEN_COMPLETED_S = (13.0, 22.0, 30.0, 88.0)

QWEN_7B = Published(
    name="Qwen2.5-7B",
    constants=Constants(
        memory_bytes_s=1.617e12,
        weights_bytes=15.231e9,
        drafter_bytes=5.443e9,
        row_flops=1.414e10,
        row_kv_flops=401408,
        kv_token_bytes=26205,
        drafter_share=1.334,
        plain_s=39.0e-6,
        draft_s=69.0e-6,
        verify_s=152.3e-6,
    ),
    rollout_s=82.4,
    step_s=132.6,
    completed_s=_QWEN_COMPLETED_S,
    always=Method(prep_s=1.3, tau=7.5, length=7, accepted=0.982, rollout_s=75.6, step_s=127.6),
    toggled=Method(prep_s=1.3, tau=8.6, length=8.2, accepted=0.982, rollout_s=66.3, step_s=115.7),
)
QWEN_14B = Published(
    name="Qwen2.5-14B",
    constants=Constants(
        memory_bytes_s=1.564e12,
        weights_bytes=29.539e9,
        drafter_bytes=9.721e9,
        row_flops=2.798e10,
        row_kv_flops=983040,
        kv_token_bytes=48070,
        drafter_share=1.271,
        plain_s=50.0e-6,
        draft_s=153.9e-6,
        verify_s=232.3e-6,
    ),
    rollout_s=126.6,
    step_s=221.1,
    completed_s=_QWEN_COMPLETED_S,  # not published of this model: the smaller one's, in proportion
    always=Method(prep_s=2.6, tau=5.6, length=5, accepted=0.973, rollout_s=135.0, step_s=225.4),
    toggled=Method(prep_s=2.6, tau=7.0, length=6.6, accepted=0.976, rollout_s=105.3, step_s=197.2),
)
LLAMA_8B = Published(
    name="Llama3.1-8B",
    constants=Constants(
        memory_bytes_s=1.566e12,
        weights_bytes=16.061e9,
        drafter_bytes=5.592e9,
        row_flops=1.501e10,
        row_kv_flops=524288,
        kv_token_bytes=25163,
        drafter_share=1.405,
        plain_s=74.0e-6,
        draft_s=86.1e-6,
        verify_s=214.2e-6,
    ),
    rollout_s=126.4,
    step_s=186.9,
    completed_s=(10.0, 16.0, 30.0, 123.0),
    always=Method(prep_s=1.4, tau=5.5, length=5, accepted=0.963, rollout_s=118.9, step_s=178.2),
    toggled=Method(prep_s=1.4, tau=5.4, length=5.0, accepted=0.958, rollout_s=112.9, step_s=172.2),
)
MODELS = (QWEN_7B, QWEN_14B, LLAMA_8B)

FIXED_GAINS = {5: 0.135, 11: 0.118}
"""Share by which a toggled rollout of Qwen2.5-7B is shorter with drafts of one length."""
GRID_SPEEDUPS = {1: 1.78, 16: 1.51, 32: 1.25, 64: 0.88}
"""By batch: Qwen2.5-7B at a context of 1024, drafts of 7 and 7.5 tokens of a cycle, from the published latencies."""
GRID_CONTEXT, GRID_LENGTH, GRID_TAU = 1024, 7, 7.5
