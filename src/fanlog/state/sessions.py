"""Sessions of MQTT clients in the internal topic `__sessions`, one record each.

A session costs its offsets and what is in flight. What is kept of it: its subscriptions with their places in
the log, the messages that were sent and not acknowledged, the packet identifiers of QoS 2 messages that were
stored and not released, and how far the log was looked at for those. The record of a session that has ended
has no value.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from fanlog.cluster.catalog import Catalog
from fanlog.log.entries import Done
from fanlog.state.journal import Journal
from fanlog.wire.records import Record

TOPIC: Final = "__sessions"
PARTITIONS: Final = 4
# Not a client's name: those have no U+0000. Its record says from where on the log may hold messages of QoS 2
# that no session's record knows of.
_LOOK_FROM: Final = "\x00look-from"

# "topic/number"; a topic's name has no slash.
PartitionName = str
Place = tuple[PartitionName, int]


class SavedSubscription(msgspec.Struct, array_like=True):
    filter: str
    options: int
    identifier: int
    with_place: bool
    positions: dict[PartitionName, int]


class SavedFlight(msgspec.Struct, array_like=True):
    packet_id: int
    filter: str
    place: Place
    released: bool
    # What it was sent with, which may be more than its own subscription asks for: another wanted it too.
    qos: int


class SavedSession(msgspec.Struct, array_like=True):
    expiry_s: int
    at_ms: int
    subscriptions: list[SavedSubscription]
    flights: list[SavedFlight]
    received: list[int]
    # The last message of QoS 2 in each partition that `received` takes account of.
    accounted: dict[PartitionName, int]


class SessionStore:
    def __init__(self, catalog: Catalog, clock_ms: Callable[[], int]) -> None:
        self.journal = Journal(catalog, TOPIC, PARTITIONS, clock_ms)
        self.look_from: dict[PartitionName, int] = {}

    async def open(self) -> dict[str, SavedSession]:
        """All sessions that were kept, by client."""
        found: dict[str, SavedSession] = {}

        def apply(record: Record) -> None:
            client = (record.key or b"").decode()
            if client == _LOOK_FROM:
                self.look_from = msgspec.msgpack.decode(record.value or b"\x80", type=dict[str, int])
            elif record.value is None:
                found.pop(client, None)
            else:
                found[client] = msgspec.msgpack.decode(record.value, type=SavedSession)

        await self.journal.open()
        await self.journal.replay(apply)
        return found

    def save(self, client: str, session: SavedSession | None, done: Done | None = None) -> None:
        """Keeps a session, or forgets it. `done` is called when that is stored, or refused."""
        value = None if session is None else msgspec.msgpack.encode(session)
        self.journal.append(client, [(client.encode(), value)], done)

    def save_look_from(self, positions: dict[PartitionName, int]) -> None:
        self.look_from = positions
        self.journal.append(_LOOK_FROM, [(_LOOK_FROM.encode(), msgspec.msgpack.encode(positions))], None)
