"""A segment's sparse index: from an offset or a time to a place in the file a little before it.

One entry for about every `interval` bytes of log: the base offset of a batch, its position, and the highest
timestamp of all batches *before* it. That last column never falls, so both look-ups are a binary search. A
sealed segment ends with an entry for the batch that would come next, which also says how long the file is
and how young its youngest record.

The file is nothing but entries, appended as the log is checkpointed. Whoever follows an entry checks that
the batch there is the one that it names; an index that lies is built anew.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

ENTRY_BYTES: Final = 24
_ENTRY: Final = struct.Struct(">qqq")
NO_TIME: Final = -1


class Index:
    __slots__ = ("_since", "interval", "max_timestamp", "offsets", "positions", "times")

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.offsets = array("q")
        self.positions = array("q")
        self.times = array("q")
        self.max_timestamp = NO_TIME
        # Bytes of log since the last entry.
        self._since = interval

    def __len__(self) -> int:
        return len(self.offsets)

    def note(self, base_offset: int, position: int, size: int, max_timestamp: int) -> None:
        """Takes account of one batch more at the end of the segment."""
        if self._since >= self.interval:
            self.put(base_offset, position)
            self._since = 0
        self._since += size
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp

    def put(self, offset: int, position: int) -> None:
        self.offsets.append(offset)
        self.positions.append(position)
        self.times.append(self.max_timestamp)

    def position_of(self, offset: int) -> int:
        """Where to begin looking for `offset`."""
        found = bisect_right(self.offsets, offset) - 1
        return self.positions[found] if found >= 0 else 0

    def position_before(self, position: int) -> int:
        """The last place that is known to be a batch's, at `position` or before."""
        found = bisect_right(self.positions, position) - 1
        return self.positions[found] if found >= 0 else 0

    def position_at(self, timestamp: int) -> int:
        """Where to begin looking for the first record of `timestamp` or later."""
        found = bisect_left(self.times, timestamp) - 1
        return self.positions[found] if found >= 0 else 0

    def pop(self) -> None:
        self.offsets.pop()
        self.positions.pop()
        self.times.pop()

    def to_bytes(self, first: int = 0, last: int | None = None) -> bytes:
        part = slice(first, last)
        return b"".join(map(_ENTRY.pack, self.offsets[part], self.positions[part], self.times[part]))

    @classmethod
    def from_bytes(cls, data: bytes, interval: int) -> "Index | None":
        """The index that `data` holds, or None if it cannot be one."""
        index = cls(interval)
        if not data or len(data) % ENTRY_BYTES:
            return None
        columns = array("q")
        columns.frombytes(data)
        columns.byteswap()
        index.offsets, index.positions, index.times = columns[0::3], columns[1::3], columns[2::3]
        if index.positions[0] != 0 or any(map(int.__ge__, index.positions[:-1], index.positions[1:])):
            return None
        index.max_timestamp = index.times[-1]
        return index
