"""What the suffix index refuses. Nothing was changed when one of these is raised.

DraftError
  NotFoundError          a group or request that was never started, or is gone
  ExistsError            one that was started before
  OutOfRangeError        a token, length or setting outside of what is allowed
  OffsetGapError         an append, or a slice of a log, that leaves something out
  OffsetConflictError    one that says otherwise than what is there
  BufferTooSmallError    drafts might not fit the buffers given
  IndexFullError         the memory limit is reached and every group has live requests
"""

from sestina.core.errors import RunError


class DraftError(RunError):
    """The suffix index refuses."""


class NotFoundError(DraftError):
    """A group or request was never started, or was stopped, dropped or evicted."""


class ExistsError(DraftError):
    """A group or request of this number was started before."""


class OutOfRangeError(DraftError):
    """A token, length or setting is outside of what is allowed; the message says what is."""


class OffsetGapError(DraftError):
    """Tokens or records before those given are missing."""


class OffsetConflictError(DraftError):
    """Tokens or records given differ from those that are there."""


class BufferTooSmallError(DraftError):
    """The drafts asked for might not fit the output."""


class IndexFullError(DraftError):
    """The memory limit is reached, and no group is without live requests; or a group is as large as one can be."""
