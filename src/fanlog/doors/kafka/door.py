"""The Kafka door: listens, keeps count of its connections, and cuts off those that dawdle."""

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING

from fanlog.doors.kafka.connection import Connection
from fanlog.doors.kafka.registry import apis
from fanlog.doors.listening import Listeners

if TYPE_CHECKING:
    from fanlog.broker import Broker

logger = logging.getLogger(__name__)

_SWEEP_SECONDS = 0.5


class KafkaDoor:
    def __init__(self, broker: "Broker") -> None:
        self.broker = broker
        self.limits = broker.settings.limits
        self.apis = apis()
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.requests = 0
        self._listeners = Listeners(lambda: Connection(self))
        self._sweeper: asyncio.TimerHandle | None = None

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        taken = await self._listeners.add(host, port, tls)
        if self._sweeper is None:
            self._sweep()
        return taken

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)
        if len(self.connections) > self.limits.connections_max:
            connection.abort(f"there are {self.limits.connections_max} connections already")

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)

    def _sweep(self) -> None:
        """Cuts off connections whose frame has been arriving for too long, or that have long been silent."""
        now = self.loop.time()
        frame_before = now - self.limits.frame_seconds_max
        idle_before = now - self.limits.idle_seconds_max
        for connection in tuple(self.connections):
            if connection.frame_since and connection.frame_since < frame_before:
                connection.abort("its frame took too long to arrive")
            elif connection.active_at < idle_before:
                connection.abort("it was idle")
        self._sweeper = self.loop.call_later(_SWEEP_SECONDS, self._sweep)

    def stop_listening(self) -> None:
        self._listeners.close()

    async def close(self) -> None:
        self.stop_listening()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in tuple(self.connections):
            if connection.transport is not None:
                connection.transport.close()
