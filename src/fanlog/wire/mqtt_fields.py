"""The parts that MQTT's packets are made of: numbers, strings, topic names and filters, properties.

A `Cursor` walks one packet, whose bytes are all there, and raises ProtocolError where a field reaches past
the packet's end. Properties are decoded and encoded by `PROPERTIES`, and held against it: where one may
stand, how often, in which range. What two properties say together is looked at here as well.
"""

from typing import Any, Final

from fanlog.wire.mqtt_tables import (
    AUTH,
    AUTHENTICATION_DATA,
    AUTHENTICATION_METHOD,
    BINARY,
    BYTE,
    CONNACK,
    CONNECT,
    DISCONNECT,
    FIELD_BYTES_MAX,
    FOUR_BYTES,
    MALFORMED_PACKET,
    PACKET_NAMES,
    PAIR,
    PROPERTY_BY_NUMBER,
    PROTOCOL_FAULT,
    PUBLISH,
    REASON_BY_CODE,
    REASON_CLAUSES,
    REMAINING_BYTES_MAX,
    RESPONSE_TOPIC,
    SESSION_EXPIRY_INTERVAL,
    STRING,
    SUBSCRIPTION_IDENTIFIER,
    TOPIC_FILTER_INVALID,
    TOPIC_NAME_INVALID,
    TWO_BYTES,
    VARIABLE,
    WILL,
    Properties,
    Property,
    ProtocolError,
)

# The properties of a packet that has none, as they stand on the wire. [MQTT-2.2.2-1]
NO_PROPERTIES: Final = b"\x00"


def malformed(text: str, clause: str) -> ProtocolError:
    return ProtocolError(MALFORMED_PACKET, text, clause)


def protocol_fault(text: str, clause: str) -> ProtocolError:
    return ProtocolError(PROTOCOL_FAULT, text, clause)


def text_of(raw: bytes) -> str:
    # [MQTT-1.5.4-2]
    if b"\x00" in raw:
        raise malformed("a string has the character U+0000", "MQTT-1.5.4-2")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        # [MQTT-1.5.4-1] Python's decoder refuses surrogates and overlong forms too.
        raise malformed("a string is not UTF-8", "MQTT-1.5.4-1") from None


def topic_name(raw: bytes) -> str:
    """The name of a topic that something is published to."""
    text = text_of(raw)
    # [MQTT-4.7.3-1]
    if text == "":
        raise ProtocolError(TOPIC_NAME_INVALID, "a topic name is empty", "MQTT-4.7.3-1")
    # [MQTT-3.3.2-2], [MQTT-4.7.0-1]
    if "+" in text or "#" in text:
        raise ProtocolError(TOPIC_NAME_INVALID, f"the topic name {text!r} has a wildcard", "MQTT-3.3.2-2")
    return text


def check_filter(text: str, may_share: bool) -> None:
    """Raises unless `text` is a topic filter, or, where that exists, one of a shared subscription."""
    if text == "":
        raise _bad_filter(text, "is empty", "MQTT-4.7.3-1")
    if may_share and text.startswith("$share/"):
        slash = text.find("/", 7)
        share = text[7:slash] if slash > 0 else text[7:]
        # [MQTT-4.8.2-1]
        if share == "":
            raise _bad_filter(text, "names no share", "MQTT-4.8.2-1")
        # [MQTT-4.8.2-2]
        if "+" in share or "#" in share or slash < 0 or slash == len(text) - 1:
            raise _bad_filter(text, "is not $share/name/filter", "MQTT-4.8.2-2")
        text = text[slash + 1 :]
    many = text.find("#")
    # [MQTT-4.7.1-1]
    if many >= 0 and (many != len(text) - 1 or (many > 0 and text[many - 1] != "/")):
        raise _bad_filter(text, "has a # that is not its whole last level", "MQTT-4.7.1-1")
    # [MQTT-4.7.1-2]
    if "+" in text:
        for level in text.split("/"):
            if "+" in level and level != "+":
                raise _bad_filter(text, "has a + that is not a whole level", "MQTT-4.7.1-2")


