"""CONNECT and what may go wrong with it; sessions that come, stay and go."""

import time

import pytest

from fanlog.testing import RunningBroker
from fanlog.wire import mqtt_tables as tables
from fanlog.wire.mqtt import Ack, Auth, Connack, Connect, Disconnect, Pingreq, Publish, encode, encode_connect
from support.process import wait_for

from .conftest import MakePeer
from .peer import Peer

EXPIRY = tables.SESSION_EXPIRY_INTERVAL


def test_a_client_without_a_name_gets_one(peer: MakePeer) -> None:
    client = peer(None)
    assert client.connect().properties[tables.ASSIGNED_CLIENT_IDENTIFIER]


def test_a_client_with_a_name_is_not_given_another(peer: MakePeer, name: str) -> None:
    assert tables.ASSIGNED_CLIENT_IDENTIFIER not in peer(None).connect(name).properties


def test_an_empty_client_identifier_needs_a_clean_session_in_3_1_1(peer: MakePeer) -> None:
    client = peer(None, version=4)
    answer = client.connect("", clean=False)
    assert (answer.reason_code, answer.session_present) == (2, False)
    client.closed()
    assert peer(None, version=4).connect("", clean=True).reason_code == 0


def test_a_version_that_does_not_exist_is_refused(peer: MakePeer) -> None:
    client = peer(None, version=4)
    client.raw(encode_connect(Connect(4, "x")).replace(b"MQTT\x04", b"MQTT\x03"))
    answer = client.expect(Connack)
    assert answer.reason_code == 1
    client.closed()
    client = peer(None, version=5)
    client.raw(encode_connect(Connect(5, "x")).replace(b"MQTT\x05", b"MQTT\x06"))
    assert client.expect(Connack).reason_code == tables.UNSUPPORTED_PROTOCOL_VERSION
    client.closed()


def test_a_malformed_connect_is_not_answered_in_3_1_1_and_is_in_5(peer: MakePeer) -> None:
    # The reserved flag is set.
    client = peer(None, version=4)
    frame = bytearray(encode_connect(Connect(4, "x")))
    frame[9] |= 1
    client.raw(bytes(frame))
    assert client.closed() == []
    client = peer(None, version=5)
    frame = bytearray(encode_connect(Connect(5, "x")))
    frame[9] |= 1
    client.raw(bytes(frame))
    assert [packet.reason_code for packet in client.closed()] == [tables.MALFORMED_PACKET]


@pytest.mark.parametrize("packet", [Pingreq(), Publish("a", b"x"), Disconnect()])
def test_whoever_does_not_begin_with_connect_is_cut_off(peer: MakePeer, version: int, packet: object) -> None:
    client = peer(None, version=version)
    client.raw(encode(packet, version))
    assert client.closed() == []


def test_a_second_connect_ends_the_connection(peer: MakePeer, name: str, version: int) -> None:
    client = peer(name, version=version)
    client.send(Connect(version, name))
    said = client.closed()
    assert [packet.reason_code for packet in said] == ([tables.PROTOCOL_FAULT] if version == 5 else [])


