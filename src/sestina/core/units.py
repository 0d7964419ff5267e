"""Names for the units that appear in signatures; names of values carry them too (`_s`, `_bytes`, `_tokens`)."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sestina.core.seconds import Seconds as Seconds  # noqa: PLC0414 - handed on

Version: TypeAlias = int
"""Number of optimizer batches behind a set of weights; 0 is what the run started from."""

InstanceId: TypeAlias = int
"""Index of a rollout instance, from 0."""

TokenArray: TypeAlias = npt.NDArray[np.int32]
LogprobArray: TypeAlias = npt.NDArray[np.float32]
