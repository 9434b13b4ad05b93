"""How a subscription's frames look, and their bytes: encoded once for all who want them alike."""

from dataclasses import dataclass

from fanlog.doors.mqtt.translate import properties_bytes
from fanlog.log.commit import now_ms
from fanlog.router.channels import Run
from fanlog.wire.mqtt import encode_publish
from fanlog.wire.records import Message

_PACKET_IDS = 65_535


def shared_packet_id(offset: int) -> int:
    """The packet identifier that every member of a channel has for a record."""
    return offset % _PACKET_IDS + 1


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

    def encode(self, run: Run) -> bytes:
        """The frames of a run; none if every member needs packet identifiers of its own."""
        if self.qos and not self.shared_ids:
            return b""
        now = now_ms()
        return b"".join(
            [
                self.frame(message, run, offset, shared_packet_id(offset), now)
                for message, offset in zip(run.messages, run.offsets, strict=True)
                if not message.expires_at_ms or message.expires_at_ms > now
            ]
        )

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
    ) -> bytes:
        qos = message.qos if message.qos < self.qos else self.qos
        properties = None
        if self.v5:
            extra = None
            if self.with_place and run is not None:
                extra = [
                    ("partition", str(run.partition.number)),
                    ("offset", str(offset)),
                    ("timestamp", str(run.timestamp)),
                ]
            properties = properties_bytes(message, self.subscription_id, extra, now)
        return encode_publish(
            message.address.encode(),
            message.value or b"",
            qos,
            retain or (self.retain_as_published and message.retain),
            dup and qos > 0,
            packet_id if qos else 0,
            properties,
        )