def test_methods_of_authentication_are_refused(peer: MakePeer) -> None:
    client = peer(None)
    answer = client.connect(properties={tables.AUTHENTICATION_METHOD: "SCRAM"})
    assert answer.reason_code == tables.BAD_AUTHENTICATION_METHOD
    client.closed()
    client = peer()
    client.send(Auth(tables.REAUTHENTICATE, {tables.AUTHENTICATION_METHOD: "SCRAM"}))
    assert client.refused().reason_code == tables.PROTOCOL_FAULT


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        pytest.param(b"\x00\x00", tables.MALFORMED_PACKET, id="no such packet"),
        pytest.param(b"\x80\x05\x00\x01\x00\x01a\x00", tables.MALFORMED_PACKET, id="flags of SUBSCRIBE"),
        pytest.param(b"\x82\x03\x00\x01\x00", tables.PROTOCOL_FAULT, id="SUBSCRIBE without filters"),
        pytest.param(b"\x36\x06\x00\x01a\x00\x01\x00", tables.MALFORMED_PACKET, id="QoS 3"),
        pytest.param(b"\x32\x06\x00\x01a\x00\x00\x00", tables.PROTOCOL_FAULT, id="packet identifier 0"),
        pytest.param(b"\x30\x05\x00\x01\xff\x00x", tables.MALFORMED_PACKET, id="topic is not UTF-8"),
        pytest.param(b"\x30\x05\x00\x01#\x00x", tables.TOPIC_NAME_INVALID, id="topic has a wildcard"),
        pytest.param(b"\x30\x04\x00\x00\x00x", tables.PROTOCOL_FAULT, id="neither topic nor alias"),
        pytest.param(b"\x20\x03\x00\x00\x00", tables.PROTOCOL_FAULT, id="CONNACK from a client"),
        pytest.param(b"\xff\xff\xff\xff\xff", tables.MALFORMED_PACKET, id="length of five bytes"),
    ],
)
def test_faults_are_named_in_5(peer: MakePeer, frame: bytes, code: int) -> None:
    client = peer()
    client.raw(frame)
    assert client.refused().reason_code == code


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\x00\x00", id="no such packet"),
        pytest.param(b"\xf0\x00", id="AUTH"),
        pytest.param(b"\x80\x06\x00\x01\x00\x01a\x00", id="flags of SUBSCRIBE"),
        pytest.param(b"\x82\x02\x00\x01", id="SUBSCRIBE without filters"),
        pytest.param(b"\x82\x06\x00\x01\x00\x01a\x03", id="SUBSCRIBE with QoS 3"),
        pytest.param(b"\xa2\x02\x00\x01", id="UNSUBSCRIBE without filters"),
        pytest.param(b"\x36\x05\x00\x01a\x00\x01", id="QoS 3"),
        pytest.param(b"\x32\x05\x00\x01a\x00\x00", id="packet identifier 0"),
        pytest.param(b"\x30\x04\x00\x01\xffx", id="topic is not UTF-8"),
        pytest.param(b"\x30\x04\x00\x01#x", id="topic has a wildcard"),
        pytest.param(b"\x30\x03\x00\x00x", id="empty topic"),
        pytest.param(b"\x20\x02\x00\x00", id="CONNACK from a client"),
        pytest.param(b"\xff\xff\xff\xff\xff", id="length of five bytes"),
    ],
)
def test_faults_are_not_answered_in_3_1_1(peer: MakePeer, frame: bytes) -> None:
    client = peer(version=4)
    client.raw(frame)
    assert client.closed() == []


def test_what_came_before_a_fault_is_done(peer: MakePeer, name: str) -> None:
    subscriber, client = peer(), peer()
    subscriber.subscribe(name)
    client.raw(encode(Publish(name, b"before"), 5) + b"\x00\x00" + encode(Publish(name, b"behind"), 5))
    client.refused()
    assert subscriber.payloads(1) == [b"before"]
    subscriber.silent()


# --- sessions -----------------------------------------------------------------------------------------------


def test_a_session_lasts_as_long_as_it_was_asked_to(peer: MakePeer, name: str) -> None:
    keeping: dict[str, object] = {"clean": False, "properties": {EXPIRY: 60}}
    client = peer(None)
    assert not client.connect(name, **keeping).session_present
    client.subscribe(f"{name}/a", qos=1)
    client.disconnect()
    peer().publish(f"{name}/a", b"while away", 1)
    again = peer(None)
    assert again.connect(name, **keeping).session_present
    assert again.payloads(1) == [b"while away"]
    again.cut()
    fresh = peer(None)
    assert not fresh.connect(name, clean=True).session_present
    peer().publish(f"{name}/a", b"nobody asked", 1)
    fresh.silent()


