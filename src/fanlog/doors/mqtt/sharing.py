"""Shared subscriptions: `$share/group/filter`, [MQTT-4.8.2].

A share group is one member of its filter's channel, or one cursor, whatever the number of its sessions, and
hands each message to one of them that has room, in turn. What was sent with QoS 1 and is not acknowledged
when the connection breaks goes to another session that is connected; if there is none, it waits for the first
to come back. What was sent with QoS 2 stays with its session, [MQTT-4.8.2-4], [MQTT-4.8.2-5]. A message that
a client refuses is not offered to another, [MQTT-4.8.2-6].
"""

from collections import deque
from typing import TYPE_CHECKING

from fanlog.doors.mqtt.frames import Variant
from fanlog.doors.mqtt.session import Session, Subscription
from fanlog.log.partition import Partition
from fanlog.router.channels import Run
from fanlog.router.cursor import Cursor
from fanlog.wire.records import Message

if TYPE_CHECKING:
    from fanlog.doors.mqtt.door import MqttDoor

PREFIX = "$share/"
# Nobody shares frames with a group: each of its sessions makes its own.
_OWN = Variant(True, 0, own=True)


def inner_filter(filter: str) -> str:
    """The filter of a shared subscription; empty if it is none. [MQTT-4.8.2-1], [MQTT-4.8.2-2]"""
    group, _, rest = filter[len(PREFIX) :].partition("/")
    return rest if group and "+" not in group and "#" not in group else ""


class ShareMember(Subscription):
    """A session's part in a group."""

    plain = False
    __slots__ = ("group",)

    def __init__(self, session: Session, filter: str, variant: Variant, group: "ShareGroup") -> None:
        self.group = group
        super().__init__(session, filter, variant, False)

    @property
    def cursor(self) -> Cursor | None:
        return self.group.cursor

    @cursor.setter
    def cursor(self, cursor: Cursor | None) -> None:
        """It has none of its own."""

    def positions(self) -> dict[Partition, int]:
        return self.group.positions()

    def room(self) -> int:
        connection = self.session.connection
        if connection is None or not connection.writable:
            return 0
        return max(self.session.room(), 0) if self.variant.qos else ROOM_QOS0

    def change(self, variant: Variant, no_local: bool) -> None:
        self.variant = variant
        self.qos = variant.qos

    def detach(self) -> None:
        self.group.give_back(self, [one for one in self.group.members if one.session.connection is not None])

    def end(self) -> None:
        self.group.give_back(self, [one for one in self.group.members if one is not self])
        self.leave()

    def leave(self) -> None:
        self.group.remove(self)


# A member of QoS 0 is given this much at a time.
ROOM_QOS0 = 1000


class ShareGroup:
    def __init__(self, door: "MqttDoor", filter: str) -> None:
        self.door = door
        self.router = door.router
        self.name = filter
        self.filter = inner_filter(filter)
        self.variant = _OWN
        # In turn: whoever was given something goes to the end.
        self.members: deque[ShareMember] = deque()
        self.cursor: Cursor | None = None
        # Sent to somebody who went away, and to be sent to another before anything else.
        self.returned: deque[tuple[Run, Message, int]] = deque()

    @property
    def reader(self) -> str | None:
        """The group as a whole, while somebody in it is connected."""
        return self.name if any(one.session.connection is not None for one in self.members) else None

    # --- members ----------------------------------------------------------------------------------------

    def add(self, session: Session, variant: Variant) -> ShareMember:
        member = ShareMember(session, self.name, variant, self)
        self.members.append(member)
        if self.cursor is not None:
            self.router.pump.wake(self.cursor)
        return member

    def remove(self, member: ShareMember) -> None:
        if member in self.members:
            self.members.remove(member)
        if not self.members:
            self.router.leave(self.filter, self)
            self.cursor = None
            self.door.shares.pop(self.name, None)

    def give_back(self, member: ShareMember, others: list[ShareMember]) -> None:
        """Takes what a member has not acknowledged for the others, if there are any."""
        flights = member.session.flights
        if others:
            mine = [
                (packet_id, flight)
                for packet_id, flight in flights.items()
                if flight.subscription is member and flight.qos == 1 and flight.run is not None
            ]
            for packet_id, flight in mine:
                del flights[packet_id]
                assert flight.run is not None
                self.returned.append((flight.run, flight.message, flight.offset))
        if self.cursor is None and (self.returned or not others):
            self.router.leave(self.filter, self)
            self.cursor = Cursor(self, self.positions())
        if self.cursor is not None and others:
            self.router.pump.wake(self.cursor)

    # --- in sync ----------------------------------------------------------------------------------------

    def join(self) -> None:
        self.cursor = None
        self.router.join(self.filter, self)

    def push(self, frames: bytes, run: Run) -> bool:
        if self._room() < len(run.messages):
            return False
        self.give(run)
        return True

    def announce(self, messages: list[Message]) -> None:
        for message in messages:
            member = self._next()
            if member is not None:
                member.announce([message])

    # --- behind -----------------------------------------------------------------------------------------

    def fall_behind(self, run: Run) -> None:
        self.follow(Cursor(self, self.positions() | {run.partition: run.first}))

    def follow(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.router.pump.wake(cursor)

    def positions(self) -> dict[Partition, int]:
        if self.cursor is not None:
            return self.cursor.positions
        return {partition: self.router.delivered(partition) for partition in self.router.covered(self.filter)}

    def room(self) -> int:
        """What the members can take together, after what has been returned."""
        if self.cursor is None:
            return 0
        while self.returned:
            member = self._next()
            if member is None:
                return 0
            run, message, offset = self.returned.popleft()
            member.give(_part(run, [message], [offset]))
        return self._room()

    def _room(self) -> int:
        return sum([member.room() for member in self.members])

    def caught_up(self) -> None:
        if self.cursor is not None and self.room() > 0:
            self.join()

    def give(self, run: Run) -> None:
        """Deals the messages out."""
        left = {member: member.room() for member in self.members}
        dealt: dict[ShareMember, Run] = {}
        for message, offset in zip(run.messages, run.offsets, strict=True):
            member = self._next(left)
            assert member is not None
            left[member] -= 1
            part = dealt.setdefault(member, _part(run, [], []))
            part.messages.append(message)
            part.offsets.append(offset)
        for member, part in dealt.items():
            member.give(part)

    def _next(self, left: dict[ShareMember, int] | None = None) -> ShareMember | None:
        """The next in turn who can take a message."""
        for _ in range(len(self.members)):
            member = self.members[0]
            self.members.rotate(-1)
            if (member.room() if left is None else left[member]) > 0:
                return member
        return None


def _part(run: Run, messages: list[Message], offsets: list[int]) -> Run:
    part = Run(run.partition, run.first, run.end, run.timestamp)
    part.messages = messages
    part.offsets = offsets
    return part
