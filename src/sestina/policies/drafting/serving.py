"""What chunks add to the steps that they join (EfficientRollout's form, section 4, is of decoding alone).

A step of B sequences that decode and n chunks that join them, and the later one with which these leave, take the plain
steps of B + n sequences (cost.py) and

    c_join + n * c_chunk + c_text * texts + c_row * rows + c_attend * attended

`texts`: tokens that the chunks start from; `rows`: those of them that are computed, beyond the one row of each that
draws; `attended`: tokens before each of these rows, summed. c_chunk is all that is done for a chunk once: its messages
are read and written, its pages found, taken and given back.
"""

from dataclasses import dataclass

from sestina.core.units import Seconds
from sestina.policies.drafting.cost import StepCost


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCost:
    """Coefficients; all in seconds, none negative."""

    chunk_s: Seconds
    """c_chunk: one chunk, from the message of its start to that of its end"""
    text_token_s: Seconds
    """c_text: one token that a chunk starts from, cached or not"""
    join_s: Seconds
    """c_join: a step with chunks that join and one with chunks that leave, over two without"""
    row_s: Seconds
    """c_row: one row of prefill"""
    row_kv_s: Seconds
    """c_attend: such a row over one token before it"""

    def chunk_of(self, *, text: int, cached: int) -> Seconds:
        """Return what one chunk adds that starts from `text` tokens, so many of them cached; c_join is the step's."""
        rows = max(0, text - cached - 1)
        attended = rows * cached + rows * (rows - 1) / 2
        return self.chunk_s + self.text_token_s * text + self.row_s * rows + self.row_kv_s * attended


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinPoint:
    """The step that chunks join and draw a token in, and the one with whose token they leave; measured."""

    batch: int
    """Sequences that decode beside them."""
    sequence_tokens: int
    """Of each of those."""
    chunks: int
    text_tokens: int
    """What each chunk starts from."""
    cached_tokens: int
    """Of these, found in the cache."""
    seconds: Seconds
    """Of both, with what is done for the chunks before and after them; the median of some repetitions."""
    held_out: bool
    """Not fitted to."""


def joined_s(cost: StepCost, serving: ServingCost, point: JoinPoint) -> Seconds:
    """Return what costs foretell for a point."""
    held = point.batch * point.sequence_tokens + point.chunks * point.text_tokens
    each_s = serving.chunk_of(text=point.text_tokens, cached=point.cached_tokens)
    return 2 * cost.plain_s(point.batch + point.chunks, held) + serving.join_s + point.chunks * each_s