def _bad_filter(text: str, what: str, clause: str) -> ProtocolError:
    return ProtocolError(TOPIC_FILTER_INVALID, f"the topic filter {text!r} {what}", clause)


def check_reason(code: int, kind: int, by_client: bool) -> None:
    """Raises unless MQTT 5 knows this reason code in this packet from that side."""
    reason = REASON_BY_CODE.get(code)
    if reason is not None:
        mask = reason.by_client if by_client else reason.by_server
        if mask >> kind & 1:
            return
    raise protocol_fault(f"{PACKET_NAMES[kind]} has no reason code 0x{code:02x}", REASON_CLAUSES[kind])


class Cursor:
    """A place in a packet that ends before `stop`."""

    def __init__(self, data: bytes, at: int, stop: int) -> None:
        self.data = data
        self.at = at
        self.stop = stop

    def take(self, size: int) -> bytes:
        at = self.at
        end = at + size
        if end > self.stop:
            raise malformed("a field reaches past the end of its packet", "2.1.4")
        self.at = end
        return self.data[at:end]

    def byte(self) -> int:
        at = self.at
        if at >= self.stop:
            raise malformed("the packet ends too soon", "2.1.4")
        self.at = at + 1
        return self.data[at]

    def two(self) -> int:
        return self.byte() << 8 | self.byte()

    def four(self) -> int:
        return self.two() << 16 | self.two()

    def variable(self) -> int:
        value = 0
        shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                # [MQTT-1.5.5-1]
                if byte == 0 and shift > 0:
                    raise malformed("a number has more bytes than it needs", "MQTT-1.5.5-1")
                return value
            shift += 7
            if shift > 21:
                raise malformed("a variable byte integer of more than four bytes", "1.5.5")

    def binary(self) -> bytes:
        return self.take(self.two())

    def string(self) -> str:
        return text_of(self.take(self.two()))

    def packet_id(self) -> int:
        value = self.two()
        # [MQTT-2.2.1-3], [MQTT-2.2.1-4]
        if value == 0:
            raise protocol_fault("the packet identifier is 0", "MQTT-2.2.1-3")
        return value

    def finish(self) -> None:
        if self.at != self.stop:
            raise malformed(f"{self.stop - self.at} bytes behind the last field of a packet", "2.1.4")

    def properties(self, kind: int, by_client: bool) -> Properties:
        """The properties of a packet, whose length comes first."""
        length = self.variable()
        properties: Properties = {}
        if length == 0:
            return properties
        whole = self.stop
        stop = self.at + length
        if stop > whole:
            raise malformed("the properties reach past the end of their packet", "2.2.2.1")
        self.stop = stop
        while self.at < stop:
            self._property(properties, kind, by_client)
        self.stop = whole
        _check_together(properties, kind)
        return properties

    def _property(self, properties: Properties, kind: int, by_client: bool) -> None:
        number = self.variable()
        row = PROPERTY_BY_NUMBER.get(number)
        if row is None:
            raise malformed(f"there is no property 0x{number:02x}", "2.2.2.2")
        if (row.by_client if by_client else row.by_server) >> kind & 1 == 0:
            raise _misplaced(row, kind)
        repeated = row.repeated >> kind & 1 != 0
        if number in properties and not repeated:
            raise protocol_fault(f"{PACKET_NAMES[kind]} has two of {row.name}", "2.2.2.2")
        value = self._value(row)
        if row.repeated == 0:
            properties[number] = value
        elif number in properties:
            properties[number].append(value)
        else:
            properties[number] = [value]

    def _value(self, row: Property) -> Any:
        form = row.form
        if form == STRING:
            return self.string()
        if form == PAIR:
            name = self.string()
            return name, self.string()
        if form == BINARY:
            return self.binary()
        if form == FOUR_BYTES:
            number = self.four()
        elif form == TWO_BYTES:
            number = self.two()
        elif form == BYTE:
            number = self.byte()
        else:
            number = self.variable()
        if number < row.least or number > row.most:
            raise ProtocolError(row.reason_code, f"{row.name} is {number}", row.clause)
        return number


