"""Readers that are behind: each reads from the log at its own pace, until it is in sync again.

A cursor is a subscription's place in every partition that its filter covers. It is worked on when its
subscriber can take something, a little at a time and one after the other, so that those in sync are never
kept waiting; what is not in memory is read in a thread. One that has come to where the channels are joins
its channel in the same moment, so nothing falls between.
"""

import asyncio
import re
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from fanlog.log.errors import LogError, OffsetOutOfRange, WouldBlock
from fanlog.log.partition import Partition, unpack
from fanlog.router.channels import Member, Run
from fanlog.wire import records

if TYPE_CHECKING:
    from fanlog.router.router import Router

# Read for one cursor before the next has its turn, and for all of them in one turn of the loop.
READ_BYTES: Final = 64 << 10
TURN_BYTES: Final = 512 << 10


class Follower(Member, Protocol):
    """A member that can also be given what it missed."""

    @property
    def filter(self) -> str: ...

    def room(self) -> int:
        """How many messages it could take now."""
        ...

    def give(self, run: Run) -> None:
        """Takes a run of at most `room` messages, for it alone."""
        ...

    def caught_up(self) -> None:
        """It is about to join its channel."""
        ...


class Cursor:
    __slots__ = ("busy", "follower", "pattern", "positions", "queued")

    def __init__(self, follower: Follower, positions: dict[Partition, int]) -> None:
        self.follower = follower
        self.positions = positions
        self.pattern = pattern_of(follower.filter)
        self.queued = False
        self.busy = False


class Pump:
    """Works on cursors, in turn."""

    def __init__(self, router: "Router") -> None:
        self.router = router
        self.loop = asyncio.get_running_loop()
        self._ready: deque[Cursor] = deque()
        self._scheduled = False

    def wake(self, cursor: Cursor) -> None:
        """The cursor's subscriber may be able to take something."""
        if cursor.queued or cursor.busy:
            return
        cursor.queued = True
        self._ready.append(cursor)
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        left = TURN_BYTES
        while self._ready and left > 0:
            cursor = self._ready.popleft()
            cursor.queued = False
            left -= self._step(cursor)
        if self._ready and not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._turn)

    def _step(self, cursor: Cursor) -> int:
        """Moves a cursor on by one read; returns what it cost."""
        partition = self._behind(cursor)
        if partition is None:
            cursor.follower.caught_up()
            return 1024
        if cursor.follower.room() <= 0:
            # It is woken again when that changes.
            return 0
        try:
            data = partition.read(cursor.positions[partition], READ_BYTES)
        except WouldBlock:
            cursor.busy = True
            task = self.loop.create_task(self._from_disk(cursor, partition))
            task.add_done_callback(lambda _: None)
            return 1024
        except OffsetOutOfRange:
            # Retention was faster: go on where there is something.
            cursor.positions[partition] = partition.log_start
            data = b""
        except LogError:
            cursor.positions.pop(partition, None)
            data = b""
        self._consume(cursor, partition, bytes(data))
        self.wake(cursor)
        return max(len(data), 1024)

    async def _from_disk(self, cursor: Cursor, partition: Partition) -> None:
        try:
            data = await asyncio.to_thread(partition.read, cursor.positions[partition], READ_BYTES, True)
        except LogError:
            data = b""
        cursor.busy = False
        if cursor.follower.room() > 0 and partition in cursor.positions:
            self._consume(cursor, partition, bytes(data))
        self.wake(cursor)

    def _behind(self, cursor: Cursor) -> Partition | None:
        """A partition of which the cursor has not got everything that the channels have."""
        for partition in self.router.covered(cursor.follower.filter):
            # A topic that came while the reader was behind is new to it from its start.
            position = cursor.positions.setdefault(partition, partition.log_start)
            if position < self.router.delivered(partition):
                return partition
        return None

    def _consume(self, cursor: Cursor, partition: Partition, data: bytes) -> None:
        end = self.router.delivered(partition)
        position = cursor.positions[partition]
        room = cursor.follower.room()
        run = Run(partition, position, position, 0)
        at = 0
        while at + records.HEADER_BYTES <= len(data) and room > 0:
            header = records.read_header(data, at)
            if at + header.size > len(data) or header.base_offset >= end:
                break
            found = unpack(data[at : at + header.size], header)
            for record, message in zip(found, self.router.messages(partition.topic, found), strict=True):
                if record.offset < position:
                    continue
                if room <= 0:
                    break
                if cursor.pattern.fullmatch(message.address):
                    run.messages.append(message)
                    run.offsets.append(record.offset)
                    run.timestamp = record.timestamp
                    room -= 1
                position = record.offset + 1
            else:
                position = max(position, header.last_offset + 1)
            at += header.size
        cursor.positions[partition] = run.end = position
        if run.messages:
            cursor.follower.give(run)
            self.router.caught_up_by(run)


def pattern_of(filter: str) -> re.Pattern[str]:
    """A filter as a regular expression, for those who have to look at every record."""
    if filter == "#":
        return re.compile(r"[^$].*|", re.DOTALL)
    parts = []
    for level in filter.split("/"):
        parts.append("[^/]*" if level == "+" else re.escape(level))
    text = "/".join(parts)
    if filter.endswith("/#"):
        text = text[: -len("/" + re.escape("#"))] + "(?:/.*)?"
    if filter.startswith("+"):
        text = r"(?!\$)" + text
    return re.compile(text, re.DOTALL)
