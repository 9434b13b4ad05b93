"""MQTT's properties as record headers, and back.

What MQTT 5 says of a message is kept with its record, so a Kafka consumer sees it as headers and an MQTT
subscriber gets it back as it was, minutes or months later. Messages of MQTT 3.1.1 have none of it; only
a quality of service other than 1 is noted.

A user property whose name means something else among headers is kept behind the prefix `mqtt-user:`. What
Kafka allows in a header and MQTT does not (other encodings, U+0000, more than 65,535 bytes) is mended or
left out: one odd record must not keep the others from their subscribers.
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
_PREFIX = "mqtt-user:"
_FIELD_BYTES_MAX = 65_535
# As many characters of any kind fit a field.
_NAME_CHARACTERS_MAX = 16_383
_OURS = frozenset({names.QOS, names.EXPIRES, names.RETAIN, names.MQTT_CLIENT, names.MQTT_PACKET_ID})

# Header names that a user property may not take.
_MEANT = _OURS | {
    names.CONTENT_TYPE,
    names.MQTT_RESPONSE_TOPIC,
    names.MQTT_CORRELATION_DATA,
    names.MQTT_PAYLOAD_FORMAT,
}
_CLIENT_BYTES = names.MQTT_CLIENT.encode()


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
    kept += [(_header_name(name), value.encode()) for name, value in properties.get(USER_PROPERTY, ())]
    return records.encode_headers(tuple(kept))


def _header_name(name: str) -> str:
    return _PREFIX + name if name in _MEANT or name.startswith(_PREFIX) else name


def with_client(headers: bytes, client_id: str) -> bytes:
    """Headers that say who published, for subscriptions that do not want their own messages back."""
    kept = records.decode_headers(headers)
    return records.encode_headers((*kept, (names.MQTT_CLIENT, client_id.encode())))


def client_of(headers: bytes) -> str | None:
    """Who published a message, if its headers say so."""
    if _CLIENT_BYTES not in headers:
        return None
    value = dict(records.decode_headers(headers)).get(names.MQTT_CLIENT)
    return None if value is None else value.decode("utf-8", "replace")


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
        if name in _OURS or len(raw) > _FIELD_BYTES_MAX or len(name) > _NAME_CHARACTERS_MAX:
            continue
        if name == names.CONTENT_TYPE:
            found[CONTENT_TYPE] = _text(raw)
        elif name == names.MQTT_RESPONSE_TOPIC:
            topic = _text(raw)
            # [MQTT-3.3.2-14]
            if topic and "+" not in topic and "#" not in topic:
                found[RESPONSE_TOPIC] = topic
        elif name == names.MQTT_CORRELATION_DATA:
            found[CORRELATION_DATA] = raw
        elif name == names.MQTT_PAYLOAD_FORMAT:
            found[PAYLOAD_FORMAT_INDICATOR] = 1 if raw == b"1" else 0
        else:
            users.append((_text(name.removeprefix(_PREFIX).encode("utf-8", "replace")), _text(raw)))
    if users:
        found[USER_PROPERTY] = users
    return found


def _text(raw: bytes) -> str:
    """Text that MQTT allows, [MQTT-1.5.4-2]; where something had to be replaced it may have got longer."""
    text = raw.decode("utf-8", "replace").replace("\x00", "\ufffd")
    if len(text) > _NAME_CHARACTERS_MAX and len(text.encode()) > _FIELD_BYTES_MAX:
        return text[:_NAME_CHARACTERS_MAX]
    return text


def properties_bytes(
    message: records.Message,
    subscription_ids: tuple[int, ...],
    extra: list[tuple[str, str]] | None,
    now_ms: int,
) -> bytes:
    """The same, encoded, with what belongs to the subscription."""
    if message.headers == names.NO_HEADERS and not message.expires_at_ms and not extra:
        if not subscription_ids:
            return b"\x00"
        identifiers = b"".join([b"\x0b" + variable(number) for number in subscription_ids])
        return variable(len(identifiers)) + identifiers
    found = properties_of(message, now_ms)
    if subscription_ids:
        found[SUBSCRIPTION_IDENTIFIER] = list(subscription_ids)
    if extra:
        found[USER_PROPERTY] = [*found.get(USER_PROPERTY, ()), *extra]
    return encode_properties(found, PUBLISH)
