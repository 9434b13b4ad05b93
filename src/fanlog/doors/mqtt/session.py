"""A client's session: its subscriptions, and what is on its way to it.

A subscription is in sync (a member of its channel, handed the same bytes as everybody) or behind (it has a
cursor and reads from the log). Which of the two changes with what its connection can take; neither has a
queue.

Messages of QoS 1 and 2 are in flight until the client has said so. A session with a single subscription of
QoS 1 on a single partition takes its packet identifiers from the offsets, like all others of that kind: then
what is in flight is a run, and the acknowledgements that will come are known bytes. In all other cases
each message has an identifier of the session's own.
"""

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from fanlog.doors.mqtt.frames import Variant, shared_packet_id
from fanlog.log.commit import now_ms
from fanlog.log.partition import Partition
from fanlog.router.channels import Run
from fanlog.router.cursor import Cursor
from fanlog.wire.mqtt import encode_ack, encode_acks
from fanlog.wire.mqtt_tables import PUBACK, PUBREL, V5
from fanlog.wire.records import Message

if TYPE_CHECKING:
    from fanlog.doors.mqtt.connection import MqttConnection
    from fanlog.doors.mqtt.door import MqttDoor

# A subscription of QoS 0 is given this much at a time while it catches up.
_ROOM_QOS0 = 1000
_PACKET_IDS = 65_535
NEVER = 0xFFFFFFFF


class Flight:
    """A message that the client has not acknowledged."""

    __slots__ = ("message", "offset", "released", "run", "subscription")

    def __init__(self, subscription: "Subscription", message: Message, run: Run | None, offset: int) -> None:
        self.subscription = subscription
        self.message = message
        self.run = run
        self.offset = offset
        # QoS 2: the client has it, and is told that it may forget the identifier.
        self.released = False


class SharedFlight:
    """A run whose acknowledgements are known beforehand."""

    __slots__ = ("acks", "at", "run", "subscription")

    def __init__(self, subscription: "Subscription", run: Run, acks: bytes) -> None:
        self.subscription = subscription
        self.run = run
        self.acks = acks
        self.at = 0


def acks_of(run: Run) -> bytes:
    """What a client will answer to a run of shared packet identifiers."""
    if run.acks is None:
        run.acks = encode_acks(
            PUBACK,
            [
                shared_packet_id(offset)
                for message, offset in zip(run.messages, run.offsets, strict=True)
                if message.qos
            ],
        )
    assert isinstance(run.acks, bytes)
    return run.acks


