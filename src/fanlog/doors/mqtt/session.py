"""A client's session: its subscriptions, and what is on its way to it.

A subscription is in sync (a member of its channel, handed the same bytes as everybody) or behind (it has a
cursor and reads from the log). Which of the two changes with what its connection can take; neither has a
queue.

Messages of QoS 1 and 2 are in flight until the client has said so. A session with a single subscription of
QoS 1 on a single partition takes its packet identifiers from the offsets, like all others of that kind: then
what is in flight is a run, and the acknowledgements that will come are known bytes. In all other cases
each message has an identifier of the session's own.

Subscriptions of one session that overlap send a message once: the oldest of them that wants it, with the
highest quality of service and the identifiers of all that want it. See `overlapping`.
"""

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from fanlog.doors.mqtt import overlapping
from fanlog.doors.mqtt.flights import Flight, SharedFlight, acks_of
from fanlog.doors.mqtt.frames import Aliases, Variant, interned, shared_packet_id
from fanlog.doors.mqtt.translate import client_of
from fanlog.log.commit import now_ms
from fanlog.log.partition import Partition
from fanlog.router.channels import Run
from fanlog.router.cursor import Cursor
from fanlog.wire.mqtt import encode_ack
from fanlog.wire.mqtt_tables import PUBREL, V5
from fanlog.wire.records import Message

if TYPE_CHECKING:
    from fanlog.doors.mqtt.connection import MqttConnection
    from fanlog.doors.mqtt.door import MqttDoor

# A subscription of QoS 0 is given this much at a time while it catches up.
_ROOM_QOS0 = 1000
_PACKET_IDS = 65_535
# Retained messages are sent so many bytes at a time.
_GREETING_BYTES = 32 << 10
NEVER = 0xFFFFFFFF


