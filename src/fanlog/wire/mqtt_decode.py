"""MQTT's packets from bytes.

A `Decoder` belongs to one direction of one connection. On a server it learns the version from the CONNECT,
which must come first; on a client it is told. It takes chunks as they come and gives the packets that are
whole. Everything the specifications demand of a packet that can be decided without knowing the session is
decided here, and a breach raises ProtocolError; after that the decoder refuses to go on. What needs the
session (client identifiers, packet identifiers in use, the highest topic alias) is the door's affair.

The way of a PUBLISH without properties, and of a short PUBACK, is written out, because it is taken once per
message. A connection publishes to few topics, so their names are checked and decoded once, and kept.
"""

from typing import Final

from fanlog.wire.mqtt_fields import (
    Cursor,
    check_filter,
    check_reason,
    malformed,
    protocol_fault,
    topic_name,
)
from fanlog.wire.mqtt_packets import (
    NO_LOCAL,
    QOS_MASK,
    RETAIN_HANDLING_SHIFT,
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
    Will,
)
from fanlog.wire.mqtt_tables import (
    AUTH,
    AUTHENTICATION_METHOD,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PACKET_BYTES_MAX,
    PACKET_NAMES,
    PACKET_TOO_LARGE,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    TOPIC_ALIAS,
    UNSUBACK,
    UNSUBSCRIBE,
    UNSUPPORTED_PROTOCOL_VERSION,
    V5,
    V31,
    V311,
    WILL,
    Properties,
    ProtocolError,
    packet_mask,
)

# How many topic names one decoder keeps, and how long they may be: a connection must not hold much memory.
TOPICS_KEPT_MAX: Final = 64
TOPIC_KEPT_BYTES_MAX: Final = 128

_CLIENT_SENDS: Final = packet_mask(
    "CONNECT PUBLISH PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE UNSUBSCRIBE PINGREQ DISCONNECT AUTH"
)
_SERVER_SENDS: Final = packet_mask(
    "CONNACK PUBLISH PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK PINGRESP DISCONNECT AUTH"
)
# These have 0010 in the flags of the fixed header, all others but PUBLISH 0000. [MQTT-2.1.3-1]
_FLAGGED: Final = packet_mask("PUBREL SUBSCRIBE UNSUBSCRIBE")
_FLAG_CLAUSES: Final = {
    PUBREL: "MQTT-3.6.1-1",
    SUBSCRIBE: "MQTT-3.8.1-1",
    UNSUBSCRIBE: "MQTT-3.10.1-1",
    DISCONNECT: "MQTT-3.14.1-1",
    AUTH: "MQTT-3.15.1-1",
}