class Subscription:
    """One filter of one session."""

    __slots__ = ("cursor", "filter", "no_local", "session", "variant")

    def __init__(self, session: "Session", filter: str, variant: Variant, no_local: bool) -> None:
        self.session = session
        self.filter = filter
        self.variant = variant
        self.no_local = no_local
        # None while it is in sync.
        self.cursor: Cursor | None = None

    # --- in sync ----------------------------------------------------------------------------------------

    def push(self, frames: bytes, run: Run) -> bool:
        session = self.session
        connection = session.connection
        if connection is None or not connection.writable:
            return False
        if not self.variant.qos and not self.no_local and len(frames) <= session.packet_bytes_max:
            connection.write(frames)
            return True
        if self.variant.qos and len(run.messages) > session.room():
            return False
        if frames and not self.no_local and len(frames) <= session.packet_bytes_max:
            acks = acks_of(run)
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
        if connection is None or not connection.writable:
            return 0
        return self.session.room() if self.variant.qos else _ROOM_QOS0

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
            if self.no_local and message.publisher is connection:
                # [MQTT-3.8.3-3]
                continue
            packet_id = 0
            if message.qos and self.variant.qos:
                packet_id = shared_packet_id(offset) if self.variant.shared_ids else session.new_packet_id()
            frame = self.variant.frame(message, run, offset, packet_id, now)
            if len(frame) > session.packet_bytes_max:
                # [MQTT-3.1.2-25]: as if it had been sent.
                continue
            if packet_id:
                session.flights[packet_id] = Flight(self, message, run, offset)
            frames.append(frame)
        if not frames:
            return
        data = b"".join(frames)
        if self.variant.qos == 2:
            # Which identifier a message has must not be forgotten once the client may have seen it.
            session.door.keeper.save_now(session, lambda: connection.write(data))
        else:
            connection.write(data)

    def give_retained(self, messages: list[Message]) -> None:
        """Sends what was retained, each with an identifier of its own."""
        session = self.session
        connection = session.connection
        assert connection is not None
        now = now_ms()
        for message in messages:
            if message.expires_at_ms and message.expires_at_ms <= now:
                continue
            packet_id = session.new_packet_id() if message.qos and self.variant.qos else 0
            frame = self.variant.frame(message, None, 0, packet_id, now, retain=True)
            if len(frame) > session.packet_bytes_max:
                continue
            if packet_id:
                session.flights[packet_id] = Flight(self, message, None, 0)
            connection.write(frame)

    def announce(self, messages: list[Message]) -> None:
        """Sends what is in no log, if there is room; of QoS 0 whatever was asked for."""
        connection = self.session.connection
        if connection is None or not connection.writable:
            return
        now = now_ms()
        frames = [self.variant.frame(message, None, 0, 0, now) for message in messages]
        connection.write(b"".join([one for one in frames if len(one) <= self.session.packet_bytes_max]))

    def caught_up(self) -> None:
        if self.session.connection is not None:
            self.join()

    def leave(self) -> None:
        """Stops receiving."""
        self.session.router.leave(self.filter, self)
        self.cursor = None

    def change(self, variant: Variant, no_local: bool) -> None:
        """Takes other options, and misses nothing."""
        if self.cursor is None:
            self.session.router.leave(self.filter, self)
            self.variant, self.no_local = variant, no_local
            self.session.router.join(self.filter, self)
        else:
            self.variant, self.no_local = variant, no_local


class Session:
    def __init__(self, door: "MqttDoor", client_id: str) -> None:
        self.door = door
        self.router = door.router
        self.client_id = client_id
        self.connection: MqttConnection | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.flights: dict[int, Flight] = {}
        self.shared: deque[SharedFlight] = deque()
        self.shared_count = 0
        # Identifiers of QoS 2 messages that were stored, and that the client has not released.
        self.received: set[int] = set()
        # The last of them in each partition, for whoever looks for more after a crash.
        self.accounted: dict[str, int] = {}
        # Whether there is a record of this session.
        self.saved = False
        self.window = _PACKET_IDS
        self.packet_bytes_max = 1 << 28
        self.expiry_s = 0
        self._last_id = 0

    def room(self) -> int:
        return self.window - len(self.flights) - self.shared_count

    def new_packet_id(self) -> int:
        if self.shared:
            self.unfold()
        while True:
            self._last_id = self._last_id % _PACKET_IDS + 1
            if self._last_id not in self.flights:
                return self._last_id

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
                self.shared.popleft()
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
        self.door.keeper.mark(self)
        self.wake()
        return True

    def wake(self) -> None:
        """There may be room again: goes on with what is behind."""
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
        connection = self.connection
        assert connection is not None
        now = now_ms()
        frames = []
        for packet_id, flight in self.flights.items():
            if flight.released:
                frames.append(encode_ack(PUBREL, packet_id, connection.version))
            else:
                variant = flight.subscription.variant
                frames.append(
                    variant.frame(flight.message, flight.run, flight.offset, packet_id, now, dup=True)
                )
        if frames:
            connection.write(b"".join(frames))
        self.wake()

    def detach(self) -> None:
        """The connection is gone: every subscription stays where it is."""
        self.connection = None
        if self.shared:
            self.unfold()
        for subscription in self.subscriptions.values():
            if subscription.cursor is None:
                self.router.leave(subscription.filter, subscription)
                subscription.cursor = Cursor(subscription, subscription.positions())

    def end(self) -> None:
        """The session is over."""
        for subscription in self.subscriptions.values():
            subscription.leave()
        self.subscriptions.clear()
        self.flights.clear()
        self.shared.clear()