class Subscription:
    """One filter of one session."""

    # Not shared with other sessions.
    plain = True
    __slots__ = ("beside", "cursor", "filter", "no_local", "order", "qos", "session", "since", "variant")

    def __init__(self, session: "Session", filter: str, variant: Variant, no_local: bool) -> None:
        self.session = session
        self.filter = filter
        self.variant = interned(variant)
        self.no_local = no_local
        # None while it is in sync.
        self.cursor: Cursor | None = None
        # Others of the session that overlap with it, the highest QoS of them all, and from where on it sends
        # what is wanted by several: see `overlapping`.
        self.beside: tuple[Subscription, ...] = ()
        self.qos = variant.qos
        self.since: dict[Partition, int] | None = None
        self.order = session.next_order()

    @property
    def reader(self) -> str | None:
        return None if self.session.connection is None else self.session.client_id

    # --- in sync ----------------------------------------------------------------------------------------

    def push(self, frames: bytes, run: Run) -> bool:
        session = self.session
        connection = session.connection
        if connection is None or not connection.writable:
            return False
        if frames and not self.qos and not self.no_local and len(frames) <= session.packet_bytes_max:
            connection.write(frames)
            return True
        if self.qos and len(run.messages) > session.room():
            return False
        if (
            frames
            and not self.no_local
            and len(frames) <= session.packet_bytes_max
            and session.identifiers_free(run)
        ):
            acks = acks_of(run)
            if acks:
                session.shared.append(SharedFlight(self, run, acks))
                session.shared_count += len(acks) >> 2
            connection.write(frames)
            return True
        self.give(run)
        return True

    def join(self) -> None:
        self.cursor = None
        self.session.router.join(self.filter, self)

    # --- behind -----------------------------------------------------------------------------------------

    def fall_behind(self, run: Run) -> None:
        positions = self.positions()
        positions[run.partition] = run.first
        self.follow(Cursor(self, positions))

    def positions(self) -> dict[Partition, int]:
        """Where the channels are, in everything that the filter covers."""
        router = self.session.router
        return {partition: router.delivered(partition) for partition in router.covered(self.filter)}

    def follow(self, cursor: Cursor) -> None:
        self.cursor = cursor
        if self.session.connection is not None:
            self.session.router.pump.wake(cursor)

    def room(self) -> int:
        connection = self.session.connection
        if connection is None or not connection.writable or self.cursor is None:
            return 0
        if not self.qos:
            return _ROOM_QOS0
        # Much at a time: what is sent in small pieces cannot be shared with others.
        room = self.session.room()
        return room if room * 2 >= self.session.window else 0

    def give(self, run: Run) -> None:
        """Sends a run with frames of its own."""
        session = self.session
        connection = session.connection
        assert connection is not None
        now = now_ms()
        frames = []
        for message, offset in zip(run.messages, run.offsets, strict=True):
            if message.expires_at_ms and message.expires_at_ms <= now:
                continue
            if self.no_local and session.published(message):
                # [MQTT-3.8.3-3]
                continue
            variant: Variant | None = self.variant
            if self.beside:
                variant = overlapping.variant_for(self, message, run.partition, offset)
            if variant is None:
                continue
            packet_id = 0
            if message.qos and variant.qos:
                packet_id = session.packet_id_for(offset, variant.shared_ids)
            frame = session.frame(variant, message, run, offset, packet_id, now)
            if not frame:
                # [MQTT-3.1.2-25]: it is too long for the client, and as good as sent.
                continue
            if packet_id:
                session.flights[packet_id] = Flight(self, message, run, offset, variant)
            frames.append(frame)
        if not frames:
            return
        data = b"".join(frames)
        if self.qos == 2 and session.expiry_s:
            # Which identifier a message has must not be forgotten once the client may have seen it. It is
            # saved when everybody has been handed the run, and every subscription is where it says it is.
            door = session.door
            door.loop.call_soon(door.keeper.save_now, session, lambda: connection.write(data))
        else:
            connection.write(data)

    def announce(self, messages: list[Message]) -> None:
        """Sends what is in no log, if there is room; of QoS 0 whatever was asked for."""
        connection = self.session.connection
        if connection is None or not connection.writable:
            return
        now = now_ms()
        frames = [self.variant.frame(message, None, 0, 0, now) for message in messages]
        connection.write(b"".join([one for one in frames if len(one) <= self.session.packet_bytes_max]))

    def caught_up(self) -> None:
        # A cursor that was under way may outlast its subscription.
        if self.session.connection is not None and self.cursor is not None:
            self.join()

    def leave(self) -> None:
        """Stops receiving."""
        self.session.router.leave(self.filter, self)
        self.cursor = None

    def detach(self) -> None:
        """The connection is gone: stays where it is."""
        if self.cursor is None:
            self.session.router.leave(self.filter, self)
            self.cursor = Cursor(self, self.positions())

    def end(self) -> None:
        """The session is over."""
        self.leave()

    def change(self, variant: Variant, no_local: bool) -> None:
        """Takes other options, and misses nothing."""
        if self.cursor is None:
            self.session.router.leave(self.filter, self)
            self.variant, self.no_local = interned(variant), no_local
            self.session.router.join(self.filter, self)
        else:
            self.variant, self.no_local = interned(variant), no_local
        overlapping.settle_qos(self)


