"""MQTT's packets as values: what the decoder gives and the encoder takes.

One class per packet, but one for the four acknowledgements of a PUBLISH, told apart by `kind`. The classes
are native where the codec is compiled, so an attribute has the type that it says. `properties` is a dict by
property number; a PUBLISH or an acknowledgement without any, which is nearly every one, has None instead
and costs no dict. Packets are equal if they say the same, which is for tests, as is their repr.
"""

from typing import Final

from fanlog.wire.mqtt_tables import Properties

# What the options of a subscription say besides the QoS, which is in the lowest two bits. [3.8.3.1]
QOS_MASK: Final = 0x03
NO_LOCAL: Final = 0x04
RETAIN_AS_PUBLISHED: Final = 0x08
RETAIN_HANDLING_SHIFT: Final = 4


class Said:
    """What compares and shows itself by its public attributes."""

    def _fields(self) -> list[tuple[str, object]]:
        return [(name, getattr(self, name)) for name in dir(self) if not name.startswith("_")]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Said) and self._fields() == other._fields()

    def __repr__(self) -> str:
        said = ", ".join([f"{name}={value!r}" for name, value in self._fields()])
        return f"{type(self).__name__}({said})"


class Packet(Said):
    """Any packet."""


class Will(Said):
    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties: Properties = {} if properties is None else properties


class Connect(Packet):
    def __init__(
        self,
        version: int,
        client_id: str,
        keep_alive_s: int = 0,
        clean_start: bool = True,
        will: Will | None = None,
        username: str | None = None,
        password: bytes | None = None,
        properties: Properties | None = None,
    ) -> None:
        self.version = version
        self.client_id = client_id
        self.keep_alive_s = keep_alive_s
        self.clean_start = clean_start
        self.will = will
        self.username = username
        self.password = password
        self.properties: Properties = {} if properties is None else properties


class Connack(Packet):
    def __init__(
        self, session_present: bool = False, reason_code: int = 0, properties: Properties | None = None
    ) -> None:
        self.session_present = session_present
        self.reason_code = reason_code
        self.properties: Properties = {} if properties is None else properties


class Publish(Packet):
    """`packet_id` is 0 where there is none (QoS 0); `topic` is empty where only an alias names it."""

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        properties: Properties | None = None,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.packet_id = packet_id
        self.properties = properties


class Ack(Packet):
    """PUBACK, PUBREC, PUBREL or PUBCOMP, as `kind` says."""

    def __init__(
        self, kind: int, packet_id: int, reason_code: int = 0, properties: Properties | None = None
    ) -> None:
        self.kind = kind
        self.packet_id = packet_id
        self.reason_code = reason_code
        self.properties = properties


class Subscribe(Packet):
    """`filters` holds (filter, options); before MQTT 5 the options are the QoS and nothing else."""

    def __init__(
        self, packet_id: int, filters: list[tuple[str, int]], properties: Properties | None = None
    ) -> None:
        self.packet_id = packet_id
        self.filters = filters
        self.properties: Properties = {} if properties is None else properties


class Suback(Packet):
    def __init__(self, packet_id: int, reason_codes: bytes, properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.reason_codes = reason_codes
        self.properties: Properties = {} if properties is None else properties


class Unsubscribe(Packet):
    def __init__(self, packet_id: int, filters: list[str], properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.filters = filters
        self.properties: Properties = {} if properties is None else properties


class Unsuback(Packet):
    """Before MQTT 5 there are no reason codes."""

    def __init__(
        self, packet_id: int, reason_codes: bytes = b"", properties: Properties | None = None
    ) -> None:
        self.packet_id = packet_id
        self.reason_codes = reason_codes
        self.properties: Properties = {} if properties is None else properties


class Pingreq(Packet):
    pass


class Pingresp(Packet):
    pass


class Disconnect(Packet):
    def __init__(self, reason_code: int = 0, properties: Properties | None = None) -> None:
        self.reason_code = reason_code
        self.properties: Properties = {} if properties is None else properties


class Auth(Packet):
    def __init__(self, reason_code: int = 0, properties: Properties | None = None) -> None:
        self.reason_code = reason_code
        self.properties: Properties = {} if properties is None else properties