def test_a_session_of_3_1_1_lasts_if_it_is_not_clean(peer: MakePeer, name: str) -> None:
    client = peer(None, version=4)
    assert not client.connect(name, clean=False).session_present
    client.subscribe(name, qos=1)
    client.disconnect()
    peer().publish(name, b"while away", 1)
    again = peer(None, version=4)
    assert again.connect(name, clean=False).session_present
    assert again.payloads(1) == [b"while away"]
    again.disconnect()
    clean = peer(None, version=4)
    assert not clean.connect(name, clean=True).session_present
    clean.disconnect()
    last = peer(None, version=4)
    assert not last.connect(name, clean=False).session_present


def test_a_session_without_an_expiry_ends_with_its_connection(peer: MakePeer, name: str) -> None:
    client = peer(name)
    client.subscribe(name)
    client.cut()
    again = peer(None)
    assert not again.connect(name, clean=False).session_present


def test_a_session_expires(peer: MakePeer, name: str, running: RunningBroker) -> None:
    client = peer(name, properties={EXPIRY: 1})
    client.subscribe(name)
    client.disconnect()
    assert name in running.broker.mqtt.sessions
    wait_for("the end of the session", lambda: name not in running.broker.mqtt.sessions)
    assert not peer(None).connect(name, clean=False).session_present


def test_disconnect_changes_the_expiry(peer: MakePeer, name: str) -> None:
    client = peer(name, properties={EXPIRY: 1000})
    client.disconnect(properties={EXPIRY: 0})
    assert not peer(None).connect(name, clean=False).session_present
    client = peer(name, properties={EXPIRY: 1})
    client.disconnect(properties={EXPIRY: 1000})
    assert peer(None).connect(name, clean=False).session_present


def test_disconnect_does_not_prolong_a_session_that_was_to_end(peer: MakePeer, name: str) -> None:
    client = peer(name)
    client.send(Disconnect(0, {EXPIRY: 5}))
    assert client.refused().reason_code == tables.PROTOCOL_FAULT


def test_a_session_that_is_to_last_too_long_is_told_so(peer: MakePeer, name: str) -> None:
    answer = peer(None).connect(name, properties={EXPIRY: 0xFFFFFFFF})
    assert answer.properties[EXPIRY] == 7 * 24 * 3600


def test_a_session_is_taken_over(peer: MakePeer, name: str, version: int) -> None:
    first = peer(name, version=version)
    second = peer(name, version=version)
    said = [packet.reason_code for packet in first.closed()]
    assert said == ([tables.SESSION_TAKEN_OVER] if version == 5 else [])
    second.silent()


def test_a_session_that_is_taken_over_goes_on(peer: MakePeer, name: str) -> None:
    first = peer(name, clean=False, properties={EXPIRY: 60})
    first.subscribe(name, qos=1)
    publisher = peer()
    publisher.publish(name, b"unacknowledged", 1)
    assert not first.message().dup
    second = peer(None)
    assert second.connect(name, clean=False, properties={EXPIRY: 60}).session_present
    again = second.message()
    assert (again.payload, again.dup) == (b"unacknowledged", True)
    second.acknowledge(again)
    publisher.publish(name, b"next", 1)
    assert second.payloads(1) == [b"next"]


def test_what_is_in_flight_is_sent_again_with_its_identifier(peer: MakePeer, name: str, version: int) -> None:
    keeping: dict[str, object] = {"clean": False}
    if version == 5:
        keeping["properties"] = {EXPIRY: 60}
    client = peer(name, version=version, **keeping)
    client.subscribe(f"{name}/1", qos=1)
    client.subscribe(f"{name}/2", qos=2)
    publisher = peer()
    for qos in (1, 2, 2):
        publisher.publish(f"{name}/{qos}", b"%d" % qos, qos)
    first = client.messages(3, acknowledge=False)
    received = next(packet for packet in first if packet.qos == 2)
    client.send(Ack(tables.PUBREC, received.packet_id))
    assert client.expect(Ack).kind == tables.PUBREL
    client.cut()

    again = peer(name, version=version, **keeping)
    repeated = {packet.packet_id: packet for packet in again.messages(2, acknowledge=False)}
    assert set(repeated) == {packet.packet_id for packet in first} - {received.packet_id}
    assert all(packet.dup for packet in repeated.values())
    released = again.expect(Ack)
    assert (released.kind, released.packet_id) == (tables.PUBREL, received.packet_id)
    again.send(Ack(tables.PUBCOMP, received.packet_id))
    for packet in repeated.values():
        again.acknowledge(packet)
    again.silent()
    again.disconnect()
    last = peer(name, version=version, **keeping)
    last.silent()


