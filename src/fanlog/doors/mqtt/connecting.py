"""The first and the last words of a connection: CONNECT and its answer, DISCONNECT from either side."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from fanlog.doors.mqtt import subscribing
from fanlog.doors.mqtt.frames import Aliases
from fanlog.doors.mqtt.session import Session
from fanlog.wire import mqtt_tables as mqtt
from fanlog.wire.mqtt import Connect, Disconnect, encode_connack, encode_disconnect

if TYPE_CHECKING:
    from fanlog.doors.mqtt.connection import MqttConnection


def connect(connection: "MqttConnection", packet: Connect) -> Coroutine[Any, Any, None] | None:
    if connection.session is not None:
        # [MQTT-3.1.0-2]
        connection.refuse(mqtt.PROTOCOL_FAULT, "a second CONNECT")
        return None
    connection.version = packet.version
    fault = _fault(packet)
    if fault is not None:
        connection.refuse(*fault)
        return None
    door = connection.door
    said = packet.properties
    connection.will = packet.will
    connection.problems = said.get(mqtt.REQUEST_PROBLEM_INFORMATION, 1) == 1
    connection.keep_alive_s = packet.keep_alive_s
    client_id = packet.client_id or door.new_client_id()
    session, present = door.take_session(connection, client_id, packet)
    connection.session = session
    most = door.limits.mqtt_in_flight_max
    session.window = min(said.get(mqtt.RECEIVE_MAXIMUM, most), most)
    session.packet_bytes_max = said.get(mqtt.MAXIMUM_PACKET_SIZE, 1 << 28)
    aliases = said.get(mqtt.TOPIC_ALIAS_MAXIMUM, 0)
    session.aliases = Aliases(aliases) if aliases else None
    offered = door.offer(packet, client_id) if packet.version == mqtt.V5 else None
    answer = encode_connack(packet.version, present, 0, offered)
    if session.expiry_s and not session.saved:
        return _welcome_saved(connection, session, answer)
    _welcome(connection, session, answer)
    return None


def _welcome(connection: "MqttConnection", session: Session, answer: bytes) -> None:
    connection.write(answer)
    session.attach(connection)
    subscribing.settle(session)
    session.resume()


async def _welcome_saved(connection: "MqttConnection", session: Session, answer: bytes) -> None:
    """Says that there is a session once that is true whatever happens.

    A broker that did not know the session after a crash would store a QoS 2 message again that it has.
    """
    await connection.door.keeper.saved(session)
    if session.connection is not None or connection.door.sessions.get(session.client_id) is not session:
        connection.refuse(mqtt.SESSION_TAKEN_OVER, "another connection has taken the session")
        return
    _welcome(connection, session, answer)


def _fault(packet: Connect) -> tuple[int, str] | None:
    """What is wrong with a CONNECT, as far as its bytes do not show it."""
    if mqtt.AUTHENTICATION_METHOD in packet.properties:
        return mqtt.BAD_AUTHENTICATION_METHOD, "there is no such method of authentication"
    if not packet.client_id and packet.version < mqtt.V5 and not packet.clean_start:
        # [v3.1.1 MQTT-3.1.3-8]
        return mqtt.CLIENT_IDENTIFIER_NOT_VALID, "a session that is to last needs a client identifier"
    will = packet.will
    if will is not None and not payload_fits(will.properties, will.payload):
        return mqtt.PAYLOAD_FORMAT_INVALID, "the will is said to be UTF-8, and is not"
    return None


def payload_fits(properties: dict[int, Any], payload: bytes) -> bool:
    """Whether a payload that is said to be text is UTF-8. [3.3.2.3.2]"""
    if properties.get(mqtt.PAYLOAD_FORMAT_INDICATOR) != 1:
        return True
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def disconnect(connection: "MqttConnection", packet: Disconnect) -> None:
    session = connection.session
    assert session is not None
    expiry = packet.properties.get(mqtt.SESSION_EXPIRY_INTERVAL)
    if expiry is not None:
        if expiry and not session.expiry_s:
            # [3.14.2.2.2]
            connection.refuse(
                mqtt.PROTOCOL_FAULT, "a session that was to end with its connection cannot be kept"
            )
            return
        session.expiry_s = expiry
    if packet.reason_code != mqtt.DISCONNECT_WITH_WILL:
        # [MQTT-3.14.4-3]
        connection.will = None
    connection.close()


def last_words(connection: "MqttConnection", code: int, text: str) -> bytes:
    """What a client is told before it is cut off; nothing where its version has no word for it."""
    version = connection.version or connection.decoder.version
    said = {mqtt.REASON_STRING: text}
    if connection.session is None:
        if version == mqtt.V5:
            return encode_connack(version, False, code, said)
        # [v3.1.1 MQTT-3.1.4-1]: most of what can be wrong with a CONNECT is not answered.
        known = version and code in mqtt.RETURN_CODES
        return encode_connack(version, False, mqtt.RETURN_CODES[code]) if known else b""
    if version != mqtt.V5:
        return b""
    frame = encode_disconnect(version, code, said)
    if len(frame) > connection.session.packet_bytes_max:
        # [MQTT-3.14.2-3]
        return encode_disconnect(version, code)
    return frame
