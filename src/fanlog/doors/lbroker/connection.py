"""One lbroker client: commands in, messages out, at most once.

Nothing is acknowledged and no error is answered: a client that breaks the protocol is cut off, and nobody
else notices. Commands are done in their order; one whose topic has to be made first holds up those behind
it. What a client publishes faster than the log takes it, is not read from its socket.

A client that does not read misses what is published meanwhile, and costs one number. When it reads again,
it gets the newest message of each topic that it missed something of, and goes on from there.
"""

import asyncio
import itertools
import logging
import re
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, cast

from fanlog.cluster.catalog import CatalogError
from fanlog.doors.lbroker.commands import Command, CommandError, CommandReader, Publish, Subscribe
from fanlog.doors.lbroker.globs import GlobChannel
from fanlog.doors.lbroker.latest import Last
from fanlog.doors.lbroker.values import HEADERS
from fanlog.log.commit import now_ms
from fanlog.log.errors import LogError
from fanlog.router.addresses import ADDRESS_BYTES_MAX, AddressError
from fanlog.wire.records import Message

if TYPE_CHECKING:
    from fanlog.doors.lbroker.door import LbrokerDoor
    from fanlog.router.router import Target

logger = logging.getLogger(__name__)

_NUMBERS = itertools.count(1)
_NOT_IN_TOPICS: Final = re.compile("[+#\x00]")
# What a message on its way to the log costs beside its value.
_MESSAGE_BYTES: Final = 512
# Last messages that are looked at before the socket is asked again.
_GREETING_BYTES: Final = 64 << 10