def test_what_is_sent_again_respects_a_smaller_window(peer: MakePeer, name: str) -> None:
    client = peer(name, clean=False, properties={EXPIRY: 60})
    client.subscribe(name, qos=1)
    publisher = peer()
    for number in range(8):
        publisher.publish(name, b"%d" % number, 1)
    client.messages(8, acknowledge=False)
    client.cut()
    again = peer(name, clean=False, properties={EXPIRY: 60, tables.RECEIVE_MAXIMUM: 2})
    first = again.messages(2, acknowledge=False)
    again.silent()
    for packet in first:
        again.acknowledge(packet)
    assert [packet.payload for packet in first] + again.payloads(6) == [b"%d" % n for n in range(8)]


def test_a_client_may_come_back_with_another_version(peer: MakePeer, name: str) -> None:
    client = peer(name, version=4, clean=False)
    client.subscribe(name, qos=1)
    publisher = peer()
    publisher.publish(name, b"1", 1)
    client.message()
    client.cut()
    newer = peer(name, version=5, clean=False, properties={EXPIRY: 60})
    assert newer.payloads(1) == [b"1"]
    publisher.publish(name, b"2", 1, properties={tables.CONTENT_TYPE: "text/plain"})
    assert newer.message().properties == {tables.CONTENT_TYPE: "text/plain"}


def test_a_qos_2_message_is_stored_once_across_connections(peer: MakePeer, name: str) -> None:
    subscriber = peer()
    subscriber.subscribe(f"{name}/x", qos=2)
    client = peer(name, clean=False, properties={EXPIRY: 60})
    client.send(Publish(f"{name}/x", b"once", 2, False, False, 5))
    assert client.expect(Ack).kind == tables.PUBREC
    client.cut()
    again = peer(name, clean=False, properties={EXPIRY: 60})
    again.send(Publish(f"{name}/x", b"once", 2, False, True, 5))
    assert again.expect(Ack).kind == tables.PUBREC
    again.send(Ack(tables.PUBREL, 5))
    answer = again.expect(Ack)
    assert (answer.kind, answer.reason_code) == (tables.PUBCOMP, 0)
    assert subscriber.payloads(1) == [b"once"]
    subscriber.silent()


def test_reasons_are_given_unless_they_are_not_wanted(peer: MakePeer) -> None:
    client = peer()
    client.send(Publish("$x", b"", 1, False, False, 1))
    assert client.expect(Ack).properties is not None
    quiet = peer(properties={tables.REQUEST_PROBLEM_INFORMATION: 0})
    quiet.send(Publish("$x", b"", 1, False, False, 1))
    answer = quiet.expect(Ack)
    assert (answer.reason_code, answer.properties) == (tables.TOPIC_NAME_INVALID, None)


def test_a_silent_client_is_cut_off_after_one_and_a_half_keep_alives(
    peer: MakePeer, name: str, version: int
) -> None:
    client = peer(name, version=version, keep_alive_s=1)
    begun = time.monotonic()
    said = [packet.reason_code for packet in client.closed()]
    assert said == ([tables.KEEP_ALIVE_TIMEOUT] if version == 5 else [])
    assert 1.4 <= time.monotonic() - begun < 4


def test_a_client_that_says_nothing_at_all_is_cut_off(running: RunningBroker) -> None:
    with Peer(running.mqtt) as client:
        connection = wait_for("the connection", lambda: list(running.broker.mqtt.connections)[-1:])[0]
        running.loop.call_soon_threadsafe(setattr, connection, "active_at", connection.active_at - 60)
        assert client.closed() == []
