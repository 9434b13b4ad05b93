"""MQTT's numbers as data: packet types, reason codes, properties, and which of them goes where.

A packet type is its number in the fixed header; 0, which no packet has, stands for the will inside a
CONNECT, because the will has properties of its own. `PROPERTIES` and `REASONS` say for each direction which
packets may carry what, as a mask with one bit per packet type. The codec has no other knowledge of them.
A peer's fault is a `ProtocolError` with the reason code of MQTT 5 and the clause that was broken; clauses
are numbered as in MQTT 5.0 unless they begin with "v3.1.1".
"""

from typing import Any, Final

WILL: Final = 0
CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

PACKET_NAMES: Final = [
    "will",
    "CONNECT",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "PINGREQ",
    "PINGRESP",
    "DISCONNECT",
    "AUTH",
]

# The protocol levels that a CONNECT can name.
V31: Final = 3
V311: Final = 4
V5: Final = 5

# What four bytes of variable length can say, and the largest packet that follows from it. [2.1.4]
REMAINING_BYTES_MAX: Final = 268_435_455
PACKET_BYTES_MAX: Final = REMAINING_BYTES_MAX + 5
FIELD_BYTES_MAX: Final = 65_535

SUCCESS: Final = 0x00
DISCONNECT_WITH_WILL: Final = 0x04
NO_MATCHING_SUBSCRIBERS: Final = 0x10
NO_SUBSCRIPTION_EXISTED: Final = 0x11
CONTINUE_AUTHENTICATION: Final = 0x18
REAUTHENTICATE: Final = 0x19
UNSPECIFIED_ERROR: Final = 0x80
MALFORMED_PACKET: Final = 0x81
PROTOCOL_FAULT: Final = 0x82
IMPLEMENTATION_SPECIFIC_ERROR: Final = 0x83
UNSUPPORTED_PROTOCOL_VERSION: Final = 0x84
CLIENT_IDENTIFIER_NOT_VALID: Final = 0x85
BAD_USER_NAME_OR_PASSWORD: Final = 0x86
NOT_AUTHORIZED: Final = 0x87
SERVER_UNAVAILABLE: Final = 0x88
SERVER_BUSY: Final = 0x89
BANNED: Final = 0x8A
SERVER_SHUTTING_DOWN: Final = 0x8B
BAD_AUTHENTICATION_METHOD: Final = 0x8C
KEEP_ALIVE_TIMEOUT: Final = 0x8D
SESSION_TAKEN_OVER: Final = 0x8E
TOPIC_FILTER_INVALID: Final = 0x8F
TOPIC_NAME_INVALID: Final = 0x90
PACKET_IDENTIFIER_IN_USE: Final = 0x91
PACKET_IDENTIFIER_NOT_FOUND: Final = 0x92
RECEIVE_MAXIMUM_EXCEEDED: Final = 0x93
TOPIC_ALIAS_INVALID: Final = 0x94
PACKET_TOO_LARGE: Final = 0x95
MESSAGE_RATE_TOO_HIGH: Final = 0x96
QUOTA_EXCEEDED: Final = 0x97
ADMINISTRATIVE_ACTION: Final = 0x98
PAYLOAD_FORMAT_INVALID: Final = 0x99
RETAIN_NOT_SUPPORTED: Final = 0x9A
QOS_NOT_SUPPORTED: Final = 0x9B
USE_ANOTHER_SERVER: Final = 0x9C
SERVER_MOVED: Final = 0x9D
SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: Final = 0x9E
CONNECTION_RATE_EXCEEDED: Final = 0x9F
MAXIMUM_CONNECT_TIME: Final = 0xA0
SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: Final = 0xA1
WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: Final = 0xA2