class Decoder:
    """One direction of one connection. `version` is 0 until the CONNECT has been read."""

    def __init__(
        self, packet_bytes_max: int = PACKET_BYTES_MAX, version: int = 0, from_client: bool = True
    ) -> None:
        if version == 0 and not from_client:
            raise ValueError("what a server sends can be read only by the version of its connection")
        self.packet_bytes_max = packet_bytes_max
        self.version = version
        self.from_client = from_client
        self._topics: dict[bytes, str] = {}
        # The beginning of a packet that is not whole yet, and how many bytes of it there must be to go on.
        self._held = bytearray()
        self._wanted = 2
        self._fault: ProtocolError | None = None

    def between_packets(self) -> bool:
        """Whether the next byte begins a packet."""
        return len(self._held) == 0

    def feed(self, data: bytes) -> list[Packet]:
        """The packets that `data`, behind what came before it, makes whole."""
        fault = self._fault
        if fault is not None:
            raise ProtocolError(fault.reason_code, fault.text, fault.clause)
        if len(self._held) > 0:
            self._held += data
            if len(self._held) < self._wanted:
                return []
            data = bytes(self._held)
            self._held = bytearray()
        packets: list[Packet] = []
        try:
            at = self._split(data, packets)
        except ProtocolError as found:
            found.packets = packets
            self._fault = found
            raise
        if at < len(data):
            self._held += data[at:]
        return packets

    def _split(self, data: bytes, packets: list[Packet]) -> int:
        """Appends the whole packets of `data`; returns the place where the first begins that is not."""
        at = 0
        end = len(data)
        largest = self.packet_bytes_max
        while True:
            body = at + 2
            if body > end:
                self._wanted = 2
                return at
            first = data[at]
            length = data[at + 1]
            if self.version == 0 and first >> 4 != CONNECT:
                # [MQTT-3.1.0-1] Said at once: who speaks another protocol may never complete a packet.
                raise protocol_fault("the first packet is not a CONNECT", "MQTT-3.1.0-1")
            if length >= 0x80:
                length &= 0x7F
                shift = 7
                while True:
                    if body == end:
                        self._wanted = body - at + 1
                        return at
                    byte = data[body]
                    body += 1
                    length |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                    shift += 7
                    if shift > 21:
                        raise malformed("a remaining length of more than four bytes", "2.1.4")
            stop = body + length
            if stop - at > largest:
                raise ProtocolError(PACKET_TOO_LARGE, f"a packet of {stop - at} bytes", "3.2.2.3.6")
            if stop > end:
                self._wanted = stop - at
                return at
            if first & 0xF0 == 0x30:
                packets.append(self._publish(data, first, body, stop))
            elif first == 0x40 and length == 2 and self.version != 0:
                packet_id = data[body] << 8 | data[body + 1]
                if packet_id == 0:
                    raise protocol_fault("the packet identifier is 0", "MQTT-2.2.1-3")
                packets.append(Ack(PUBACK, packet_id, 0, None))
            else:
                packets.append(self._other(first, Cursor(data, body, stop)))
            # [MQTT-1.5.5-1] Older versions do not say so.
            if body - at > 2 and data[body - 1] == 0 and self.version == V5:
                packets.pop()
                raise malformed("a remaining length with more bytes than it needs", "MQTT-1.5.5-1")
            at = stop

    def _publish(self, data: bytes, first: int, at: int, stop: int) -> Publish:
        qos = first >> 1 & 3
        dup = first & 8 != 0
        if qos == 3:
            # [MQTT-3.3.1-4]
            raise malformed("a PUBLISH of QoS 3", "MQTT-3.3.1-4")
        if dup and qos == 0:
            # [MQTT-3.3.1-2]
            raise malformed("a PUBLISH of QoS 0 that is sent again", "MQTT-3.3.1-2")
        if at + 2 > stop:
            raise malformed("a PUBLISH without a topic", "MQTT-3.3.2-1")
        size = data[at] << 8 | data[at + 1]
        begin = at + 2
        at = begin + size
        if at > stop:
            raise malformed("a topic reaches past the end of its packet", "2.1.4")
        named = data[begin:at]
        topic = self._topics.get(named)
        if topic is None:
            topic = self._topic(named)
        packet_id = 0
        if qos > 0:
            if at + 2 > stop:
                raise malformed("a PUBLISH without a packet identifier", "2.2.1")
            packet_id = data[at] << 8 | data[at + 1]
            if packet_id == 0:
                # [MQTT-2.2.1-3]
                raise protocol_fault("the packet identifier is 0", "MQTT-2.2.1-3")
            at += 2
        properties: Properties | None = None
        if self.version == V5:
            if at < stop and data[at] == 0:
                at += 1
            else:
                cursor = Cursor(data, at, stop)
                properties = cursor.properties(PUBLISH, self.from_client)
                at = cursor.at
            if size == 0 and (properties is None or TOPIC_ALIAS not in properties):
                raise protocol_fault("a PUBLISH with neither a topic nor a topic alias", "3.3.2.1")
        return Publish(topic, data[at:stop], qos, first & 1 != 0, dup, packet_id, properties)

    def _topic(self, named: bytes) -> str:
        if len(named) == 0 and self.version == V5:
            return ""
        topic = topic_name(named)
        if len(named) <= TOPIC_KEPT_BYTES_MAX:
            if len(self._topics) >= TOPICS_KEPT_MAX:
                self._topics.clear()
            self._topics[named] = topic
        return topic

    def _other(self, first: int, cursor: Cursor) -> Packet:
        """Any packet but PUBLISH."""
        kind = first >> 4
        self._check_kind(kind, first & 0x0F)
        packet: Packet
        if kind >= PUBACK and kind <= PUBCOMP:
            packet = self._ack(kind, cursor)
        elif kind == SUBSCRIBE:
            packet = self._subscribe(cursor)
        elif kind == UNSUBSCRIBE:
            packet = self._unsubscribe(cursor)
        elif kind == PINGREQ:
            packet = Pingreq()
        elif kind == PINGRESP:
            packet = Pingresp()
        elif kind == CONNECT:
            packet = self._connect(cursor)
        elif kind == CONNACK:
            packet = self._connack(cursor)
        elif kind == SUBACK:
            packet = self._suback(cursor)
        elif kind == UNSUBACK:
            packet = self._unsuback(cursor)
        elif kind == DISCONNECT:
            packet = self._disconnect(cursor)
        else:
            packet = self._auth(cursor)
        cursor.finish()
        return packet

    def _check_kind(self, kind: int, flags: int) -> None:
        version = self.version
        if kind == 0 or (kind == AUTH and version != V5):
            raise malformed(f"there is no packet type {kind}", "2.1.2")
        expected = 2 if _FLAGGED >> kind & 1 else 0
        # MQTT 3.1 marks a repeated PUBREL, SUBSCRIBE or UNSUBSCRIBE by DUP.
        if flags != expected and not (version == V31 and expected == 2 and flags == 10):
            raise malformed(
                f"{PACKET_NAMES[kind]} has the flags {flags:04b}", _FLAG_CLAUSES.get(kind, "MQTT-2.1.3-1")
            )
        if kind == CONNECT and self.from_client and version != 0:
            # [MQTT-3.1.0-2]
            raise protocol_fault("a second CONNECT", "MQTT-3.1.0-2")
        sent = _CLIENT_SENDS if self.from_client else _SERVER_SENDS
        if sent >> kind & 1 == 0 or (kind == DISCONNECT and version != V5 and not self.from_client):
            side = "client" if self.from_client else "server"
            raise protocol_fault(f"a {side} does not send {PACKET_NAMES[kind]}", "2.1.2")

    def _connect(self, cursor: Cursor) -> Connect:
        version = self._protocol(cursor)
        flags = cursor.byte()
        _check_connect_flags(flags, version)
        keep_alive_s = cursor.two()
        properties: Properties = {}
        if version == V5:
            properties = cursor.properties(CONNECT, True)
        # [MQTT-3.1.3-1] The order of the fields.
        client_id = cursor.string()
        will: Will | None = None
        if flags & 4:
            will_properties: Properties = {}
            if version == V5:
                will_properties = cursor.properties(WILL, True)
            topic = topic_name(cursor.binary())
            will = Will(topic, cursor.binary(), flags >> 3 & 3, flags & 0x20 != 0, will_properties)
        username: str | None = None
        password: bytes | None = None
        # In MQTT 3.1 the length of the packet outweighs these two flags.
        if flags & 0x80 and not (version == V31 and cursor.at == cursor.stop):
            username = cursor.string()
        if flags & 0x40 and not (version == V31 and cursor.at == cursor.stop):
            password = cursor.binary()
        return Connect(version, client_id, keep_alive_s, flags & 2 != 0, will, username, password, properties)

    def _protocol(self, cursor: Cursor) -> int:
        """The version that a CONNECT asks for; from here on it says how to answer, be it to refuse."""
        name = cursor.binary()
        level = cursor.byte()
        known = (name == b"MQTT" and level in (V311, V5)) or (name == b"MQIsdp" and level == V31)
        self.version = level if known else V5 if level > V5 else V311
        if not known:
            # [MQTT-3.1.2-1], [MQTT-3.1.2-2]
            clause = "MQTT-3.1.2-2" if name == b"MQTT" else "MQTT-3.1.2-1"
            raise ProtocolError(
                UNSUPPORTED_PROTOCOL_VERSION, f"no protocol {name!r} of level {level}", clause
            )
        return level

    def _connack(self, cursor: Cursor) -> Connack:
        flags = cursor.byte()
        code = cursor.byte()
        if self.version == V31:
            flags = 0
        # [MQTT-3.2.2-1]
        if flags > 1:
            raise malformed(f"CONNACK has the flags {flags:08b}", "MQTT-3.2.2-1")
        # [MQTT-3.2.2-6]
        if flags == 1 and code != 0:
            raise protocol_fault("a refusal that says a session is present", "MQTT-3.2.2-6")
        if self.version == V5:
            check_reason(code, CONNACK, False)
            return Connack(flags == 1, code, cursor.properties(CONNACK, False))
        if code > 5:
            raise protocol_fault(f"there is no return code {code}", "v3.1.1 3.2.2.3")
        return Connack(flags == 1, code)

    def _ack(self, kind: int, cursor: Cursor) -> Ack:
        packet_id = cursor.packet_id()
        code = 0
        properties: Properties | None = None
        # [3.4.2.1] Reason code and properties may be left out from behind.
        if self.version == V5 and cursor.at < cursor.stop:
            code = cursor.byte()
            check_reason(code, kind, self.from_client)
            if cursor.at < cursor.stop:
                properties = cursor.properties(kind, self.from_client) or None
        return Ack(kind, packet_id, code, properties)

    def _subscribe(self, cursor: Cursor) -> Subscribe:
        packet_id = cursor.packet_id()
        version = self.version
        properties: Properties = {}
        if version == V5:
            properties = cursor.properties(SUBSCRIBE, True)
        filters: list[tuple[str, int]] = []
        while cursor.at < cursor.stop:
            text = cursor.string()
            check_filter(text, version == V5)
            options = cursor.byte()
            _check_options(text, options, version)
            filters.append((text, options))
        # [MQTT-3.8.3-2]
        if len(filters) == 0:
            raise protocol_fault("a SUBSCRIBE without a topic filter", "MQTT-3.8.3-2")
        return Subscribe(packet_id, filters, properties)

    def _suback(self, cursor: Cursor) -> Suback:
        packet_id = cursor.packet_id()
        properties: Properties = {}
        if self.version == V5:
            properties = cursor.properties(SUBACK, False)
        codes = cursor.take(cursor.stop - cursor.at)
        for code in codes:
            if self.version == V5:
                check_reason(code, SUBACK, False)
            elif code > 2 and code != 0x80:
                # [v3.1.1 MQTT-3.9.3-2]
                raise protocol_fault(f"there is no return code 0x{code:02x}", "v3.1.1 MQTT-3.9.3-2")
        if len(codes) == 0:
            raise protocol_fault("a SUBACK without a reason code", "MQTT-3.8.4-6")
        return Suback(packet_id, codes, properties)

    def _unsubscribe(self, cursor: Cursor) -> Unsubscribe:
        packet_id = cursor.packet_id()
        version = self.version
        properties: Properties = {}
        if version == V5:
            properties = cursor.properties(UNSUBSCRIBE, True)
        filters: list[str] = []
        while cursor.at < cursor.stop:
            text = cursor.string()
            check_filter(text, version == V5)
            filters.append(text)
        # [MQTT-3.10.3-2]
        if len(filters) == 0:
            raise protocol_fault("an UNSUBSCRIBE without a topic filter", "MQTT-3.10.3-2")
        return Unsubscribe(packet_id, filters, properties)

    def _unsuback(self, cursor: Cursor) -> Unsuback:
        packet_id = cursor.packet_id()
        if self.version != V5:
            return Unsuback(packet_id)
        properties = cursor.properties(UNSUBACK, False)
        codes = cursor.take(cursor.stop - cursor.at)
        for code in codes:
            check_reason(code, UNSUBACK, False)
        if len(codes) == 0:
            raise protocol_fault("an UNSUBACK without a reason code", "3.11.3")
        return Unsuback(packet_id, codes, properties)

    def _disconnect(self, cursor: Cursor) -> Disconnect:
        if self.version != V5 or cursor.at == cursor.stop:
            return Disconnect()
        code = cursor.byte()
        check_reason(code, DISCONNECT, self.from_client)
        # [3.14.2.2.1]
        if cursor.at == cursor.stop:
            return Disconnect(code)
        return Disconnect(code, cursor.properties(DISCONNECT, self.from_client))

    def _auth(self, cursor: Cursor) -> Auth:
        code = 0
        properties: Properties = {}
        short = cursor.at == cursor.stop
        if not short:
            code = cursor.byte()
        check_reason(code, AUTH, self.from_client)
        if not short:
            properties = cursor.properties(AUTH, self.from_client)
            if AUTHENTICATION_METHOD not in properties:
                raise protocol_fault("an AUTH without an authentication method", "3.15.2.2.2")
        return Auth(code, properties)


