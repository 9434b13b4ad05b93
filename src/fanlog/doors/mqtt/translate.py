"""MQTT's properties as record headers, and back.

What MQTT 5 says of a message is kept with its record, so a Kafka consumer sees it as headers and an MQTT
subscriber gets it back as it was, minutes or months later. Messages of MQTT 3.1.1 have none of it; only
a quality of service other than 1 is noted.
"""

import functools
from typing import Any

from fanlog.router import headers as names
from fanlog.wire import records
from fanlog.wire.mqtt import Publish, Will, encode_properties
from fanlog.wire.mqtt_fields import variable
from fanlog.wire.mqtt_tables import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY_INTERVAL,
    PAYLOAD_FORMAT_INDICATOR,
    PUBLISH,
    RESPONSE_TOPIC,
    SUBSCRIPTION_IDENTIFIER,
    USER_PROPERTY,
)

Header = tuple[str, bytes | None]
_OURS = frozenset({names.QOS, names.EXPIRES, names.RETAIN, names.MQTT_CLIENT, names.MQTT_PACKET_ID})


@functools.cache
def plain_headers(qos: int, retain: bool) -> bytes:
    """The headers of a message without properties."""
    return records.encode_headers(tuple(_basic(qos, retain)))


def _basic(qos: int, retain: bool) -> list[Header]:
    kept: list[Header] = []
    if qos != 1:
        kept.append((names.QOS, b"%d" % qos))
    if retain:
        kept.append((names.RETAIN, b"1"))
    return kept


def headers_of(packet: Publish | Will, expires_at_ms: int) -> bytes:
    """All that a record keeps of a message."""
    properties = packet.properties
    if not properties:
        return plain_headers(packet.qos, packet.retain)
    kept = _basic(packet.qos, packet.retain)
    if expires_at_ms:
        kept.append((names.EXPIRES, b"%d" % expires_at_ms))
    if CONTENT_TYPE in properties:
        kept.append((names.CONTENT_TYPE, properties[CONTENT_TYPE].encode()))
    if RESPONSE_TOPIC in properties:
        kept.append((names.MQTT_RESPONSE_TOPIC, properties[RESPONSE_TOPIC].encode()))
    if CORRELATION_DATA in properties:
        kept.append((names.MQTT_CORRELATION_DATA, properties[CORRELATION_DATA]))
    if PAYLOAD_FORMAT_INDICATOR in properties:
        kept.append((names.MQTT_PAYLOAD_FORMAT, b"%d" % properties[PAYLOAD_FORMAT_INDICATOR]))
    kept += [(name, value.encode()) for name, value in properties.get(USER_PROPERTY, ())]
    return records.encode_headers(tuple(kept))


def with_sender(headers: bytes, client_id: str, packet_id: int) -> bytes:
    """Headers that say which packet of which client this is, so that it is known again after a crash."""
    kept = records.decode_headers(headers)
    kept += [(names.MQTT_CLIENT, client_id.encode()), (names.MQTT_PACKET_ID, b"%d" % packet_id)]
    return records.encode_headers(tuple(kept))


def expiry_of(packet: Publish | Will, now_ms: int) -> int:
    """When a message expires; 0 for never."""
    if not packet.properties or MESSAGE_EXPIRY_INTERVAL not in packet.properties:
        return 0
    return now_ms + int(packet.properties[MESSAGE_EXPIRY_INTERVAL]) * 1000


def properties_of(message: records.Message, now_ms: int) -> dict[int, Any]:
    """What an MQTT 5 subscriber is told of a message."""
    found: dict[int, Any] = {}
    if message.expires_at_ms:
        # [MQTT-3.3.2-6]: less the time that it has waited here.
        found[MESSAGE_EXPIRY_INTERVAL] = max((message.expires_at_ms - now_ms + 999) // 1000, 0)
    users: list[tuple[str, str]] = []
    for name, value in records.decode_headers(message.headers):
        raw = value or b""
        if name in _OURS:
            continue
        if name == names.CONTENT_TYPE:
            found[CONTENT_TYPE] = raw.decode("utf-8", "replace")
        elif name == names.MQTT_RESPONSE_TOPIC:
            found[RESPONSE_TOPIC] = raw.decode("utf-8", "replace")
        elif name == names.MQTT_CORRELATION_DATA:
            found[CORRELATION_DATA] = raw
        elif name == names.MQTT_PAYLOAD_FORMAT:
            found[PAYLOAD_FORMAT_INDICATOR] = 1 if raw == b"1" else 0
        else:
            users.append((_text(name), _text(raw.decode("utf-8", "replace"))))
    if users:
        found[USER_PROPERTY] = users
    return found


def _text(value: str) -> str:
    # [MQTT-1.5.4-2]: what Kafka allows in a header and MQTT does not.
    return value.encode("utf-8", "replace").decode("utf-8", "replace").replace("\x00", "\ufffd")


def properties_bytes(
    message: records.Message, subscription_id: int, extra: list[tuple[str, str]] | None, now_ms: int
) -> bytes:
    """The same, encoded, with what belongs to the subscription."""
    if message.headers == names.NO_HEADERS and not message.expires_at_ms and not extra:
        if not subscription_id:
            return b"\x00"
        identifier = b"\x0b" + variable(subscription_id)
        return variable(len(identifier)) + identifier
    found = properties_of(message, now_ms)
    if subscription_id:
        found[SUBSCRIPTION_IDENTIFIER] = [subscription_id]
    if extra:
        found[USER_PROPERTY] = [*found.get(USER_PROPERTY, ()), *extra]
    return encode_properties(found, PUBLISH)
