"""What is on its way to a client and not acknowledged: single messages, or whole runs."""

from typing import TYPE_CHECKING

from fanlog.doors.mqtt.frames import Variant, shared_packet_id
from fanlog.router.channels import Run
from fanlog.wire.mqtt import encode_acks
from fanlog.wire.mqtt_tables import PUBACK
from fanlog.wire.records import Message

if TYPE_CHECKING:
    from fanlog.doors.mqtt.session import Subscription


class Flight:
    """A message that the client has not acknowledged."""

    __slots__ = ("message", "offset", "released", "retain", "run", "subscription", "variant")

    def __init__(
        self,
        subscription: "Subscription",
        message: Message,
        run: Run | None,
        offset: int,
        variant: Variant | None = None,
        retain: bool = False,
    ) -> None:
        self.subscription = subscription
        # As it was sent: the subscription may have got other options since.
        self.variant = variant or subscription.variant
        self.message = message
        self.run = run
        self.offset = offset
        self.retain = retain
        # QoS 2: the client has it, and is told that it may forget the identifier.
        self.released = False

    @property
    def qos(self) -> int:
        return min(self.message.qos, self.variant.qos)


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
