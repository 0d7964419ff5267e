"""What DAPO adds to rewards (Yu et al. 2025, arXiv 2503.14476): a penalty on length, before the limit cuts it off.

Its clip-higher and token mean are settings that every objective has; its dynamic sampling leaves out groups whose
rewards are all equal, before they make a batch.
"""

from jaxtyping import Float, Int
from torch import Tensor


def overlong_penalties(
    lengths: Int[Tensor, " n"], *, max_tokens: int, margin_tokens: int, penalty: float
) -> Float[Tensor, " n"]:
    """Return what each response loses: 0 up to max - margin tokens, then linearly up to `penalty` (equation 13)."""
    excess = (lengths.double() - (max_tokens - margin_tokens)).clamp(min=0)
    return penalty * (excess / max(margin_tokens, 1)).clamp(max=1).float()
