"""What SGLang carries from the drafting worker to the attention."""

# pyright: reportMissingImports=false

from sglang.srt.speculative.spec_info import SpecInput, SpecInputType

from sestina.rollout.drafts import Branches


class VerifyInput(SpecInput):
    """What SGLang passes from the worker to the attention with a forward pass; also what it keeps between two."""

    def __init__(self, *, positions=None, rows=None, branches: Branches | None = None) -> None:
        super().__init__(SpecInputType.NGRAM_VERIFY)
        self.positions = positions
        """[rows of all requests] in the text, for the model"""
        self.rows = rows
        """[requests] rows of each: its last known token and what is drafted after it"""
        self.branches = branches
        """What rows of trees see behind their last known token; None: rows see what lies before them."""
        self.draft_token_num = 0 if rows is None else int(rows.max())

    def filter_batch(self, *_, **__) -> None:
        """Nothing is kept between two steps: the worker knows who runs."""

    def merge_batch(self, *_, **__) -> None:
        """As `filter_batch`."""
