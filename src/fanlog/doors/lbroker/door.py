"""The lbroker door: listens, keeps the channels by glob and the last messages, and writes once per turn."""

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Final

from fanlog.doors.lbroker.connection import LbrokerConnection
from fanlog.doors.lbroker.globs import Globs
from fanlog.doors.lbroker.latest import Latest, read_tail
from fanlog.doors.listening import Listeners
from fanlog.log.errors import LogError
from fanlog.wire.records import BatchError, Message

if TYPE_CHECKING:
    from fanlog.broker import Broker

logger = logging.getLogger(__name__)

# Read back from the end of a partition, and of all together, when the first client comes.
TAIL_BYTES: Final = 4 << 20
TAILS_BYTES: Final = 64 << 20


class LbrokerDoor:
    def __init__(self, broker: "Broker") -> None:
        self.broker = broker
        self.router = broker.router
        self.limits = broker.settings.limits
        self.loop = asyncio.get_running_loop()
        self.latest = Latest(self.limits.lbroker_topics_max, self.limits.lbroker_latest_bytes_max)
        self.globs = Globs(self.latest)
        self.router.sets.append(self.globs)
        self.connections: set[LbrokerConnection] = set()
        self.received = 0
        self.bytes_received = 0
        # Messages that clients missed because they did not read.
        self.skipped = 0
        self.warm = False
        self._listeners = Listeners(lambda: LbrokerConnection(self))
        self._warming: asyncio.Task[None] | None = None
        self._unflushed: list[LbrokerConnection] = []

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        return await self._listeners.add(host, port, tls)

    def opened(self, connection: LbrokerConnection) -> None:
        self.connections.add(connection)
        if len(self.connections) > self.limits.connections_max:
            connection.cut_off(f"there are {self.limits.connections_max} connections already")

    def closed(self, connection: LbrokerConnection) -> None:
        self.connections.discard(connection)

    # --- the last messages ------------------------------------------------------------------------------

    async def warm_up(self) -> None:
        """Waits until the last messages are known, as far as they are."""
        if self._warming is None:
            self.globs.wake()
            self._warming = self.loop.create_task(self._read_tails())
        await asyncio.shield(self._warming)

    async def _read_tails(self) -> None:
        partitions = [
            partition
            for topic in self.router.catalog.topics.values()
            if not topic.internal
            for partition in topic.partitions
        ]
        each = min(TAIL_BYTES, TAILS_BYTES // max(len(partitions), 1))
        found: list[Message] = []
        try:
            for partition in partitions:
                try:
                    found += await asyncio.to_thread(read_tail, self.router, partition, each)
                except (LogError, BatchError, OSError) as error:
                    logger.warning("lbroker: the end of %r cannot be read: %s", partition, error)
        finally:
            self.latest.fill(found)
            self.warm = True

    # --- one write per turn -----------------------------------------------------------------------------

    def flush_later(self, connection: LbrokerConnection) -> None:
        if not self._unflushed:
            self.loop.call_soon(self._flush)
        self._unflushed.append(connection)

    def flush_now(self, connection: LbrokerConnection) -> None:
        self._unflushed.remove(connection)
        connection.flush()

    def _flush(self) -> None:
        connections, self._unflushed = self._unflushed, []
        for connection in connections:
            connection.flush()

    # --- the end ----------------------------------------------------------------------------------------

    def stop_listening(self) -> None:
        self._listeners.close()

    async def close(self) -> None:
        self.stop_listening()
        if self._warming is not None:
            self._warming.cancel()
        for connection in tuple(self.connections):
            if connection.transport is not None:
                connection.transport.close()