PAYLOAD_FORMAT_INDICATOR: Final = 0x01
MESSAGE_EXPIRY_INTERVAL: Final = 0x02
CONTENT_TYPE: Final = 0x03
RESPONSE_TOPIC: Final = 0x08
CORRELATION_DATA: Final = 0x09
SUBSCRIPTION_IDENTIFIER: Final = 0x0B
SESSION_EXPIRY_INTERVAL: Final = 0x11
ASSIGNED_CLIENT_IDENTIFIER: Final = 0x12
SERVER_KEEP_ALIVE: Final = 0x13
AUTHENTICATION_METHOD: Final = 0x15
AUTHENTICATION_DATA: Final = 0x16
REQUEST_PROBLEM_INFORMATION: Final = 0x17
WILL_DELAY_INTERVAL: Final = 0x18
REQUEST_RESPONSE_INFORMATION: Final = 0x19
RESPONSE_INFORMATION: Final = 0x1A
SERVER_REFERENCE: Final = 0x1C
REASON_STRING: Final = 0x1F
RECEIVE_MAXIMUM: Final = 0x21
TOPIC_ALIAS_MAXIMUM: Final = 0x22
TOPIC_ALIAS: Final = 0x23
MAXIMUM_QOS: Final = 0x24
RETAIN_AVAILABLE: Final = 0x25
USER_PROPERTY: Final = 0x26
MAXIMUM_PACKET_SIZE: Final = 0x27
WILDCARD_SUBSCRIPTION_AVAILABLE: Final = 0x28
SUBSCRIPTION_IDENTIFIER_AVAILABLE: Final = 0x29
SHARED_SUBSCRIPTION_AVAILABLE: Final = 0x2A

# How the value of a property stands on the wire.
BYTE: Final = 1
TWO_BYTES: Final = 2
FOUR_BYTES: Final = 4
VARIABLE: Final = 5
STRING: Final = 6
PAIR: Final = 7
BINARY: Final = 8

# By property: an int, a str, bytes, a list of (name, value) or a list of subscription identifiers.
Properties = dict[int, Any]


class ProtocolError(Exception):
    """The peer broke a rule: what to answer, what was wrong, where that is written.

    `packets` holds what stood, whole and right, before the fault in the same chunk.
    """

    def __init__(self, reason_code: int, text: str, clause: str) -> None:
        super().__init__(f"{text} [{clause}]")
        self.reason_code = reason_code
        self.text = text
        self.clause = clause
        self.packets: list[Any] = []


class Property:
    def __init__(
        self,
        number: int,
        name: str,
        form: int,
        by_client: str,
        by_server: str,
        least: int = 0,
        most: int = 0,
        repeated: str = "",
        reason_code: int = PROTOCOL_FAULT,
        clause: str = "",
    ) -> None:
        self.number = number
        self.name = name
        self.form = form
        self.by_client = packet_mask(by_client)
        self.by_server = packet_mask(by_server)
        # The bounds of a number, and what is broken when it is outside them.
        self.least = least
        self.most = most
        self.reason_code = reason_code
        self.clause = clause
        # Where it may stand more than once; its value is a list everywhere if there is such a place.
        self.repeated = packet_mask(repeated)


def packet_mask(names: str) -> int:
    mask = 0
    for name in names.split():
        mask |= 1 << PACKET_NAMES.index(name)
    return mask


_TWO: Final = 0xFFFF
_FOUR: Final = 0xFFFFFFFF
_ACKS: Final = "PUBACK PUBREC PUBREL PUBCOMP"
_CLIENT: Final = f"will CONNECT PUBLISH {_ACKS} SUBSCRIBE UNSUBSCRIBE DISCONNECT AUTH"
_SERVER: Final = f"CONNACK PUBLISH {_ACKS} SUBACK UNSUBACK DISCONNECT AUTH"