class LbrokerConnection(asyncio.Protocol):
    def __init__(self, door: "LbrokerDoor") -> None:
        self.door = door
        self.number = next(_NUMBERS)
        self.transport: asyncio.Transport | None = None
        self.writable = True
        self.skipped = 0
        self._peer = ""
        self._reader = CommandReader(door.limits.lbroker_frame_bytes_max)
        self._frame_timer: asyncio.TimerHandle | None = None
        self._channels: dict[str, GlobChannel] = {}
        self._commands: deque[Command] = deque()
        self._task: asyncio.Task[None] | None = None
        self._reading = True
        self._unstored_bytes = 0
        self._out: list[bytes] = []
        # The number up to which it has what it wants; None while it misses nothing.
        self._missed_since: int | None = None
        # Addresses whose last message it is still to get, with the number at which it asked.
        self._greeting: deque[tuple[str, int]] = deque()

    @property
    def patterns_count(self) -> int:
        return len(self._channels)

    # --- the transport's side ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=self.door.limits.lbroker_write_buffer_bytes_max)
        peer = transport.get_extra_info("peername")
        self._peer = f"{peer[0]}:{peer[1]}" if peer else "a client"
        self.door.opened(self)
        if not self.door.warm:
            # Before its first command the last messages have to be known.
            self._hold(self.door.warm_up())

    def connection_lost(self, exc: Exception | None) -> None:
        # What it published before it went is still on its way to the log.
        self.transport = None
        self._expect_frame(False)
        for glob in self._channels:
            self.door.globs.leave(glob, self)
        self._channels.clear()
        self._greeting.clear()
        self.door.closed(self)

    def data_received(self, data: bytes) -> None:
        self.door.bytes_received += len(data)
        try:
            commands = self._reader.feed(data)
        except CommandError as error:
            self._commands.extend(error.commands)
            self.cut_off(str(error))
            commands = []
        self._expect_frame(not self._reader.between_frames)
        self._commands.extend(commands)
        if self._task is None:
            self._work()

    def _expect_frame(self, begun: bool) -> None:
        """A frame that was begun must arrive whole within a time; a silent client may stay."""
        if begun and self._frame_timer is None:
            self._frame_timer = self.door.loop.call_later(
                self.door.limits.frame_seconds_max, self.cut_off, "a command took too long to arrive"
            )
        elif not begun and self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None

    def cut_off(self, text: str) -> None:
        logger.info("lbroker: %s is cut off: %s", self._peer, text)
        if self.transport is not None:
            self.transport.abort()

    def _balance(self) -> None:
        """Reads from the socket only while what came before can be worked on."""
        full = self._unstored_bytes > self.door.limits.request_bytes_in_flight_max
        reading = self._task is None and not full
        if self.transport is None or reading == self._reading:
            return
        self._reading = reading
        if reading:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    # --- commands ---------------------------------------------------------------------------------------

    def _work(self) -> None:
        while self._commands and self._task is None:
            command = self._commands.popleft()
            if isinstance(command, Publish):
                self._publish(command)
            elif self.transport is None:
                continue
            elif isinstance(command, Subscribe):
                self._subscribe(command.patterns)
            else:
                self._unsubscribe(command.patterns)

    def _subscribe(self, globs: list[str]) -> None:
        fresh = []
        for glob in globs:
            if glob in self._channels:
                continue
            if len(self._channels) >= self.door.limits.lbroker_patterns_max or len(glob) > ADDRESS_BYTES_MAX:
                self.cut_off(f"more than {self.door.limits.lbroker_patterns_max} patterns, or one too long")
                return
            channel = self._channels[glob] = self.door.globs.join(glob, self)
            fresh.append(channel.pattern)
        latest = self.door.latest
        self._greeting.extend(
            (last.address, latest.number)
            for last in latest
            if last.publisher != self.number and any(pattern.fullmatch(last.address) for pattern in fresh)
        )
        self._greet()

    def _unsubscribe(self, globs: list[str]) -> None:
        for glob in globs:
            if self._channels.pop(glob, None) is not None:
                self.door.globs.leave(glob, self)

    def _publish(self, command: Publish) -> None:
        for number, (topic, value) in enumerate(command.messages):
            reason = refusal(topic)
            if reason:
                logger.warning("lbroker: a message of %s is dropped: %s", self._peer, reason)
                continue
            target = self.door.router.target(topic)
            if target is None:
                rest = command.messages[number + 1 :]
                if rest:
                    self._commands.appendleft(Publish(rest))
                self._hold(self._make(topic, value))
                return
            self._store(topic, value, target)

    async def _make(self, topic: str, value: bytes) -> None:
        try:
            target = await self.door.router.make_target(topic)
        except (CatalogError, AddressError, OSError) as error:
            logger.warning("lbroker: a message of %s to %r is dropped: %s", self._peer, topic, error)
        else:
            self._store(topic, value, target)

    def _hold(self, work: Coroutine[Any, Any, None]) -> None:
        """Does nothing else before `work` is done."""

        async def wait() -> None:
            await work
            self._task = None
            self._work()
            self._balance()

        self._task = self.door.loop.create_task(wait())
        self._balance()

    def _store(self, topic: str, value: bytes, target: "Target") -> None:
        message = Message(topic, target.key, value, HEADERS, self)
        try:
            target.partition.publish(message)
        except LogError as error:
            self.stored(message, error)
            return
        self.door.received += 1
        self._unstored_bytes += len(value) + _MESSAGE_BYTES
        if self._unstored_bytes > self.door.limits.request_bytes_in_flight_max:
            self._balance()

    def stored(self, message: Message, error: LogError | None) -> None:
        """The log has a message of ours, or will not have it."""
        if error is not None:
            logger.warning("lbroker: a message of %s to %r is lost: %s", self._peer, message.address, error)
        self._unstored_bytes -= len(message.value or b"") + _MESSAGE_BYTES
        if not self._reading:
            self._balance()

    # --- messages ---------------------------------------------------------------------------------------

    def push(self, frames: bytes, count: int) -> bool:
        """Takes frames, to be written at the end of this turn; or misses them."""
        if not self.writable or self.transport is None:
            if self._missed_since is None:
                self._missed_since = self.door.latest.before
            self.skipped += count
            self.door.skipped += count
            return False
        self._write(frames)
        return True

    def _write(self, frames: bytes) -> None:
        if not self._out:
            self.door.flush_later(self)
        self._out.append(frames)

    def flush(self) -> None:
        out, self._out = self._out, []
        if self.transport is not None:
            # Not joined: what waits for many clients is still the same bytes.
            self.transport.writelines(out)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self._missed_since is not None:
            since, self._missed_since = self._missed_since, None
            self._give_newest(since)
        self._greet()

    def _give_newest(self, since: int) -> None:
        """The newest message of each topic that it missed something of, as far as there is room."""
        frames: list[bytes] = []
        left = self.door.limits.lbroker_write_buffer_bytes_max
        for last in self.door.latest.since(since):
            if self._wants(last):
                frames.append(last.frame())
                left -= len(frames[-1])
                if left <= 0:
                    break
        logger.warning(
            "lbroker: %s did not read, and skipped %d messages to the newest of %d topics",
            self._peer,
            self.skipped - len(frames),
            len(frames),
        )
        self.skipped = 0
        if frames:
            self._write(b"".join(reversed(frames)))

    def _greet(self) -> None:
        """The last message of each topic that it subscribed to, as fast as it takes them."""
        while self._greeting and self.writable and self.transport is not None:
            frames: list[bytes] = []
            size = 0
            while self._greeting and size < _GREETING_BYTES:
                address, number = self._greeting.popleft()
                last = self.door.latest.get(address)
                # What is younger has been sent, or missed, by the ordinary way.
                if last is not None and last.number <= number and self._wants(last):
                    frames.append(last.frame())
                    size += len(frames[-1])
            if frames:
                self._write(b"".join(frames))
                if self._greeting:
                    # Only what was written can fill the socket.
                    self.door.flush_now(self)

    def _wants(self, last: Last) -> bool:
        if last.publisher == self.number or (last.expires_at_ms and last.expires_at_ms <= now_ms()):
            return False
        return any(self in channel.members for channel in self.door.globs.channels_of(last.address))


def refusal(topic: str) -> str:
    """Why nothing can be published to a topic; empty if it can."""
    if topic.startswith("$"):
        return f"{topic[:40]!r}: topics that begin with $ are the broker's"
    if _NOT_IN_TOPICS.search(topic):
        return f"{topic[:40]!r}: +, # and NUL cannot be in an address"
    if len(topic.encode("utf-8", "surrogatepass")) > ADDRESS_BYTES_MAX:
        return "the topic is too long"
    return ""