class Session:
    __slots__ = (
        "_last_id",
        "_last_order",
        "accounted",
        "again",
        "aliases",
        "alone",
        "client_id",
        "connection",
        "door",
        "expiry_s",
        "flights",
        "greetings",
        "no_local",
        "packet_bytes_max",
        "received",
        "router",
        "saved",
        "shared",
        "shared_count",
        "subscriptions",
        "wild",
        "window",
    )

    def __init__(self, door: "MqttDoor", client_id: str) -> None:
        self.door = door
        self.router = door.router
        self.client_id = client_id
        self.connection: MqttConnection | None = None
        self.subscriptions: dict[str, Subscription] = {}
        # Those with wildcards, which alone can overlap with others.
        self.wild: dict[str, Subscription] | None = None
        self.flights: dict[int, Flight] = {}
        self.shared: list[SharedFlight] = []
        self.shared_count = 0
        # Identifiers of QoS 2 messages that were stored, and that the client has not released.
        self.received: dict[int, None] = {}
        # The last of them in each partition, for whoever looks for more after a crash.
        self.accounted: dict[str, int] = {}
        # Whether there is a record of this session.
        self.saved = False
        # What is sent again to a client that came back, and retained messages that greet a new subscription:
        # as fast as the client takes them.
        self.again: deque[int] | None = None
        self.greetings: deque[tuple[Subscription, str]] | None = None
        self.aliases: Aliases | None = None
        self.window = _PACKET_IDS
        self.packet_bytes_max = 1 << 28
        self.expiry_s = 0
        # Whether a subscription does not want this client's own messages.
        self.no_local = False
        # The first level of its only filter of QoS 1, if it has only one that is acknowledged.
        self.alone = ""
        self._last_id = 0
        self._last_order = 0

    def room(self) -> int:
        return self.window - len(self.flights) - self.shared_count

    def next_order(self) -> int:
        self._last_order += 1
        return self._last_order

    def packet_id_for(self, offset: int, shared: bool) -> int:
        """An identifier that is not in flight; the one that all have for the record, if it can be."""
        if self.shared:
            self.unfold()
        if shared and shared_packet_id(offset) not in self.flights:
            return shared_packet_id(offset)
        while True:
            self._last_id = self._last_id % _PACKET_IDS + 1
            if self._last_id not in self.flights:
                return self._last_id

    def identifiers_free(self, run: Run) -> bool:
        """Whether the identifiers that all have for a run collide with nothing in flight here."""
        first = self.shared[0].run.offsets[0] if self.shared else run.offsets[0]
        if run.offsets[-1] - first >= _PACKET_IDS:
            return False
        return not self.flights or self.flights.keys().isdisjoint(map(shared_packet_id, run.offsets))

    def published(self, message: Message) -> bool:
        """Whether this client published a message, be it over an earlier connection."""
        return message.publisher is self.connection or client_of(message.headers) == self.client_id

    # --- frames -----------------------------------------------------------------------------------------

    def frame(
        self,
        variant: Variant,
        message: Message,
        run: Run | None,
        offset: int,
        packet_id: int,
        now: int,
        *,
        dup: bool = False,
        retain: bool = False,
    ) -> bytes:
        """A frame of this session's own; empty if it is too long for the client."""
        aliases = self.aliases
        if variant.qos == 2 and self.expiry_s:
            # It is sent when the session is saved. Others that name the same alias may leave before.
            aliases = None
        known = len(aliases) if aliases is not None else 0
        frame = variant.frame(message, run, offset, packet_id, now, dup=dup, retain=retain, aliases=aliases)
        if len(frame) > self.packet_bytes_max:
            if aliases is not None and len(aliases) > known:
                aliases.forget_last()
            return b""
        return frame

    # --- acknowledgements -------------------------------------------------------------------------------

    def match_acks(self, data: bytes) -> int:
        """How much of `data` is the acknowledgements that are due next."""
        at, end = 0, len(data)
        while self.shared and at < end:
            flight = self.shared[0]
            due = len(flight.acks) - flight.at
            size = min(due, (end - at) & ~3)
            if not size or data[at : at + size] != flight.acks[flight.at : flight.at + size]:
                break
            at += size
            self.shared_count -= size >> 2
            if size == due:
                del self.shared[0]
            else:
                flight.at += size
        if at:
            self.door.keeper.mark(self)
            self.wake()
        return at

    def unfold(self) -> None:
        """Turns runs into single flights: somebody acknowledges out of order, or needs an identifier."""
        self.flights = self.all_flights()
        self.shared.clear()
        self.shared_count = 0

    def all_flights(self) -> dict[int, Flight]:
        """Everything in flight, message by message."""
        flights = dict(self.flights)
        for flight in self.shared:
            run = flight.run
            skip = flight.at >> 2
            for message, offset in zip(run.messages, run.offsets, strict=True):
                if not message.qos:
                    continue
                if skip:
                    skip -= 1
                    continue
                flights[shared_packet_id(offset)] = Flight(flight.subscription, message, run, offset)
        return flights

    def acknowledged(self, packet_id: int) -> bool:
        """The client has done with a message; False if there is none of that number."""
        if self.shared:
            self.unfold()
        if self.flights.pop(packet_id, None) is None:
            return False
        if self.again and packet_id in self.again:
            self.again.remove(packet_id)
        self.door.keeper.mark(self)
        self.wake()
        return True

    def wake(self) -> None:
        """There may be room again: goes on with what is behind."""
        if self.again:
            self._send_again()
        if self.greetings and not self.again:
            self._greet()
        for subscription in self.subscriptions.values():
            if subscription.cursor is not None:
                self.router.pump.wake(subscription.cursor)

    # --- connections ------------------------------------------------------------------------------------

    def attach(self, connection: "MqttConnection") -> None:
        self.connection = connection
        v5 = connection.version == V5
        for subscription in self.subscriptions.values():
            if subscription.variant.v5 != v5:
                # A client may come back with another version of the protocol.
                subscription.change(replace(subscription.variant, v5=v5), subscription.no_local)

    def resume(self) -> None:
        """Sends again what was in flight, [MQTT-4.4.0-1], and goes on where the session was."""
        self.again = deque(self.flights)
        self.wake()

    def _send_again(self) -> None:
        connection = self.connection
        if connection is None:
            return
        assert self.again is not None
        now = now_ms()
        frames = []
        # [MQTT-3.3.4-9]: the client may now want fewer at a time than before.
        while self.again and len(self.flights) - len(self.again) < self.window:
            packet_id = self.again.popleft()
            flight = self.flights[packet_id]
            if flight.released:
                frames.append(encode_ack(PUBREL, packet_id, connection.version))
                continue
            variant = replace(flight.variant, v5=connection.version == V5)
            frame = self.frame(
                variant,
                flight.message,
                flight.run,
                flight.offset,
                packet_id,
                now,
                dup=True,
                retain=flight.retain,
            )
            if frame:
                frames.append(frame)
            else:
                del self.flights[packet_id]
        if frames:
            connection.write(b"".join(frames))

    def _greet(self) -> None:
        """Sends retained messages, each with an identifier of its own."""
        connection = self.connection
        assert self.greetings is not None
        now = now_ms()
        while self.greetings and connection is not None and connection.writable:
            frames: list[bytes] = []
            size = 0
            while self.greetings and size < _GREETING_BYTES:
                frame = self._greeting(*self.greetings[0], now)
                if frame is None:
                    break
                self.greetings.popleft()
                frames.append(frame)
                size += len(frame)
            connection.write(b"".join(frames))
            if size < _GREETING_BYTES:
                return

    def _greeting(self, subscription: Subscription, address: str, now: int) -> bytes | None:
        """The frame of a retained message, empty if there is nothing to send; None if there is no room."""
        message = self.door.retained.get(address)
        if message is None or self.subscriptions.get(subscription.filter) is not subscription:
            return b""
        if subscription.no_local and self.published(message):
            return b""
        variant = subscription.variant
        packet_id = 0
        if message.qos and variant.qos:
            if self.room() <= 0:
                return None
            packet_id = self.packet_id_for(0, False)
        frame = self.frame(variant, message, None, 0, packet_id, now, retain=True)
        if packet_id and frame:
            self.flights[packet_id] = Flight(subscription, message, None, 0, variant, retain=True)
        return frame

    def detach(self) -> None:
        """The connection is gone: every subscription stays where it is."""
        self.connection = None
        self.again = None
        if self.shared:
            self.unfold()
        for subscription in self.subscriptions.values():
            subscription.detach()

    def end(self) -> None:
        """The session is over."""
        for subscription in self.subscriptions.values():
            subscription.end()
        self.subscriptions.clear()
        self.wild = None
        self.flights.clear()
        self.shared.clear()
        self.shared_count = 0
        self.greetings = None
