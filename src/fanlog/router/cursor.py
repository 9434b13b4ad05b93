"""Readers that are behind: each reads from the log at its own pace, until it is in sync again.

A cursor is a subscription's place in every partition that its filter covers. It is worked on when its
subscriber can take something, a little at a time and one after the other, so that those in sync are never
kept waiting; what is not in memory is read in a thread. What stands at a place in the log is read, and its
frames are made, once for all who come by there: a thousand who fell behind together cost one. A cursor that
has come to where the channels are joins its channel in the same moment, so nothing falls between.
"""

import asyncio
import contextlib
import heapq
import logging
import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from fanlog.log.errors import LogError, OffsetOutOfRange, WouldBlock
from fanlog.log.partition import Partition, unpack
from fanlog.router.channels import Member, Run, Variant
from fanlog.wire import records

if TYPE_CHECKING:
    from fanlog.router.router import Router

logger = logging.getLogger(__name__)

# Read for one cursor before the next has its turn, and for all of them in one turn of the loop.
READ_BYTES: Final = 64 << 10
TURN_BYTES: Final = 512 << 10
# Who looks for one key reads more at once: nearly all of it is passed over.
READ_BYTES_ONE_KEY: Final = 1 << 20
# Chunks end at offsets that are multiples of this, so that readers who began at different places soon share.
CHUNK_RECORDS: Final = 256
CHUNKS_KEPT: Final = 128


# Where a reader is: the partition, its offset, and what it looks for there.
Place = tuple[Partition, int, str]


class Follower(Member, Protocol):
    """A member that can also be given what it missed."""

    # Set while it is behind.
    cursor: "Cursor | None"

    @property
    def filter(self) -> str: ...

    @property
    def reader(self) -> str | None:
        """By what name it is known; None while nobody is connected."""
        ...

    def room(self) -> int:
        """How many messages it could take now."""
        ...

    def give(self, run: Run) -> None:
        """Takes a run of at most `room` messages, with frames of its own."""
        ...

    def caught_up(self) -> None:
        """It is about to join its channel."""
        ...


class Chunk:
    """What one reading of the log holds for one filter; its frames are shared like those of a channel."""

    __slots__ = ("_frames", "cost", "run")

    def __init__(self, run: Run, cost: int) -> None:
        self.run = run
        self.cost = cost
        self._frames: dict[Variant, bytes] = {}

    def frames(self, variant: Variant) -> bytes:
        found = self._frames.get(variant)
        if found is None:
            found = self._frames[variant] = variant.encode(self.run)
        return found


class Cursor:
    __slots__ = ("busy", "follower", "lost", "pattern", "positions", "queued")

    def __init__(self, follower: Follower, positions: dict[Partition, int]) -> None:
        self.follower = follower
        self.positions = positions
        self.pattern = pattern_of(follower.filter)
        self.queued = False
        self.busy = False
        # Records that retention took before it came to them.
        self.lost = 0