# [2.2.2.2] and the lists of properties of each packet.
PROPERTIES: Final = [
    Property(0x01, "payload format indicator", BYTE, "will PUBLISH", "PUBLISH", 0, 1, clause="3.3.2.3.2"),
    Property(0x02, "message expiry interval", FOUR_BYTES, "will PUBLISH", "PUBLISH", 0, _FOUR),
    Property(0x03, "content type", STRING, "will PUBLISH", "PUBLISH"),
    Property(0x08, "response topic", STRING, "will PUBLISH", "PUBLISH"),
    Property(0x09, "correlation data", BINARY, "will PUBLISH", "PUBLISH"),
    Property(
        0x0B,
        "subscription identifier",
        VARIABLE,
        "SUBSCRIBE",
        "PUBLISH",
        1,
        REMAINING_BYTES_MAX,
        repeated="PUBLISH",
        clause="3.8.2.1.2",
    ),
    Property(0x11, "session expiry interval", FOUR_BYTES, "CONNECT DISCONNECT", "CONNACK", 0, _FOUR),
    Property(0x12, "assigned client identifier", STRING, "", "CONNACK"),
    Property(0x13, "server keep alive", TWO_BYTES, "", "CONNACK", 0, _TWO),
    Property(0x15, "authentication method", STRING, "CONNECT AUTH", "CONNACK AUTH"),
    Property(0x16, "authentication data", BINARY, "CONNECT AUTH", "CONNACK AUTH"),
    Property(0x17, "request problem information", BYTE, "CONNECT", "", 0, 1, clause="3.1.2.11.7"),
    Property(0x18, "will delay interval", FOUR_BYTES, "will", "", 0, _FOUR),
    Property(0x19, "request response information", BYTE, "CONNECT", "", 0, 1, clause="3.1.2.11.6"),
    Property(0x1A, "response information", STRING, "", "CONNACK"),
    Property(0x1C, "server reference", STRING, "DISCONNECT", "CONNACK DISCONNECT"),
    Property(
        0x1F,
        "reason string",
        STRING,
        f"{_ACKS} DISCONNECT AUTH",
        f"CONNACK {_ACKS} SUBACK UNSUBACK DISCONNECT AUTH",
    ),
    Property(0x21, "receive maximum", TWO_BYTES, "CONNECT", "CONNACK", 1, _TWO, clause="3.1.2.11.3"),
    Property(0x22, "topic alias maximum", TWO_BYTES, "CONNECT", "CONNACK", 0, _TWO),
    Property(
        0x23,
        "topic alias",
        TWO_BYTES,
        "PUBLISH",
        "PUBLISH",
        1,
        _TWO,
        reason_code=TOPIC_ALIAS_INVALID,
        clause="MQTT-3.3.2-8",
    ),
    Property(0x24, "maximum QoS", BYTE, "", "CONNACK", 0, 1, clause="3.2.2.3.4"),
    Property(0x25, "retain available", BYTE, "", "CONNACK", 0, 1, clause="3.2.2.3.5"),
    Property(0x26, "user property", PAIR, _CLIENT, _SERVER, repeated=f"{_CLIENT} {_SERVER}"),
    Property(0x27, "maximum packet size", FOUR_BYTES, "CONNECT", "CONNACK", 1, _FOUR, clause="3.1.2.11.4"),
    Property(0x28, "wildcard subscription available", BYTE, "", "CONNACK", 0, 1, clause="3.2.2.3.11"),
    Property(0x29, "subscription identifier available", BYTE, "", "CONNACK", 0, 1, clause="3.2.2.3.12"),
    Property(0x2A, "shared subscription available", BYTE, "", "CONNACK", 0, 1, clause="3.2.2.3.13"),
]
PROPERTY_BY_NUMBER: Final[dict[int, Property]] = {row.number: row for row in PROPERTIES}


class Reason:
    def __init__(self, code: int, name: str, by_client: str, by_server: str) -> None:
        self.code = code
        self.name = name
        self.by_client = packet_mask(by_client)
        self.by_server = packet_mask(by_server)


_RECEIVED: Final = "PUBACK PUBREC"
_GRANTED: Final = "SUBACK UNSUBACK"