def _misplaced(row: Property, kind: int) -> ProtocolError:
    # [MQTT-3.3.4-6]
    if kind == PUBLISH and row.number == SUBSCRIPTION_IDENTIFIER:
        return protocol_fault("a client's PUBLISH has a subscription identifier", "MQTT-3.3.4-6")
    # [MQTT-3.14.2-2]
    if kind == DISCONNECT and row.number == SESSION_EXPIRY_INTERVAL:
        return protocol_fault("a server's DISCONNECT has a session expiry interval", "MQTT-3.14.2-2")
    return malformed(f"{row.name} has no place in {PACKET_NAMES[kind]}", "2.2.2.2")


def _check_together(properties: Properties, kind: int) -> None:
    if kind in (PUBLISH, WILL):
        response_topic = properties.get(RESPONSE_TOPIC)
        # [MQTT-3.3.2-14]
        if response_topic is not None and ("+" in response_topic or "#" in response_topic):
            raise protocol_fault("the response topic has a wildcard", "MQTT-3.3.2-14")
    elif (
        kind in (CONNECT, CONNACK, AUTH)
        and AUTHENTICATION_DATA in properties
        and AUTHENTICATION_METHOD not in properties
    ):
        raise protocol_fault("authentication data without a method", "3.1.2.11.10")


def variable(value: int) -> bytes:
    """A variable byte integer. [1.5.5]"""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if value > REMAINING_BYTES_MAX:
        raise ValueError(f"{value} does not fit a variable byte integer")
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21))


def prefixed(raw: bytes) -> bytes:
    """A string or binary data behind its length."""
    if len(raw) > FIELD_BYTES_MAX:
        raise ValueError(f"{len(raw)} bytes do not fit a field of MQTT")
    return len(raw).to_bytes(2, "big") + raw


def encode_string(text: str) -> bytes:
    # [MQTT-1.5.4-2]; a surrogate, which is not UTF-8 either, is a ValueError of Python's own.
    if "\0" in text:
        raise ValueError("a string of MQTT may not have the character U+0000")
    return prefixed(text.encode())


def encode_properties(properties: Properties | None, kind: int) -> bytes:
    """The properties of a packet of this kind, their length first."""
    if not properties:
        return NO_PROPERTIES
    parts: list[bytes] = []
    for number, value in properties.items():
        row = PROPERTY_BY_NUMBER[number]
        if (row.by_client | row.by_server) >> kind & 1 == 0:
            raise ValueError(f"{row.name} has no place in {PACKET_NAMES[kind]}")
        values: list[Any] = [value] if row.repeated == 0 else value
        for one in values:
            parts.append(bytes((number,)))
            parts.append(_encode_value(row, one))
    content = b"".join(parts)
    return variable(len(content)) + content


def _encode_value(row: Property, value: Any) -> bytes:
    form = row.form
    if form == STRING:
        return encode_string(value)
    if form == PAIR:
        return encode_string(value[0]) + encode_string(value[1])
    if form == BINARY:
        raw: bytes = value
        return prefixed(raw)
    number: int = value
    if number < row.least or number > row.most:
        raise ValueError(f"{row.name} may not be {number}")
    if form == VARIABLE:
        return variable(number)
    return number.to_bytes(form, "big")


def add_topic_alias(properties: bytes, alias: int) -> bytes:
    """Encoded properties of a PUBLISH, shared by many receivers, with this receiver's alias of the topic."""
    if alias < 1 or alias > FIELD_BYTES_MAX:
        raise ValueError(f"a topic alias may not be {alias}")
    begin = 1
    while properties[begin - 1] >= 0x80:
        begin += 1
    return b"".join(
        (variable(len(properties) - begin + 3), b"\x23", alias.to_bytes(2, "big"), properties[begin:])
    )