class Pump:
    """Works on cursors: those furthest behind first, so that they meet the others and go on together."""

    def __init__(self, router: "Router") -> None:
        self.router = router
        self.loop = asyncio.get_running_loop()
        # Those that were worked on and are not in sync yet, with the time since which they are behind.
        self.behind: dict[Cursor, float] = {}
        # Cursors that may be able to go on, by the place where they are; and the places, the lowest first.
        self._ready: dict[Place, list[Cursor]] = {}
        self._places: list[tuple[int, int, Place]] = []
        self._count = 0
        self._scheduled = False
        self._chunks: OrderedDict[Place, Chunk] = OrderedDict()

    def wake(self, cursor: Cursor) -> None:
        """The cursor's subscriber may be able to take something."""
        if cursor.queued or cursor.busy:
            return
        if cursor not in self.behind:
            self.behind[cursor] = self.loop.time()
        if cursor.follower.room() <= 0:
            # It is woken again when that changes.
            return
        partition = self._behind(cursor)
        if partition is None:
            self.behind.pop(cursor, None)
            cursor.follower.caught_up()
            return
        place = (partition, cursor.positions[partition], cursor.follower.filter)
        cursor.queued = True
        waiting = self._ready.get(place)
        if waiting is not None:
            waiting.append(cursor)
            return
        self._ready[place] = [cursor]
        self._count += 1
        heapq.heappush(self._places, (place[1], self._count, place))
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        left = TURN_BYTES
        while self._places and left > 0:
            place = heapq.heappop(self._places)[2]
            cursors = self._ready.pop(place)
            for cursor in cursors:
                cursor.queued = False
            left -= self._go_on(place, cursors)
        if self._places and not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._turn)

    def _go_on(self, place: Place, cursors: list[Cursor]) -> int:
        """Gives all cursors at a place what stands there; returns what it cost."""
        partition, position, _ = place
        try:
            chunk = self._chunk(place, cursors[0].pattern, wait=False)
        except WouldBlock:
            for cursor in cursors:
                cursor.busy = True
            self.loop.create_task(self._from_disk(place, cursors))
            return 1024
        except OffsetOutOfRange:
            # Retention was faster: go on where there is something.
            for cursor in cursors:
                cursor.lost += max(partition.log_start - position, 0)
                cursor.positions[partition] = max(partition.log_start, position + 1)
                self.wake(cursor)
            return 1024
        except LogError as error:
            logger.error("%s: readers that are behind cannot go on: %s", cursors[0].follower.filter, error)
            for cursor in cursors:
                cursor.positions[partition] = self.router.delivered(partition)
                self.wake(cursor)
            return 1024
        for cursor in cursors:
            # It may have left meanwhile, or lost its connection.
            if cursor.follower.room() > 0 and self._give(cursor, partition, chunk):
                self.wake(cursor)
        return chunk.cost + len(cursors) * 1024

    async def _from_disk(self, place: Place, cursors: list[Cursor]) -> None:
        # What goes wrong is said and dealt with when it is tried again.
        with contextlib.suppress(LogError):
            await asyncio.to_thread(self._chunk, place, cursors[0].pattern, True)
        for cursor in cursors:
            cursor.busy = False
            self.wake(cursor)

    def _behind(self, cursor: Cursor) -> Partition | None:
        """A partition of which the cursor has not got everything that the channels have."""
        for partition in self.router.covered(cursor.follower.filter):
            # A topic that came while the reader was behind is new to it from its start.
            position = cursor.positions.setdefault(partition, partition.log_start)
            if position < self.router.delivered(partition):
                return partition
        return None

    def _give(self, cursor: Cursor, partition: Partition, chunk: Chunk) -> bool:
        """Hands a chunk over, or as much of it as there is room for; False if there is none."""
        follower, run = cursor.follower, chunk.run
        room = follower.room()
        if cursor.positions[partition] != run.first:
            return True
        if not run.messages:
            cursor.positions[partition] = run.end
        elif len(run.messages) <= room:
            if not follower.push(chunk.frames(follower.variant), run):
                return False
            cursor.positions[partition] = run.end
            self.router.caught_up_by(run)
        else:
            part = run.beginning(room)
            follower.give(part)
            cursor.positions[partition] = part.end
            self.router.caught_up_by(part)
        return True

    def _chunk(self, place: Place, pattern: re.Pattern[str], wait: bool) -> Chunk:
        """What stands at a place, read once for all who are there."""
        partition, position, filter = place
        chunk = self._chunks.get(place)
        if chunk is not None:
            return chunk
        end = self.router.delivered(partition)
        literal = is_literal(filter)
        data = bytes(partition.read(position, READ_BYTES_ONE_KEY if literal else READ_BYTES, wait))
        run = Run(partition, position, position, 0)
        if literal:
            self._pick(run, data, filter, end)
        else:
            self._sift(run, data, pattern, end)
        if run.end == position:
            # Compaction has left nothing here.
            run.end = min(records.read_header(data).base_offset, end) if data else end
        chunk = self._chunks[place] = Chunk(run, max(len(data), 1024))
        if len(self._chunks) > CHUNKS_KEPT:
            self._chunks.popitem(last=False)
        return chunk

    def _pick(self, run: Run, data: bytes, address: str, end: int) -> None:
        """Takes the records of one address out of `data`; of a busy address, up to the end of a chunk."""
        key = self.router.addresses.place(address).key
        limit = end
        for header, at, size in batches(data, end):
            if key is None or header.compression:
                found = [one for one in unpack(data[at : at + size], header) if one.key == key]
            else:
                found = records.find_key(data, at + records.HEADER_BYTES, header, key)
            found = [record for record in found if record.offset >= run.first]
            for record, message in zip(found, self.router.messages(run.partition.topic, found), strict=True):
                if not run.messages:
                    limit = _chunk_end(record.offset)
                elif record.offset >= limit:
                    run.end = limit
                    return
                run.add(message, record.offset)
            run.end = header.last_offset + 1
            if run.end >= limit:
                return

    def _sift(self, run: Run, data: bytes, pattern: re.Pattern[str], end: int) -> None:
        """Takes what matches a pattern out of `data`, up to the end of a chunk."""
        limit = min(end, _chunk_end(run.first))
        for header, at, size in batches(data, limit):
            found = unpack(data[at : at + size], header)
            for record, message in zip(found, self.router.messages(run.partition.topic, found), strict=True):
                if record.offset >= limit:
                    run.end = limit
                    return
                if record.offset >= run.first and pattern.fullmatch(message.address):
                    run.add(message, record.offset)
            run.end = min(header.last_offset + 1, limit)


def batches(data: bytes, end: int) -> Iterator[tuple[records.Header, int, int]]:
    """Header, place and size of the batches in `data` that begin before offset `end`."""
    at = 0
    while at + records.HEADER_BYTES <= len(data):
        header = records.read_header(data, at)
        if at + header.size > len(data) or header.base_offset >= end:
            return
        yield header, at, header.size
        at += header.size


def _chunk_end(offset: int) -> int:
    return (offset // CHUNK_RECORDS + 1) * CHUNK_RECORDS


def is_literal(filter: str) -> bool:
    return "+" not in filter and "#" not in filter


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
