"""Slices of a group's append log: what keeps a copy of a group in step, and what is stored of one."""

from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from sestina.core.errors import DataError
from sestina.core.ids import GroupId
from sestina.core.units import TokenArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """Records of one group from a cursor on."""

    group: GroupId
    epoch: int
    """Tells the group from an earlier one of the same number."""
    cursor: int
    """Number of the first record."""
    records: npt.NDArray[np.uint32]
    """High half: number of the stream, 0 the prompt. Low half: tokens appended, 0 a start, 65535 a stop."""
    starts: npt.NDArray[np.int64]
    """Request and weight of each start, one after the other; request -1 is the prompt."""
    tokens: TokenArray

    @property
    def end(self) -> int:
        """The cursor to fetch from next."""
        return self.cursor + len(self.records)

    def to_bytes(self) -> bytes:
        """Return the slice as bytes, little-endian."""
        arrays = (_raw(self.records, "<u4"), _raw(self.starts, "<i8"), _raw(self.tokens, "<i4"))
        return msgspec.msgpack.encode((self.group, self.epoch, self.cursor, *arrays))

    @classmethod
    def from_bytes(cls, raw: bytes) -> "LogSlice":
        """Return the slice that `to_bytes` made; raises DataError when it is something else."""
        try:
            group, epoch, cursor, *arrays = msgspec.msgpack.decode(raw, type=tuple[int, int, int, bytes, bytes, bytes])
            records, starts, tokens = (np.frombuffer(a, t) for a, t in zip(arrays, ("<u4", "<i8", "<i4"), strict=True))
        except (msgspec.MsgspecError, ValueError) as error:
            raise DataError(f"{len(raw)} bytes that are no slice of a log: {error}") from None
        return cls(group=group, epoch=epoch, cursor=cursor, records=records, starts=starts, tokens=tokens)


def _raw(array: npt.NDArray[np.generic], dtype: str) -> bytes:
    return array.astype(dtype, copy=False).tobytes()
