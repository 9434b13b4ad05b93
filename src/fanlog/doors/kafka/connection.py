"""One Kafka client's connection: frames in, answers out, in the order of the requests.

Requests are looked at as they arrive, also while earlier ones still wait for the disk or for new records,
so a producer keeps its pipeline full. Each has a slot; answers leave when all slots before theirs have left.
What was answered in one turn of the loop leaves in one write.

A peer that breaks the protocol is cut off, and nothing else happens. One that asks for more than it takes, or
sends more than is answered, is not read from until it has caught up.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast

from fanlog.doors.kafka.registry import Api, Context
from fanlog.wire import messages
from fanlog.wire.messages import MessageError

if TYPE_CHECKING:
    from fanlog.doors.kafka.door import KafkaDoor

logger = logging.getLogger(__name__)

API_VERSIONS = 18
_UNSUPPORTED_VERSION = 35
# Call key, version, correlation id, length of the client's name.
_HEADER_BYTES = 10
# Answers of less than this are joined: that costs less than handing the parts to the kernel.
_JOIN_BYTES_MAX = 16_384

Buffer = bytes | bytearray | memoryview


class Slot:
    """The place of one answer among the answers of its connection."""

    __slots__ = ("buffers", "connection", "correlation_id", "flexible", "ready", "request_bytes")

    def __init__(
        self, connection: "Connection", correlation_id: int, flexible: bool, request_bytes: int
    ) -> None:
        self.connection = connection
        self.correlation_id = correlation_id
        self.flexible = flexible
        self.request_bytes = request_bytes
        self.ready = False
        self.buffers: list[Buffer] = []

    def header(self, body_bytes: int) -> bytes:
        """Length, correlation id and, in the newer layouts, no tagged fields."""
        tail = b"\x00" if self.flexible else b""
        size = 4 + len(tail) + body_bytes
        return size.to_bytes(4, "big") + self.correlation_id.to_bytes(4, "big", signed=True) + tail

    def reply(self, *body: Buffer) -> None:
        self.buffers = [self.header(sum(map(len, body))), *body]
        self._finish()

    def skip(self) -> None:
        """This request has no answer (acks = 0)."""
        self._finish()

    def _finish(self) -> None:
        assert not self.ready
        self.ready = True
        self.connection.answered(self)


class Connection(asyncio.Protocol):
    def __init__(self, door: "KafkaDoor") -> None:
        self.door = door
        self.transport: asyncio.Transport | None = None
        self.host = ""
        self.tls = False
        # A frame that has begun to arrive: its pieces, their size, and how much is needed to go on.
        self._pieces: list[bytes] = []
        self._have = 0
        self._need = 4
        self.frame_since = 0.0
        self.active_at = 0.0
        self._frames: deque[bytes] = deque()
        self._slots: deque[Slot] = deque()
        self._bytes_in_flight = 0
        # Waits for a request that must be done before the next one is looked at.
        self._ordered: asyncio.Future[Any] | None = None
        self._tasks: set[asyncio.Future[Any]] = set()
        self._writable = True
        self._reading = True
        self._flushing = False

    # --- the transport's side ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if peer else ""
        self.tls = transport.get_extra_info("ssl_object") is not None
        self.active_at = self.door.loop.time()
        self.door.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.door.closed(self)
        self._frames.clear()
        self._pieces.clear()
        for task in tuple(self._tasks):
            task.cancel()

    def pause_writing(self) -> None:
        self._writable = False
        self._throttle()

    def resume_writing(self) -> None:
        self._writable = True
        self._throttle()
        self._dispatch()

    def data_received(self, data: bytes) -> None:
        self.active_at = self.door.loop.time()
        self._have += len(data)
        if self._pieces or self._have < self._need:
            if not self._pieces:
                self.frame_since = self.active_at
            self._pieces.append(data)
            if self._have < self._need:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        at = self._split(data)
        self._have = len(data) - at
        if self._have:
            self._pieces.append(data[at:])
            self.frame_since = self.active_at
        else:
            self.frame_since = 0.0
        self._dispatch()

    def _split(self, data: bytes) -> int:
        """Takes the whole frames out of `data`; returns where the rest begins."""
        at, end = 0, len(data)
        self._need = 4
        while end - at >= 4:
            size = int.from_bytes(data[at : at + 4], "big", signed=True)
            if not _HEADER_BYTES <= size <= self.door.limits.frame_bytes_max:
                self.abort(f"a frame of {size} bytes")
                return end
            if end - at - 4 < size:
                self._need = 4 + size
                break
            self._frames.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        return at

    def abort(self, why: str) -> None:
        logger.info("kafka: %s is cut off: %s", self.host, why)
        self._frames.clear()
        if self.transport is not None:
            self.transport.abort()

    # --- requests ---------------------------------------------------------------------------------------

    def _full(self) -> bool:
        return (
            not self._writable
            or len(self._slots) >= self.door.limits.requests_in_flight_max
            or self._bytes_in_flight >= self.door.limits.request_bytes_in_flight_max
        )

    def _throttle(self) -> None:
        """Reads on, or stops reading, as the state of things asks for."""
        reading = not self._frames and not self._full()
        if reading == self._reading or self.transport is None:
            return
        self._reading = reading
        if reading:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def _dispatch(self) -> None:
        while self._frames and self._ordered is None and not self._full():
            frame = self._frames.popleft()
            try:
                self._request(frame)
            except MessageError as error:
                self.abort(str(error))
                return
        self._throttle()

    def _request(self, frame: bytes) -> None:
        key = int.from_bytes(frame[0:2], "big", signed=True)
        version = int.from_bytes(frame[2:4], "big", signed=True)
        correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        entry = self.door.apis.get(key)
        if entry is None:
            raise MessageError(f"call {key} is not supported")
        if not entry.oldest <= version <= entry.newest:
            self._wrong_version(entry, version, correlation_id, len(frame))
            return
        layout = entry.request(version)
        client_id, at = _client_id(frame, layout.flexible)
        message = messages.decode(frame, at, layout)
        context = Context(self.door.broker, self, version, client_id)
        # The header of ApiVersions' answer is the old one in every version, for those who know no other.
        slot = Slot(self, correlation_id, layout.flexible and key != API_VERSIONS, len(frame))
        self._slots.append(slot)
        self._bytes_in_flight += slot.request_bytes
        self.door.requests += 1
        if entry.direct is not None:
            waits = entry.direct(context, message, slot)
            if waits is not None:
                self._wait_ordered(waits)
        else:
            self.spawn(self._answer(entry, context, message, slot))

    def _wrong_version(self, entry: Api, version: int, correlation_id: int, size: int) -> None:
        if entry.key != API_VERSIONS:
            raise MessageError(f"call {entry.key} has no version {version} here")
        # Answered in the layout of version 0, so that a newer client learns which versions there are.
        slot = Slot(self, correlation_id, False, size)
        self._slots.append(slot)
        self._bytes_in_flight += size
        body = bytearray()
        listed = [{"api_key": entry.key, "min_version": entry.oldest, "max_version": entry.newest}]
        messages.encode(body, {"error_code": _UNSUPPORTED_VERSION, "api_keys": listed}, entry.response(0))
        slot.reply(body)

    async def _answer(self, entry: Api, context: Context, message: Any, slot: Slot) -> None:
        assert entry.handler is not None
        answer = await entry.handler(context, message)
        body = bytearray()
        messages.encode(body, dict(answer), entry.response(context.version))
        slot.reply(body)

    def _wait_ordered(self, waits: Awaitable[None]) -> None:
        task = self.spawn(waits)
        if not task.done():
            self._ordered = task

    def spawn(self, work: Awaitable[None]) -> "asyncio.Future[None]":
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: "asyncio.Future[None]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            if not isinstance(error, MessageError):
                logger.error("kafka: a request failed for a reason of ours", exc_info=error)
            self.abort(str(error))
        if task is self._ordered:
            self._ordered = None
            self._dispatch()

    # --- answers ----------------------------------------------------------------------------------------

    def answered(self, slot: Slot) -> None:
        if self._slots and self._slots[0] is slot and not self._flushing:
            self._flushing = True
            self.door.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        buffers: list[Buffer] = []
        while self._slots and self._slots[0].ready:
            slot = self._slots.popleft()
            self._bytes_in_flight -= slot.request_bytes
            buffers += slot.buffers
        if self.transport is None:
            return
        if buffers:
            self.active_at = self.door.loop.time()
            if sum(map(len, buffers)) <= _JOIN_BYTES_MAX:
                self.transport.write(b"".join(buffers))
            else:
                self.transport.writelines(buffers)
        self._dispatch()


def _client_id(frame: bytes, flexible: bool) -> tuple[str, int]:
    """The client's name from the request's header, and where the request itself begins."""
    size = int.from_bytes(frame[8:10], "big", signed=True)
    at = _HEADER_BYTES + max(size, 0)
    if at > len(frame):
        raise MessageError("the client's name reaches past the request")
    name = frame[_HEADER_BYTES:at].decode("utf-8", "replace")
    if flexible:
        cursor = messages.Cursor(frame, at)
        for _ in range(cursor.uvarint()):
            cursor.uvarint()
            cursor.take(cursor.uvarint())
        at = cursor.at
    return name, at
