"""Channels: all the live subscribers of one filter, and what goes out to them.

A run is what one commit of one partition brought to one channel. Members of a channel whose frames look
alike (same protocol, same quality of service, same options) share a variant: its frames are encoded once
for the run, and each member is handed the same bytes. A member that cannot take them (its transport is
full, or its window is) leaves the channel in that moment and reads on from the log by itself, from the first
offset it did not get; see `cursor`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from fanlog.wire.records import Message

if TYPE_CHECKING:
    from fanlog.log.partition import Partition


class Run:
    """Messages of one partition, in the order of their offsets, for one channel."""

    __slots__ = ("acks", "end", "first", "messages", "offsets", "partition", "sent_bytes", "timestamp")

    def __init__(self, partition: "Partition", first: int, end: int, timestamp: int) -> None:
        self.partition = partition
        # What the commit covers, whether or not it was for this channel.
        self.first = first
        self.end = end
        self.timestamp = timestamp
        self.messages: list[Message] = []
        self.offsets: list[int] = []
        # Kept here by a protocol whose subscribers will all acknowledge in the same words.
        self.acks: object = None
        self.sent_bytes = 0

    def add(self, message: Message, offset: int) -> None:
        self.messages.append(message)
        self.offsets.append(offset)

    def beginning(self, count: int) -> "Run":
        """The first `count` messages, as a run of their own."""
        part = Run(self.partition, self.first, self.offsets[count - 1] + 1, self.timestamp)
        part.messages, part.offsets = self.messages[:count], self.offsets[:count]
        return part

    def value_bytes(self) -> int:
        return sum([len(message.value or b"") for message in self.messages])


class Outlet(Protocol):
    """Where runs go: a channel, of this kind or of a door's own."""

    def deliver(self, run: Run) -> int:
        """Hands a run to whoever wants it; returns how many messages went out."""
        ...


class ChannelSet(Protocol):
    """Channels by a kind of pattern."""

    def __len__(self) -> int: ...

    def match(self, address: str) -> Sequence[Outlet]: ...


class Variant(Protocol):
    """How the frames of some members look. Two that are equal make the same bytes."""

    def encode(self, run: Run) -> bytes: ...


class Member(Protocol):
    """One subscription of one session."""

    @property
    def variant(self) -> Variant: ...

    def push(self, frames: bytes, run: Run) -> bool:
        """Takes the frames of a run; False if that is not possible now."""
        ...

    def fall_behind(self, run: Run) -> None:
        """It has left the channel, and has everything before `run`."""
        ...

    def announce(self, messages: list[Message]) -> None:
        """Takes messages that are in no log, or misses them."""
        ...


class Channel:
    __slots__ = ("_groups", "filter", "members")

    def __init__(self, filter: str) -> None:
        self.filter = filter
        self.members: dict[Member, None] = {}
        # The members by variant, as of the last delivery; None if that has changed.
        self._groups: dict[Variant, list[Member]] | None = None

    def __len__(self) -> int:
        return len(self.members)

    def join(self, member: Member) -> None:
        self.members[member] = None
        self._groups = None

    def leave(self, member: Member) -> None:
        self.members.pop(member, None)
        self._groups = None

    def _by_variant(self) -> dict[Variant, list[Member]]:
        groups: dict[Variant, list[Member]] = {}
        for member in self.members:
            groups.setdefault(member.variant, []).append(member)
        return groups

    def deliver(self, run: Run) -> int:
        """Hands a run to every member; returns how many messages went out."""
        sent = 0
        behind: list[Member] = []
        if self._groups is None:
            self._groups = self._by_variant()
        for variant, members in self._groups.items():
            frames = variant.encode(run)
            missed = len(behind)
            for member in members:
                if not member.push(frames, run):
                    behind.append(member)
            taken = len(members) - (len(behind) - missed)
            sent += taken * len(run.messages)
            # Frames of a member's own are about as long as the values in them.
            run.sent_bytes += taken * (len(frames) or run.value_bytes())
        for member in behind:
            self.leave(member)
            member.fall_behind(run)
        return sent

    def announce(self, messages: list[Message]) -> None:
        for member in tuple(self.members):
            member.announce(messages)
