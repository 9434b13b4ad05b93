"""MQTT's packets to bytes, for every version, for both sides.

The functions with plain arguments are what a server says all day; `encode` takes any packet and is what a
client, or a test, needs besides. A caller writes one answer for all versions: what a version has no room for
(properties, most reason codes) is left out or mapped. A frame for many receivers is made once:
`publish_frame_parts` leaves a hole for the packet identifier.

Arguments that MQTT cannot express are our own bug and raise ValueError or OverflowError.
"""

from typing import Final

from fanlog.wire.mqtt_fields import encode_properties, encode_string, prefixed, variable
from fanlog.wire.mqtt_packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from fanlog.wire.mqtt_tables import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    FIELD_BYTES_MAX,
    PUBLISH,
    PUBREL,
    RETURN_CODES,
    SUBACK,
    SUBSCRIBE,
    UNSPECIFIED_ERROR,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V31,
    V311,
    WILL,
    Properties,
)

PINGREQ_FRAME: Final = b"\xc0\x00"
PINGRESP_FRAME: Final = b"\xd0\x00"
_SERVER_UNAVAILABLE: Final = 3


def _frame(first: int, body: bytes) -> bytes:
    return b"".join((bytes((first,)), variable(len(body)), body))


def _identified(packet_id: int) -> bytes:
    if packet_id < 1 or packet_id > FIELD_BYTES_MAX:
        raise ValueError(f"{packet_id} is no packet identifier")
    return packet_id.to_bytes(2, "big")


def encode_publish(
    topic: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    properties: bytes | None,
) -> bytes:
    """`properties` is None before MQTT 5, else what `encode_properties` made. The topic is not checked."""
    size = len(topic)
    if size > FIELD_BYTES_MAX:
        raise ValueError(f"a topic of {size} bytes")
    if qos > 2 or (dup and qos == 0):
        raise ValueError(f"a PUBLISH of QoS {qos}{' that is sent again' if dup else ''}")
    length = size + len(payload) + 2
    first = 0x30 | qos << 1 | (1 if retain else 0) | (8 if dup else 0)
    behind = b""
    if qos > 0:
        behind = _identified(packet_id)
        length += 2
    if properties is not None:
        behind = behind + properties if qos > 0 else properties
        length += len(properties)
    if length < 0x80:
        head = bytes((first, length, size >> 8, size & 0xFF))
    elif length < 0x4000:
        head = bytes((first, length & 0x7F | 0x80, length >> 7, size >> 8, size & 0xFF))
    else:
        head = b"".join((bytes((first,)), variable(length), size.to_bytes(2, "big")))
    return b"".join((head, topic, behind, payload))


def publish_frame_parts(
    topic: bytes, payload: bytes, qos: int, retain: bool, properties: bytes | None
) -> tuple[bytes, bytes]:
    """What stands before and behind the packet identifier (two bytes, high byte first) of a PUBLISH."""
    if qos < 1 or qos > 2:
        raise ValueError(f"a PUBLISH of QoS {qos} has no packet identifier")
    length = len(topic) + len(payload) + 4
    behind = payload
    if properties is not None:
        length += len(properties)
        behind = properties + payload
    first = 0x30 | qos << 1 | (1 if retain else 0)
    return b"".join((bytes((first,)), variable(length), prefixed(topic))), behind


def encode_ack(
    kind: int, packet_id: int, version: int, reason_code: int = 0, properties: Properties | None = None
) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""
    if packet_id < 1 or packet_id > FIELD_BYTES_MAX:
        raise ValueError(f"{packet_id} is no packet identifier")
    first = kind << 4 | (2 if kind == PUBREL else 0)
    if version < V5 or (reason_code == 0 and not properties):
        return (first << 24 | 0x20000 | packet_id).to_bytes(4, "big")
    if not properties:
        return bytes((first, 3, packet_id >> 8, packet_id & 0xFF, reason_code))
    coded = bytes((packet_id >> 8, packet_id & 0xFF, reason_code))
    return _frame(first, coded + encode_properties(properties, kind))


def encode_acks(kind: int, packet_ids: list[int]) -> bytes:
    """Many acknowledgements of success, for one write; they are the same in every version."""
    first = kind << 28 | (0x2020000 if kind == PUBREL else 0x20000)
    parts: list[bytes] = []
    for packet_id in packet_ids:
        if packet_id < 1 or packet_id > FIELD_BYTES_MAX:
            raise ValueError(f"{packet_id} is no packet identifier")
        parts.append((first | packet_id).to_bytes(4, "big"))
    return b"".join(parts)


def encode_connack(
    version: int, session_present: bool, reason_code: int = 0, properties: Properties | None = None
) -> bytes:
    """Before MQTT 5 a refusal becomes the nearest of the five return codes."""
    # [MQTT-3.2.2-6]
    present = session_present and reason_code == 0
    if version >= V5:
        return _frame(
            CONNACK << 4,
            bytes((1 if present else 0, reason_code)) + encode_properties(properties, CONNACK),
        )
    code = reason_code
    if code >= UNSPECIFIED_ERROR:
        code = RETURN_CODES.get(code, _SERVER_UNAVAILABLE)
    # MQTT 3.1 had no such flag yet: the byte was reserved.
    return bytes((CONNACK << 4, 2, 1 if present and version != V31 else 0, code))


