"""Fetch, versions 4-12: batches from an offset on, at once or when there are enough of them.

A reader that has come to the end is parked with the partitions it reads, and costs nothing until one of them
has something new or its time is up. What is in memory is read on the spot, what is on disk in a thread.
Records go from the file to the socket as they are: the answer is put together around them.

Every fetch is a full one (session id 0): a client that offers a session is told that there is none (KIP-227).
"""

import asyncio
import struct
from typing import Any

from kio.schema.errors import ErrorCode

from fanlog.doors.kafka.connection import Buffer, Slot
from fanlog.doors.kafka.errors import code_of
from fanlog.doors.kafka.registry import Context, direct_api
from fanlog.log.errors import LogError, WouldBlock
from fanlog.log.partition import LEADER_EPOCH, Partition
from fanlog.wire.messages import write_uvarint

_NO_SESSION = 0


class Wanted:
    """One partition of a fetch: from where, how much, and what was found."""

    __slots__ = ("bytes_max", "data", "error", "number", "offset", "partition")

    def __init__(self, partition: Partition | None, item: Any) -> None:
        self.partition = partition
        self.number: int = item.partition
        self.offset: int = item.fetch_offset
        self.bytes_max: int = max(item.partition_max_bytes, 0)
        self.data: Buffer = b""
        self.error = 0
        epoch = getattr(item, "current_leader_epoch", -1)
        if partition is None:
            self.error = int(ErrorCode.unknown_topic_or_partition)
        elif epoch > LEADER_EPOCH:
            self.error = int(ErrorCode.unknown_leader_epoch)
        elif not partition.log_start <= self.offset <= partition.high_watermark:
            self.error = int(ErrorCode.offset_out_of_range)

    def read(self, left: int, first: bool, wait: bool) -> int:
        """Reads as much as `left` allows; the first batch of an answer always fits. Returns the size."""
        if self.error or self.partition is None:
            return 0
        try:
            data = self.partition.read(self.offset, min(self.bytes_max, left), wait)
        except LogError as error:
            self.error = code_of(error)
            return 0
        if len(data) > left and not first:
            return 0
        self.data = data
        return len(data)


class Fetch:
    """One request that waits for its answer."""

    __slots__ = ("context", "left", "min_bytes", "slot", "timer", "topics", "wanted")

    def __init__(self, context: Context, request: Any, slot: Slot) -> None:
        self.context = context
        self.slot = slot
        self.min_bytes: int = request.min_bytes
        self.left = min(max(request.max_bytes, 0), context.broker.settings.limits.fetch_bytes_max)
        self.timer: asyncio.TimerHandle | None = None
        self.topics: list[tuple[str, list[Wanted]]] = []
        self.wanted: list[Wanted] = []
        catalog = context.broker.catalog
        for topic in request.topics or ():
            items = [
                Wanted(catalog.partition(topic.topic, item.partition), item)
                for item in topic.partitions or ()
            ]
            self.topics.append((topic.topic, items))
            self.wanted += items

    def enough(self) -> bool:
        """Whether there is something to say already."""
        have = 0
        for item in self.wanted:
            if item.error or item.partition is None:
                return True
            have += min(item.partition.available(item.offset), item.bytes_max)
        return have >= self.min_bytes

    def park(self, seconds: float) -> None:
        for item in self.wanted:
            assert item.partition is not None
            item.partition.readers.add(self)
        self.timer = self.context.connection.door.loop.call_later(seconds, self.answer)

    def wake(self, partition: Partition) -> None:
        if self.min_bytes <= 1 or partition.closed or self.enough():
            self.answer()

    def answer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            for item in self.wanted:
                if item.partition is not None:
                    item.partition.readers.discard(self)
        if self.context.connection.transport is None:
            self.slot.skip()
            return
        try:
            self._read(wait=False)
        except WouldBlock:
            self.context.connection.spawn(self._answer_from_disk())
        else:
            self._reply()

    async def _answer_from_disk(self) -> None:
        await asyncio.to_thread(self._read, True)
        self._reply()

    def _read(self, wait: bool) -> None:
        left, first = self.left, True
        for item in self.wanted:
            if left <= 0:
                break
            size = item.read(left, first, wait)
            if size:
                left -= size
                first = False

    def _reply(self) -> None:
        self.slot.reply(*encode(self.topics, self.context.version))


_PARTITION = struct.Struct(">ihqq")


def encode(topics: list[tuple[str, list[Wanted]]], version: int) -> list[Buffer]:
    """The answer, with the records as parts of their own, never copied."""
    flexible = version >= 12
    out = bytearray(4)
    buffers: list[Buffer] = []
    if version >= 7:
        out += bytes(6)
    _count(out, len(topics), flexible)
    for name, items in topics:
        raw = name.encode()
        if flexible:
            write_uvarint(out, len(raw) + 1)
        else:
            out += len(raw).to_bytes(2, "big")
        out += raw
        _count(out, len(items), flexible)
        for item in items:
            _encode_partition(out, item, version)
            if item.data:
                buffers += (out, item.data)
                out = bytearray()
            if flexible:
                out.append(0)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    buffers.append(out)
    return buffers


def _encode_partition(out: bytearray, item: Wanted, version: int) -> None:
    """Everything of a partition's answer that comes before its records."""
    end = start = -1
    if item.partition is not None:
        end, start = item.partition.high_watermark, item.partition.log_start
    out += _PARTITION.pack(item.number, item.error, end, end)
    if version >= 5:
        out += start.to_bytes(8, "big", signed=True)
    # No aborted transactions, because there are none at all.
    _count(out, 0, version >= 12)
    if version >= 11:
        out += b"\xff\xff\xff\xff"
    _count(out, len(item.data), version >= 12)


def _count(out: bytearray, count: int, flexible: bool) -> None:
    if flexible:
        write_uvarint(out, count + 1)
    else:
        out += count.to_bytes(4, "big")


@direct_api(1, 4, 12)
def fetch(context: Context, request: Any, slot: Slot) -> None:
    work = Fetch(context, request, slot)
    if getattr(request, "session_id", _NO_SESSION) != _NO_SESSION:
        for item in work.wanted:
            item.error = int(ErrorCode.fetch_session_id_not_found)
    if request.max_wait <= 0 or work.enough():
        work.answer()
    else:
        work.park(request.max_wait / 1000)
