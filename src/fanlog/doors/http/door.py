"""The HTTP door, as far as it goes yet: is the broker alive, is it ready, and how is it doing.

`GET /livez`, `GET /readyz` and `GET /metrics` (Prometheus' text format).
"""

import asyncio
import logging
from typing import TYPE_CHECKING, cast

import httptools

if TYPE_CHECKING:
    from fanlog.broker import Broker

logger = logging.getLogger(__name__)

# A request for one of these paths has no reason to be longer.
_REQUEST_BYTES_MAX = 65_536
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class HttpDoor:
    def __init__(self, broker: "Broker") -> None:
        self.broker = broker
        self.loop = asyncio.get_running_loop()
        self.host = ""
        self.port = 0
        self.connections: set[HttpConnection] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> None:
        self._server = await self.loop.create_server(lambda: HttpConnection(self), host, port)
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
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
        self.received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        self.door.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.door.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.received += len(data)
        try:
            if self.received > _REQUEST_BYTES_MAX:
                raise httptools.HttpParserError("the request is too long")
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.transport.close()
        except httptools.HttpParserError:
            self.transport.write(
                b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
            self.transport.close()

    def on_message_begin(self) -> None:
        self.path = b""

    def on_url(self, url: bytes) -> None:
        self.path += url

    def on_message_complete(self) -> None:
        if self.transport is None:
            return
        self.received = 0
        method = self.parser.get_method().decode()
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