def encode_suback(
    version: int, packet_id: int, reason_codes: bytes, properties: Properties | None = None
) -> bytes:
    if version >= V5:
        body = _identified(packet_id) + encode_properties(properties, SUBACK) + reason_codes
    else:
        # [v3.1.1 MQTT-3.9.3-2] Every failure is 0x80.
        body = _identified(packet_id) + bytes([min(code, UNSPECIFIED_ERROR) for code in reason_codes])
    return _frame(SUBACK << 4, body)


def encode_unsuback(
    version: int, packet_id: int, reason_codes: bytes, properties: Properties | None = None
) -> bytes:
    body = _identified(packet_id)
    if version >= V5:
        body = body + encode_properties(properties, UNSUBACK) + reason_codes
    return _frame(UNSUBACK << 4, body)


def encode_disconnect(version: int, reason_code: int = 0, properties: Properties | None = None) -> bytes:
    return _reasoned(DISCONNECT, reason_code, properties if version >= V5 else None, version)


def encode_auth(reason_code: int, properties: Properties | None = None) -> bytes:
    return _reasoned(AUTH, reason_code, properties, V5)


def _reasoned(kind: int, reason_code: int, properties: Properties | None, version: int) -> bytes:
    if version < V5 or (reason_code == 0 and not properties):
        return bytes((kind << 4, 0))
    # AUTH has no form with a reason code alone. [3.15.2.1]
    if kind == DISCONNECT and not properties:
        return bytes((kind << 4, 1, reason_code))
    return _frame(kind << 4, bytes((reason_code,)) + encode_properties(properties, kind))


def encode_subscribe(
    version: int, packet_id: int, filters: list[tuple[str, int]], properties: Properties | None = None
) -> bytes:
    parts = [_identified(packet_id)]
    if version >= V5:
        parts.append(encode_properties(properties, SUBSCRIBE))
    for text, options in filters:
        parts.append(encode_string(text))
        parts.append(bytes((options,)))
    return _frame(SUBSCRIBE << 4 | 2, b"".join(parts))


def encode_unsubscribe(
    version: int, packet_id: int, filters: list[str], properties: Properties | None = None
) -> bytes:
    parts = [_identified(packet_id)]
    if version >= V5:
        parts.append(encode_properties(properties, UNSUBSCRIBE))
    for text in filters:
        parts.append(encode_string(text))
    return _frame(UNSUBSCRIBE << 4 | 2, b"".join(parts))


def encode_connect(packet: Connect) -> bytes:
    version = packet.version
    flags = 2 if packet.clean_start else 0
    fields = [encode_string(packet.client_id)]
    will = packet.will
    if will is not None:
        flags |= 4 | will.qos << 3 | (0x20 if will.retain else 0)
        if version >= V5:
            fields.append(encode_properties(will.properties, WILL))
        fields.append(encode_string(will.topic))
        fields.append(prefixed(will.payload))
    username = packet.username
    if username is not None:
        flags |= 0x80
        fields.append(encode_string(username))
    password = packet.password
    if password is not None:
        flags |= 0x40
        fields.append(prefixed(password))
    name = b"MQTT" if version >= V311 else b"MQIsdp"
    head = [prefixed(name), bytes((version, flags)), packet.keep_alive_s.to_bytes(2, "big")]
    if version >= V5:
        head.append(encode_properties(packet.properties, CONNECT))
    return _frame(CONNECT << 4, b"".join(head + fields))


def encode(packet: Packet, version: int) -> bytes:
    """Any packet, as a connection of this version has it."""
    if isinstance(packet, Publish):
        properties = encode_properties(packet.properties, PUBLISH) if version >= V5 else None
        return encode_publish(
            packet.topic.encode(),
            packet.payload,
            packet.qos,
            packet.retain,
            packet.dup,
            packet.packet_id,
            properties,
        )
    if isinstance(packet, Ack):
        return encode_ack(packet.kind, packet.packet_id, version, packet.reason_code, packet.properties)
    if isinstance(packet, Subscribe):
        return encode_subscribe(version, packet.packet_id, packet.filters, packet.properties)
    if isinstance(packet, Suback):
        return encode_suback(version, packet.packet_id, packet.reason_codes, packet.properties)
    if isinstance(packet, Unsubscribe):
        return encode_unsubscribe(version, packet.packet_id, packet.filters, packet.properties)
    if isinstance(packet, Unsuback):
        return encode_unsuback(version, packet.packet_id, packet.reason_codes, packet.properties)
    if isinstance(packet, Connect):
        return encode_connect(packet)
    if isinstance(packet, Connack):
        return encode_connack(version, packet.session_present, packet.reason_code, packet.properties)
    if isinstance(packet, Pingreq):
        return PINGREQ_FRAME
    if isinstance(packet, Pingresp):
        return PINGRESP_FRAME
    if isinstance(packet, Disconnect):
        return encode_disconnect(version, packet.reason_code, packet.properties)
    if isinstance(packet, Auth):
        return encode_auth(packet.reason_code, packet.properties)
    raise ValueError(f"{packet!r} is no packet")
