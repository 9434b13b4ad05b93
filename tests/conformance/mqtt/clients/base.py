"""What the scenarios ask of a client, whichever it is."""

import asyncio
import queue
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

PATIENCE_SECONDS = 20.0
Result = TypeVar("Result")


@dataclass(frozen=True)
class Properties:
    """Those properties of MQTT 5 that all clients know."""

    user: tuple[tuple[str, str], ...] = ()
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None


@dataclass(frozen=True)
class Message:
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties = field(default=Properties(), compare=False)


@dataclass(frozen=True)
class Will:
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False


class Connection:
    """One connection of one client. `version` is 4 or 5; a session that is not clean is kept for a minute."""

    def __init__(
        self, address: str, client_id: str, version: int, clean: bool = True, will: Will | None = None
    ) -> None:
        host, _, port = address.rpartition(":")
        self.host, self.port = host, int(port)
        self.client_id, self.version, self.clean, self.will = client_id, version, clean, will
        self.arrived: queue.Queue[Message] = queue.Queue()
        self.open()

    def open(self) -> None:
        """Connects, and returns when the broker has said yes."""
        raise NotImplementedError

    def subscribe(self, filter: str, qos: int) -> None:
        """Subscribes, and returns when the broker has granted it."""
        raise NotImplementedError

    def unsubscribe(self, filter: str) -> None:
        raise NotImplementedError

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        """Publishes, and returns when the broker has acknowledged it, as far as it does."""
        raise NotImplementedError

    def disconnect(self) -> None:
        raise NotImplementedError

    def cut(self) -> None:
        """Goes away without a word."""
        raise NotImplementedError

    def message(self) -> Message:
        return self.arrived.get(timeout=PATIENCE_SECONDS)

    def messages(self, count: int) -> list[Message]:
        return [self.message() for _ in range(count)]


class LoopThread:
    """An event loop in a thread of its own, for clients that live in one."""

    def __init__(self) -> None:
        self.loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE_SECONDS)


_shared: list[LoopThread] = []


def loop_thread() -> LoopThread:
    """The one of this test session."""
    if not _shared:
        _shared.append(LoopThread())
    return _shared[0]