def _check_connect_flags(flags: int, version: int) -> None:
    # [MQTT-3.1.2-3]; MQTT 3.1 leaves the bit open.
    if flags & 1 and version != V31:
        raise malformed("the reserved flag of CONNECT is set", "MQTT-3.1.2-3")
    if flags & 4:
        # [MQTT-3.1.2-14]
        if flags & 0x18 == 0x18:
            raise malformed("a will of QoS 3", "MQTT-3.1.2-14")
    elif flags & 0x18:
        # [MQTT-3.1.2-13]
        raise malformed("a QoS for a will that is not there", "MQTT-3.1.2-13")
    elif flags & 0x20:
        # [MQTT-3.1.2-15]
        raise malformed("a retain flag for a will that is not there", "MQTT-3.1.2-15")
    # [v3.1.1 MQTT-3.1.2-22]; MQTT 5 allows a password alone.
    if flags & 0xC0 == 0x40 and version != V5:
        raise malformed("a password without a user name", "v3.1.1 MQTT-3.1.2-22")


def _check_options(text: str, options: int, version: int) -> None:
    if version != V5:
        # [v3.1.1 MQTT-3.8.3-4]
        if options > 2:
            raise malformed(f"a requested QoS of {options}", "v3.1.1 MQTT-3-8.3-4")
        return
    # [MQTT-3.8.3-5]
    if options & 0xC0:
        raise malformed("reserved subscription options are set", "MQTT-3.8.3-5")
    if options & QOS_MASK == 3:
        raise protocol_fault("a subscription of QoS 3", "3.8.3.1")
    if options >> RETAIN_HANDLING_SHIFT == 3:
        raise protocol_fault("a subscription with retain handling 3", "3.8.3.1")
    # [MQTT-3.8.3-4]
    if options & NO_LOCAL and text.startswith("$share/"):
        raise protocol_fault("a shared subscription with No Local", "MQTT-3.8.3-4")