# [2.4] and the tables of reason codes of each packet.
REASONS: Final = [
    Reason(0x00, "success", f"{_ACKS} DISCONNECT", f"CONNACK {_ACKS} {_GRANTED} DISCONNECT AUTH"),
    Reason(0x01, "granted QoS 1", "", "SUBACK"),
    Reason(0x02, "granted QoS 2", "", "SUBACK"),
    Reason(0x04, "disconnect with will message", "DISCONNECT", ""),
    Reason(0x10, "no matching subscribers", _RECEIVED, _RECEIVED),
    Reason(0x11, "no subscription existed", "", "UNSUBACK"),
    Reason(0x18, "continue authentication", "AUTH", "AUTH"),
    Reason(0x19, "re-authenticate", "AUTH", ""),
    Reason(
        0x80, "unspecified error", f"{_RECEIVED} DISCONNECT", f"CONNACK {_RECEIVED} {_GRANTED} DISCONNECT"
    ),
    Reason(0x81, "malformed packet", "DISCONNECT", "CONNACK DISCONNECT"),
    Reason(0x82, "protocol error", "DISCONNECT", "CONNACK DISCONNECT"),
    Reason(
        0x83,
        "implementation specific error",
        f"{_RECEIVED} DISCONNECT",
        f"CONNACK {_RECEIVED} {_GRANTED} DISCONNECT",
    ),
    Reason(0x84, "unsupported protocol version", "", "CONNACK"),
    Reason(0x85, "client identifier not valid", "", "CONNACK"),
    Reason(0x86, "bad user name or password", "", "CONNACK"),
    Reason(0x87, "not authorized", _RECEIVED, f"CONNACK {_RECEIVED} {_GRANTED} DISCONNECT"),
    Reason(0x88, "server unavailable", "", "CONNACK"),
    Reason(0x89, "server busy", "", "CONNACK DISCONNECT"),
    Reason(0x8A, "banned", "", "CONNACK"),
    Reason(0x8B, "server shutting down", "", "DISCONNECT"),
    Reason(0x8C, "bad authentication method", "", "CONNACK DISCONNECT"),
    Reason(0x8D, "keep alive timeout", "", "DISCONNECT"),
    Reason(0x8E, "session taken over", "", "DISCONNECT"),
    Reason(0x8F, "topic filter invalid", "", f"{_GRANTED} DISCONNECT"),
    Reason(0x90, "topic name invalid", f"{_RECEIVED} DISCONNECT", f"CONNACK {_RECEIVED} DISCONNECT"),
    Reason(0x91, "packet identifier in use", _RECEIVED, f"{_RECEIVED} {_GRANTED}"),
    Reason(0x92, "packet identifier not found", "PUBREL PUBCOMP", "PUBREL PUBCOMP"),
    Reason(0x93, "receive maximum exceeded", "DISCONNECT", "DISCONNECT"),
    Reason(0x94, "topic alias invalid", "DISCONNECT", "DISCONNECT"),
    Reason(0x95, "packet too large", "DISCONNECT", "CONNACK DISCONNECT"),
    Reason(0x96, "message rate too high", "DISCONNECT", "DISCONNECT"),
    Reason(0x97, "quota exceeded", f"{_RECEIVED} DISCONNECT", f"CONNACK {_RECEIVED} SUBACK DISCONNECT"),
    Reason(0x98, "administrative action", "DISCONNECT", "DISCONNECT"),
    Reason(0x99, "payload format invalid", f"{_RECEIVED} DISCONNECT", f"CONNACK {_RECEIVED} DISCONNECT"),
    Reason(0x9A, "retain not supported", "", "CONNACK DISCONNECT"),
    Reason(0x9B, "QoS not supported", "", "CONNACK DISCONNECT"),
    Reason(0x9C, "use another server", "", "CONNACK DISCONNECT"),
    Reason(0x9D, "server moved", "", "CONNACK DISCONNECT"),
    Reason(0x9E, "shared subscriptions not supported", "", "SUBACK DISCONNECT"),
    Reason(0x9F, "connection rate exceeded", "", "CONNACK DISCONNECT"),
    Reason(0xA0, "maximum connect time", "", "DISCONNECT"),
    Reason(0xA1, "subscription identifiers not supported", "", "SUBACK DISCONNECT"),
    Reason(0xA2, "wildcard subscriptions not supported", "", "SUBACK DISCONNECT"),
]
REASON_BY_CODE: Final[dict[int, Reason]] = {row.code: row for row in REASONS}

# The clause that ties a packet to its table of reason codes.
REASON_CLAUSES: Final[dict[int, str]] = {
    CONNACK: "MQTT-3.2.2-8",
    PUBACK: "MQTT-3.4.2-1",
    PUBREC: "MQTT-3.5.2-1",
    PUBREL: "MQTT-3.6.2-1",
    PUBCOMP: "MQTT-3.7.2-1",
    SUBACK: "MQTT-3.9.3-2",
    UNSUBACK: "MQTT-3.11.3-2",
    DISCONNECT: "MQTT-3.14.2-1",
    AUTH: "MQTT-3.15.2-1",
}

# What an older client is told in its CONNACK; it has no more than these. [v3.1.1 3.2.2.3]
RETURN_CODES: Final[dict[int, int]] = {
    SUCCESS: 0,
    UNSUPPORTED_PROTOCOL_VERSION: 1,
    CLIENT_IDENTIFIER_NOT_VALID: 2,
    SERVER_UNAVAILABLE: 3,
    SERVER_BUSY: 3,
    BAD_USER_NAME_OR_PASSWORD: 4,
    BAD_AUTHENTICATION_METHOD: 4,
    NOT_AUTHORIZED: 5,
    BANNED: 5,
}
