"""The HTTP door, as far as it goes yet: is the broker alive, is it ready, and how is it doing.

`GET /livez`, `GET /readyz` and `GET /metrics` (Prometheus' text format). A request to upgrade the connection
is handed to whoever has taken that path, with the connection; MQTT over WebSocket comes this way.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import httptools

from fanlog.doors.listening import Listeners

if TYPE_CHECKING:
    from fanlog.broker import Broker

logger = logging.getLogger(__name__)

# A request for one of these paths has no reason to be longer.
_REQUEST_BYTES_MAX = 65_536
# The connection, the path, the headers, and the bytes that came behind the request.
Upgrade = Callable[[asyncio.Transport, str, list[tuple[str, str]], bytes], None]
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class HttpDoor:
    def __init__(self, broker: "Broker") -> None:
        self.broker = broker
        self.limits = broker.settings.limits
        self.loop = asyncio.get_running_loop()
        self.connections: set[HttpConnection] = set()
        # Who takes over a connection that asks for it, by path.
        self.upgrades: dict[str, Upgrade] = {}
        self._listeners = Listeners(lambda: HttpConnection(self))

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        return await self._listeners.add(host, port, tls)

    def stop_listening(self) -> None:
        self._listeners.close()

    async def close(self) -> None:
        self._listeners.close()
        for connection in tuple(self.connections):
            if connection.transport is not None:
                connection.transport.close()

    def answer(self, method: str, path: str) -> tuple[int, str]:
        if path not in ("/livez", "/readyz", "/metrics"):
            return 404, f"there is nothing at {path}\n"
        if method not in ("GET", "HEAD"):
            return 405, f"{path} can only be read\n"
        if path == "/metrics":
            return 200, self._metrics()
        if path == "/readyz" and not self.broker.ready:
            return 503, "not ready\n"
        return 200, "ok\n"

    def _metrics(self) -> str:
        committer, catalog = self.broker.committer, self.broker.catalog
        partitions = list(catalog.partitions())
        values = (
            ("appends_total", "counter", "Batches stored.", committer.appends),
            ("appended_bytes_total", "counter", "Bytes of batches stored.", committer.appended_bytes),
            ("fsyncs_total", "counter", "Times that a log was synced to disk.", committer.syncs),
            ("kafka_requests_total", "counter", "Requests of Kafka clients.", self.broker.kafka.requests),
            ("kafka_connections", "gauge", "Kafka clients.", len(self.broker.kafka.connections)),
            ("mqtt_connections", "gauge", "MQTT clients.", len(self.broker.mqtt.connections)),
            ("mqtt_received_total", "counter", "Messages of MQTT clients.", self.broker.mqtt.received),
            ("lbroker_connections", "gauge", "lbroker clients.", len(self.broker.lbroker.connections)),
            (
                "lbroker_received_total",
                "counter",
                "Messages of lbroker clients.",
                self.broker.lbroker.received,
            ),
            (
                "lbroker_skipped_total",
                "counter",
                "Messages that lbroker clients missed because they did not read.",
                self.broker.lbroker.skipped,
            ),
            ("sent_total", "counter", "Messages sent to subscribers.", self.broker.router.sent),
            (
                "readers_behind",
                "gauge",
                "Subscriptions that are behind.",
                len(self.broker.router.pump.behind),
            ),
            ("topics", "gauge", "Topics.", len(catalog.topics)),
            ("partitions", "gauge", "Partitions.", len(partitions)),
            (
                "partitions_read_only",
                "gauge",
                "Partitions that take nothing because their disk failed.",
                sum(partition.failure is not None for partition in partitions),
            ),
            ("log_bytes", "gauge", "Bytes of all logs.", sum(partition.size for partition in partitions)),
        )
        return "".join(
            f"# HELP fanlog_{name} {help}\n# TYPE fanlog_{name} {kind}\nfanlog_{name} {value}\n"
            for name, kind, help, value in values
        )


class HttpConnection(asyncio.Protocol):
    def __init__(self, door: HttpDoor) -> None:
        self.door = door
        self.transport: asyncio.Transport | None = None
        self.parser = httptools.HttpRequestParser(self)
        self.path = b""
        self.headers: list[tuple[str, str]] = []
        self.received = 0
        self._upgrade: Upgrade | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        self.door.connections.add(self)
        if len(self.door.connections) > self.door.limits.connections_max:
            self.transport.abort()
        self._expect(self.door.limits.frame_seconds_max)

    def _expect(self, seconds: float) -> None:
        """A request has to be there by then."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self.transport is not None:
            self._deadline = self.door.loop.call_later(seconds, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._expect(0)
        self.door.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        if not self.received:
            self._expect(self.door.limits.frame_seconds_max)
        self.received += len(data)
        try:
            if self.received > _REQUEST_BYTES_MAX:
                raise httptools.HttpParserError("the request is too long")
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as found:
            self._hand_over(data[found.args[0] :])
        except httptools.HttpParserError:
            self.transport.write(
                b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
            self.transport.close()

    def _hand_over(self, rest: bytes) -> None:
        transport, upgrade = self.transport, self._upgrade
        if transport is None:
            return
        if upgrade is None:
            # It was answered as if it had not asked.
            transport.close()
            return
        self.transport = None
        self._expect(0)
        self.door.connections.discard(self)
        upgrade(transport, self.path.decode("latin-1"), self.headers, rest)

    def on_message_begin(self) -> None:
        self.path = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_url(self, url: bytes) -> None:
        self.path += url

    def on_message_complete(self) -> None:
        if self.transport is None:
            return
        self.received = 0
        self._expect(self.door.limits.idle_seconds_max)
        method = self.parser.get_method().decode()
        if self.parser.should_upgrade() and method == "GET":
            self._upgrade = self.door.upgrades.get(self.path.decode("latin-1").partition("?")[0])
            if self._upgrade is not None:
                return
        status, text = self.door.answer(method, self.path.decode("latin-1").partition("?")[0])
        body = text.encode()
        keep = self.parser.should_keep_alive()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(body)}\r\nconnection: {'keep-alive' if keep else 'close'}\r\n\r\n"
        )
        self.transport.write(head.encode() + (b"" if method == "HEAD" else body))
        if not keep:
            self.transport.close()
