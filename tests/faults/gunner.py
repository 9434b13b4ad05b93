"""Sends spoiled frames over many connections at once, and sees each of them through.

A frame is through when the broker has closed the connection, or has answered the ApiVersions request that
follows it. A connection is used until the broker closes it, or until the stream on it is out of step: then
the sender hangs up. A frame that makes the broker wait (a long poll with a spoiled time-out) is given up
after `patience_s`, by closing the connection.
"""

import collections
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from faults.frames import Shot, ping

_PING = 0x50494E47


@dataclass
class Tally:
    sent: int = 0
    answered: int = 0
    closed: int = 0
    given_up: int = 0
    connections: int = 0
    last: collections.deque[bytes] = field(default_factory=lambda: collections.deque(maxlen=200))


class _Connection:
    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=10)
        self.socket.setblocking(False)
        self.to_send = b""
        self.received = bytearray()
        self.last = False
        self.since = 0.0

    def load(self, shot: Shot) -> None:
        self.to_send = shot.data + ping(_PING)
        self.last = shot.last
        self.since = time.monotonic()
        self.send()

    def send(self) -> None:
        """As much as the socket takes. A peer that has closed shows when it is read from."""
        try:
            while self.to_send:
                self.to_send = self.to_send[self.socket.send(self.to_send) :]
            if self.last:
                self.socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:
            self.to_send = b""

    def answered(self) -> bool | None:
        """Whether the ping has its answer; None when the broker has closed the connection."""
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return False
        except OSError:
            return None
        if not data:
            return None
        self.received += data
        while len(self.received) >= 8:
            size, correlation = struct.unpack_from(">ii", self.received)
            if len(self.received) < 4 + size:
                return False
            del self.received[: 4 + size]
            if correlation == _PING:
                return True
        return False


class Gunner:
    def __init__(self, address: tuple[str, int], shots: Iterator[Shot], connections: int = 48) -> None:
        self.address = address
        self.shots = shots
        self.tally = Tally()
        self.patience_s = 1.0
        self._width = connections
        self._selector = selectors.DefaultSelector()
        self._busy: set[_Connection] = set()

    def fire(self, count: int, seconds: float, alive: Callable[[], bool]) -> None:
        """Send `count` frames and see them through."""
        deadline = time.monotonic() + seconds
        goal = self.tally.sent + count
        for _ in range(min(self._width, count)):
            self._next(None)
        swept = time.monotonic()
        while self._busy:
            now = time.monotonic()
            assert now < deadline, f"{goal - self.tally.sent} of {count} frames left after {seconds} s"
            assert alive(), f"the broker died; the last frames: {[data.hex() for data in self.tally.last]}"
            for key, events in self._selector.select(0.1):
                self._handle(key.data, events, goal)
            if now - swept > 0.2:
                swept = now
                for connection in [one for one in self._busy if now - one.since > self.patience_s]:
                    self.tally.given_up += 1
                    self._close(connection)
                    self._go_on(None, goal)

    def _handle(self, connection: _Connection, events: int, goal: int) -> None:
        if events & selectors.EVENT_WRITE:
            connection.send()
            if not connection.to_send:
                self._selector.modify(connection.socket, selectors.EVENT_READ, connection)
        if not events & selectors.EVENT_READ:
            return
        answered = connection.answered()
        if answered is None:
            self.tally.closed += 1
            self._close(connection)
            self._go_on(None, goal)
        elif answered and not connection.last:
            self.tally.answered += 1
            self._busy.discard(connection)
            self._go_on(connection, goal)

    def _go_on(self, connection: _Connection | None, goal: int) -> None:
        if self.tally.sent < goal:
            self._next(connection)
        elif connection is not None:
            self._close(connection)

    def _next(self, connection: _Connection | None) -> None:
        shot = next(self.shots)
        fresh = connection is None
        if connection is None:
            connection = _Connection(self.address)
            self.tally.connections += 1
        self.tally.sent += 1
        self.tally.last.append(shot.data[:2000])
        connection.load(shot)
        self._busy.add(connection)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.to_send else 0)
        if fresh:
            self._selector.register(connection.socket, events, connection)
        else:
            self._selector.modify(connection.socket, events, connection)

    def _close(self, connection: _Connection) -> None:
        self._busy.discard(connection)
        self._selector.unregister(connection.socket)
        connection.socket.close()
