"""Time, apart from the units that need numpy: what starts the ranks of a job must itself start fast."""

from typing import TypeAlias

Seconds: TypeAlias = float
"""An instant on the caller's monotonic timeline, or a span of it."""
