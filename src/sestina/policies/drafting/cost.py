"""What an engine step takes, in closed form (EfficientRollout, section 4; algorithms-and-numbers E-A, E-B).

    M_p = W_T + kappa * N              one reading of the target's weights and of N resident KV tokens
    C(R) = R * (c_dense + c_attn * N/B)    arithmetic of R rows, each over its sequence's context
    T_p = max(M_p, C(B)) + c_T * B         plain decoding of B sequences
    T_q = max(W_D + kappa * N, C(B)) + c_D * B        one step of a drafting model
    T_V = max(M_p, C(B + drafted)) + c_V * B          verification

The paper's W, kappa and C are in bytes and operations; here they are already divided by the device's effective
bandwidth and rate, so that all coefficients are seconds and are fitted to measured steps alone. Those from `step_s` on
are 0 in the paper.
"""

from dataclasses import dataclass

from sestina.core.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Coefficients; all in seconds, none negative."""

    weights_s: Seconds
    """W_T: reading the target's weights"""
    kv_token_s: Seconds
    """kappa: reading one resident KV token"""
    row_s: Seconds
    """c_dense: arithmetic of one row"""
    row_kv_s: Seconds
    """c_attn: arithmetic of one row over one token of its context"""
    plain_sequence_s: Seconds
    """c_T"""
    verify_sequence_s: Seconds
    """c_V"""
    draft_token_s: Seconds
    """c_D: one drafted token, whatever drafts it"""
    draft_weights_s: Seconds | None = None
    """W_D: reading a drafting model's weights; None when drafts are looked up and no model runs"""
    step_s: Seconds = 0.0
    """Constant part of every forward pass."""
    verify_step_s: Seconds = 0.0
    """Constant part of every verification, beyond that."""
    verify_token_s: Seconds = 0.0
    """A drafted token's row in a verification, beyond its arithmetic: norms, sampling."""
    draft_step_s: Seconds = 0.0
    """Constant part of looking drafts up, or of each step of a drafting model."""

    def plain_s(self, batch: int, kv_tokens: int) -> Seconds:
        """Return T_p of `batch` sequences that hold `kv_tokens` together."""
        read_s = self.weights_s + self.kv_token_s * kv_tokens
        return max(read_s, self._rows_s(batch, batch, kv_tokens)) + self.plain_sequence_s * batch + self.step_s

    def speculative_s(self, batch: int, kv_tokens: int, *, drafted: float, longest: int) -> Seconds:
        """Return the time of `drafted` draft tokens, the longest path of `longest`, and of their verification."""
        draft_s = self.draft_s(batch, kv_tokens, drafted=drafted, longest=longest)
        return draft_s + self.verify_s(batch, kv_tokens, drafted=drafted)

    def verify_s(self, batch: int, kv_tokens: int, *, drafted: float) -> Seconds:
        """Return T_V of `drafted` draft tokens, all sequences together."""
        read_s = self.weights_s + self.kv_token_s * kv_tokens
        rows_s = self._rows_s(batch + drafted, batch, kv_tokens)
        further_s = self.verify_sequence_s * batch + self.verify_token_s * drafted + self.verify_step_s
        return max(read_s, rows_s) + further_s + self.step_s

    def draft_s(self, batch: int, kv_tokens: int, *, drafted: float, longest: int) -> Seconds:
        """Return the time of drafting: `longest` steps of a drafting model, if there is one, and c_D for each token."""
        token_s = self.draft_token_s * drafted
        if self.draft_weights_s is None:
            return token_s + self.draft_step_s
        read_s = self.draft_weights_s + self.kv_token_s * kv_tokens
        step_s = max(read_s, self._rows_s(batch, batch, kv_tokens)) + self.step_s + self.draft_step_s
        return token_s + longest * step_s

    def _rows_s(self, rows: float, batch: int, kv_tokens: int) -> Seconds:
        return rows * (self.row_s + self.row_kv_s * kv_tokens / batch)
