"""Which of Kafka's calls this door answers, and in which versions.

Each module in `apis/` registers its handlers here as it is imported; the answer to ApiVersions is computed
from this table, so it cannot promise what is not there.

A handler decodes nothing and encodes nothing: it is given the request as a namespace (fields named as in
kio's schemas, times in milliseconds) and returns its answer as a dict, in the shape of the newest version;
fields that the client's version does not have are left out. Most handlers are coroutines. The two that
carry the records, produce and fetch, are plain functions that are given the slot to put their answer in.
"""

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fanlog.doors.kafka.layouts import request_layout, response_layout
from fanlog.wire.messages import Layout

if TYPE_CHECKING:
    from fanlog.broker import Broker
    from fanlog.doors.kafka.connection import Connection, Slot

Answer = Mapping[str, Any]
Handler = Callable[["Context", Any], Awaitable[Answer]]
# May return something to wait for before the next request of the same connection is looked at.
DirectHandler = Callable[["Context", Any, "Slot"], Awaitable[None] | None]


@dataclass(slots=True)
class Context:
    """Who asks, and whom a handler may turn to."""

    broker: "Broker"
    connection: "Connection"
    version: int
    client_id: str

    @property
    def client_host(self) -> str:
        return self.connection.host


@dataclass(slots=True)
class Api:
    key: int
    # Oldest and newest version that are answered.
    oldest: int
    newest: int
    handler: Handler | None = None
    direct: DirectHandler | None = None

    def request(self, version: int) -> Layout:
        return request_layout(self.key, version)

    def response(self, version: int) -> Layout:
        return response_layout(self.key, version)


_apis: dict[int, Api] = {}


def api(key: int, oldest: int, newest: int) -> Callable[[Handler], Handler]:
    """Registers a coroutine as the answer to call `key`, versions `oldest` to `newest`."""

    def register(handler: Handler) -> Handler:
        _put(Api(key, oldest, newest, handler=handler))
        return handler

    return register


def direct_api(key: int, oldest: int, newest: int) -> Callable[[DirectHandler], DirectHandler]:
    def register(handler: DirectHandler) -> DirectHandler:
        _put(Api(key, oldest, newest, direct=handler))
        return handler

    return register


def _put(entry: Api) -> None:
    assert entry.key not in _apis, f"two handlers for call {entry.key}"
    _apis[entry.key] = entry


def apis() -> dict[int, Api]:
    """All calls that are answered, by their key."""
    package = importlib.import_module("fanlog.doors.kafka.apis")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(_apis.items()))
