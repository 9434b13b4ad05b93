"""How a subscription's frames look, and their bytes: encoded once for all who want them alike."""

import functools
from dataclasses import dataclass

from fanlog.doors.mqtt.translate import properties_bytes
from fanlog.log.commit import now_ms
from fanlog.router.channels import Run
from fanlog.wire.mqtt import add_topic_alias, encode_publish
from fanlog.wire.records import Message

_PACKET_IDS = 65_535


def shared_packet_id(offset: int) -> int:
    """The packet identifier that every member of a channel has for a record."""
    return offset % _PACKET_IDS + 1


class Aliases:
    """The short names that one connection has for addresses; the first that come get one. [3.3.2.3.4]"""

    __slots__ = ("_most", "_numbers")

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, address: str) -> tuple[int, bool]:
        """The alias of an address, 0 if it has none, and whether the client knows it already."""
        number = self._numbers.get(address)
        if number is not None:
            return number, True
        if len(self._numbers) >= self._most:
            return 0, False
        number = self._numbers[address] = len(self._numbers) + 1
        return number, False

    def forget_last(self) -> None:
        """The frame that would have told of the newest alias was not sent."""
        self._numbers.popitem()


@dataclass(frozen=True, slots=True)
class Variant:
    """What the frames of a subscription depend on."""

    v5: bool
    qos: int
    retain_as_published: bool = False
    subscription_id: int = 0
    # Packet identifiers come from the offsets, so that all members share the bytes.
    shared_ids: bool = False
    # Told where each message stands in the log.
    with_place: bool = False
    # Every member makes its own frames: with its aliases, or for several subscriptions in one.
    own: bool = False
    # Identifiers of other subscriptions of the session that want the message too.
    more_ids: tuple[int, ...] = ()

    def encode(self, run: Run) -> bytes:
        """The frames of a run; none if its members make them for themselves."""
        if self.own or (self.qos and not self.shared_ids):
            return b""
        now = now_ms()
        frames = [
            self.frame(message, run, offset, shared_packet_id(offset), now)
            for message, offset in zip(run.messages, run.offsets, strict=True)
            if not message.expires_at_ms or message.expires_at_ms > now
        ]
        if self.qos and len(frames) < len(run.messages):
            # The acknowledgements of a shared run are those of all its messages.
            return b""
        return b"".join(frames)

    def frame(
        self,
        message: Message,
        run: Run | None,
        offset: int,
        packet_id: int,
        now: int,
        *,
        dup: bool = False,
        retain: bool = False,
        aliases: Aliases | None = None,
    ) -> bytes:
        qos = message.qos if message.qos < self.qos else self.qos
        topic = message.address.encode()
        properties = None
        if self.v5:
            extra = None
            if self.with_place and run is not None:
                extra = [
                    ("partition", str(run.partition.number)),
                    ("offset", str(offset)),
                    ("timestamp", str(message.timestamp or run.timestamp)),
                ]
            properties = properties_bytes(message, self._ids(), extra, now)
            if aliases is not None:
                alias, known = aliases.of(message.address)
                if alias:
                    properties = add_topic_alias(properties, alias)
                    topic = b"" if known else topic
        return encode_publish(
            topic,
            message.value or b"",
            qos,
            retain or (self.retain_as_published and message.retain),
            dup and qos > 0,
            packet_id if qos else 0,
            properties,
        )

    def _ids(self) -> tuple[int, ...]:
        if self.subscription_id:
            return (self.subscription_id, *self.more_ids)
        return self.more_ids


@functools.lru_cache(maxsize=4096)
def interned(variant: Variant) -> Variant:
    """One object for all variants that are equal: there may be as many as subscriptions."""
    return variant
