"""Ranges of configuration values, as annotations the strict loader enforces; annotated_types carries no behaviour."""

from typing import Annotated, TypeAlias

from annotated_types import Ge, Gt, Le, MinLen

Count: TypeAlias = Annotated[int, Ge(1)]
"""At least one of something."""

CountOrNone: TypeAlias = Annotated[int, Ge(0)]
"""How many, none included."""

Duration: TypeAlias = Annotated[float, Gt(0)]
"""Seconds, more than zero."""

NonNegative: TypeAlias = Annotated[float, Ge(0)]
Positive: TypeAlias = Annotated[float, Gt(0)]
Share: TypeAlias = Annotated[float, Ge(0), Le(1)]
"""A part of a whole."""

Text: TypeAlias = Annotated[str, MinLen(1)]
"""Text that is not empty."""

Seed: TypeAlias = Annotated[int, Ge(0), Le(2**31 - 1)]
