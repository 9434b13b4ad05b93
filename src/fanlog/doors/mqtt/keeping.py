"""Sessions that outlast their connection, and the broker.

What must not be forgotten is saved before it is acknowledged: a subscription before its SUBACK, the
identifier of a QoS 2 message before it is sent, that the client has one before PUBREL, that a message is
released before PUBCOMP. How far a client has come in QoS 1 is saved behind, every second: after a crash it
may be sent some messages again, which QoS 1 allows.

A QoS 2 message that a client publishes carries the client's name and its packet identifier in its record. A
broker that starts looks through the end of the log for those that were stored before the session's record
could say so: there is no moment in which such a message is stored and not known to be.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fanlog.doors.mqtt import overlapping, sharing
from fanlog.doors.mqtt.flights import Flight
from fanlog.doors.mqtt.frames import Variant
from fanlog.doors.mqtt.session import Session, Subscription
from fanlog.doors.mqtt.sharing import ShareGroup
from fanlog.log.errors import LogError
from fanlog.log.partition import Partition, unpack
from fanlog.router import headers
from fanlog.router.channels import Run
from fanlog.router.cursor import Cursor
from fanlog.state.sessions import SavedFlight, SavedSession, SavedSubscription, SessionStore
from fanlog.wire import records
from fanlog.wire.mqtt import NO_LOCAL, RETAIN_AS_PUBLISHED

if TYPE_CHECKING:
    from fanlog.doors.mqtt.door import MqttDoor

logger = logging.getLogger(__name__)

SAVE_SECONDS: Final = 1.0
_READ_BYTES: Final = 1 << 20


def name_of(partition: Partition) -> str:
    return f"{partition.topic}/{partition.number}"


class Keeper:
    def __init__(self, door: "MqttDoor", store: SessionStore) -> None:
        self.door = door
        self.store = store
        self._dirty: dict[Session, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Saves that are on their way to the log.
        self._saves = 0
        self._unsettled: set[int] = set()

    # --- save -------------------------------------------------------------------------------------------

    def mark(self, session: Session) -> None:
        """Something of a session has changed that may be saved a little later."""
        if session.expiry_s:
            self._dirty[session] = None
            if self._timer is None:
                self._timer = self.door.loop.call_later(SAVE_SECONDS, self._save_dirty)

    def save_now(self, session: Session, then: Callable[[], None]) -> None:
        """Saves a session, and does `then` when it is stored. What is not to last is not saved."""
        if not session.expiry_s:
            then()
            return
        self._dirty.pop(session, None)
        number = self._begin()

        def done(error: LogError | None) -> None:
            self._unsettled.discard(number)
            if error is None:
                then()
            elif session.connection is not None:
                # Nothing is promised that is not kept; the client comes again.
                session.connection.close()

        self.store.save(session.client_id, self._snapshot(session), done)

    async def saved(self, session: Session) -> None:
        """Saves a session; returns when it is stored. Raises LogError if it cannot be."""
        done: asyncio.Future[LogError | None] = self.door.loop.create_future()

        def settled(error: LogError | None) -> None:
            if not done.done():
                done.set_result(error)

        self.store.save(session.client_id, self._snapshot(session), settled)
        error = await done
        if error is not None:
            raise error

    def note_progress(self) -> None:
        """Notes that the sessions' records tell of everything in the log, if they do: it need not be looked
        through again."""
        if self.door.sessions and not self._dirty and not self._unsettled:
            self.store.save_look_from(self._ends())

    def _ends(self) -> dict[str, int]:
        return {name_of(one): one.high_watermark for one in self.door.broker.catalog.partitions()}

    def _begin(self) -> int:
        self._saves += 1
        self._unsettled.add(self._saves)
        return self._saves

    def forget(self, session: Session) -> None:
        self._dirty.pop(session, None)
        if session.saved:
            self.store.save(session.client_id, None)

    def _save_dirty(self) -> None:
        self._timer = None
        dirty, self._dirty = self._dirty, {}
        positions = self._ends()
        waiting = len(dirty)
        # What was saved before must be stored too: it may be all that tells of a message of QoS 2.
        before = set(self._unsettled)

        def done(error: LogError | None) -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting and error is None and not before & self._unsettled:
                self.store.save_look_from(positions)

        for session in dirty:
            self.store.save(session.client_id, self._snapshot(session), done)

    def _snapshot(self, session: Session) -> SavedSession:
        session.saved = True
        flights = session.all_flights()
        return SavedSession(
            session.expiry_s,
            self.store.journal.clock_ms(),
            [self._subscription(one, flights.values()) for one in session.subscriptions.values()],
            [
                SavedFlight(
                    packet_id,
                    flight.subscription.filter,
                    (name_of(flight.run.partition), flight.offset),
                    flight.released,
                    flight.qos,
                )
                for packet_id, flight in flights.items()
                if flight.run is not None
            ],
            sorted(session.received),
            dict(session.accounted),
        )

    def _subscription(self, subscription: Subscription, flights: Iterable[Flight]) -> SavedSubscription:
        variant = subscription.variant
        options = variant.qos
        options |= NO_LOCAL if subscription.no_local else 0
        options |= RETAIN_AS_PUBLISHED if variant.retain_as_published else 0
        cursor = subscription.cursor
        positions = dict(subscription.positions() if cursor is None else cursor.positions)
        for flight in flights:
            # What is being sent in this moment is in flight already, and its place is not moved on yet.
            if flight.subscription is subscription and flight.run is not None:
                place = flight.run.partition
                positions[place] = max(positions.get(place, 0), flight.offset + 1)
        named = {name_of(partition): offset for partition, offset in positions.items()}
        return SavedSubscription(
            subscription.filter, options, variant.subscription_id, variant.with_place, named
        )

    # --- restore ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Brings back every session, without its connection."""
        for client, saved in (await self.store.open()).items():
            session = self.door.sessions[client] = Session(self.door, client)
            session.saved = True
            session.expiry_s = saved.expiry_s
            session.received = dict.fromkeys(saved.received)
            session.accounted = dict(saved.accounted)
            for one in saved.subscriptions:
                self._restore(session, one)
            await asyncio.to_thread(self._restore_flights, session, saved.flights)
            self.door.expire_later(session, saved.at_ms)
        if self.door.sessions:
            # Without sessions there is nobody whose messages these could be.
            await asyncio.to_thread(self._look_for_received)
        self.note_progress()
        logger.info("%d sessions", len(self.door.sessions))

    def _restore(self, session: Session, saved: SavedSubscription) -> None:
        # The protocol's version is known again when the client connects.
        variant = Variant(
            False,
            saved.options & 3,
            bool(saved.options & RETAIN_AS_PUBLISHED),
            saved.identifier,
            False,
            saved.with_place,
        )
        shared = saved.filter.startswith(sharing.PREFIX)
        filter = sharing.inner_filter(saved.filter) if shared else saved.filter
        positions = {
            partition: saved.positions[name_of(partition)]
            for partition in self.door.router.covered(filter)
            if name_of(partition) in saved.positions
        }
        if shared:
            session.subscriptions[saved.filter] = self._restore_share(
                session, saved.filter, variant, positions
            )
            return
        subscription = Subscription(session, saved.filter, variant, bool(saved.options & NO_LOCAL))
        subscription.cursor = Cursor(subscription, positions)
        session.subscriptions[saved.filter] = subscription
        overlapping.added(subscription)

    def _restore_share(
        self, session: Session, filter: str, variant: Variant, positions: dict[Partition, int]
    ) -> Subscription:
        """Every session of a group has saved where the group was; the furthest is the newest."""
        group = self.door.shares.get(filter)
        if group is None:
            group = self.door.shares[filter] = ShareGroup(self.door, filter)
            group.cursor = Cursor(group, {})
        assert group.cursor is not None
        for partition, offset in positions.items():
            known = group.cursor.positions.get(partition, 0)
            group.cursor.positions[partition] = max(known, offset)
        return group.add(session, variant)

    def _restore_flights(self, session: Session, saved: list[SavedFlight]) -> None:
        for flight in saved:
            topic, _, number = flight.place[0].partition("/")
            partition = self.door.broker.catalog.partition(topic, int(number))
            subscription = session.subscriptions.get(flight.filter)
            if partition is None or subscription is None:
                continue
            offset = flight.place[1]
            found = _record_at(partition, offset)
            if found is None:
                continue
            message = self.door.router.messages(topic, [found])[0]
            run = Run(partition, offset, offset + 1, found.timestamp)
            variant = replace(subscription.variant, qos=flight.qos)
            restored = Flight(subscription, message, run, offset, variant)
            restored.released = flight.released
            session.flights[flight.packet_id] = restored

    def _look_for_received(self) -> None:
        """Finds messages of QoS 2 that were stored, and of which the sessions' records do not know."""
        for partition in list(self.door.broker.catalog.partitions()):
            if partition.topic.startswith("__"):
                continue
            offset = max(self.store.look_from.get(name_of(partition), 0), partition.log_start)
            for record in _records_from(partition, offset):
                said = dict(record.headers)
                client = (said.get(headers.MQTT_CLIENT) or b"").decode()
                session = self.door.sessions.get(client)
                name = name_of(partition)
                if session is not None and record.offset > session.accounted.get(name, -1):
                    session.received[int(said.get(headers.MQTT_PACKET_ID) or b"0")] = None
                    session.accounted[name] = record.offset

    async def close(self) -> None:
        """Saves what is not saved yet."""
        if self._timer is not None:
            self._timer.cancel()
        for session in tuple(self.door.sessions.values()):
            if session.expiry_s:
                self.store.save(session.client_id, self._snapshot(session))


def _records_from(partition: Partition, offset: int) -> "list[records.Record]":
    """Records of QoS 2 from `offset` on."""
    found = []
    while offset < partition.high_watermark:
        data = bytes(partition.read(offset, _READ_BYTES, True))
        at = 0
        while at + records.HEADER_BYTES <= len(data):
            header = records.read_header(data, at)
            if headers.MQTT_PACKET_ID.encode() in data[at : at + header.size] or header.compression:
                found += [
                    record
                    for record in unpack(data[at : at + header.size], header)
                    if record.offset >= offset
                    and any(name == headers.MQTT_PACKET_ID for name, _ in record.headers)
                ]
            at += header.size
            offset = header.last_offset + 1
        if not at:
            break
    return found


def _record_at(partition: Partition, offset: int) -> records.Record | None:
    try:
        data = bytes(partition.read(offset, 1, True))
    except LogError:
        return None
    if not data:
        return None
    for record in unpack(data, records.read_header(data)):
        if record.offset == offset:
            return record
    return None
