"""What MQTT 5 says of a message besides its payload."""

import time

import pytest
from confluent_kafka import Producer

from fanlog.testing import RunningBroker
from fanlog.wire import mqtt_tables as tables
from fanlog.wire.mqtt import Ack, Publish
from support.process import wait_for

from .conftest import MakePeer

ALIAS = tables.TOPIC_ALIAS
ALIASES = tables.TOPIC_ALIAS_MAXIMUM
EXPIRES = tables.MESSAGE_EXPIRY_INTERVAL
TEXT = tables.PAYLOAD_FORMAT_INDICATOR


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_all_properties_arrive_as_they_were_sent(peer: MakePeer, name: str, qos: int) -> None:
    said = {
        tables.CONTENT_TYPE: "text/plain",
        tables.RESPONSE_TOPIC: "answers/here",
        tables.CORRELATION_DATA: b"\x00\xff",
        TEXT: 1,
        tables.USER_PROPERTY: [("b", "2"), ("a", "1"), ("b", ""), ("", "3")],
    }
    subscriber, publisher = peer(), peer()
    subscriber.subscribe(name, qos=2)
    publisher.publish(name, b"x", qos, properties=dict(said))
    message = subscriber.message()
    assert message.properties == said


def test_user_properties_may_have_any_name(peer: MakePeer, name: str) -> None:
    names = [
        "content-type",
        "fanlog-qos",
        "fanlog-expires",
        "mqtt-user:x",
        "mqtt-client",
        "mqtt-response-topic",
    ]
    users = [(one, "0") for one in names]
    subscriber, publisher = peer(), peer()
    subscriber.subscribe(name, qos=1)
    publisher.publish(name, b"x", 1, properties={tables.USER_PROPERTY: users})
    message = subscriber.message()
    assert (message.qos, message.properties) == (1, {tables.USER_PROPERTY: users})


def test_a_subscriber_of_3_1_1_gets_the_message_without_them(peer: MakePeer, name: str) -> None:
    subscriber, publisher = peer(version=4), peer()
    subscriber.subscribe(name)
    publisher.publish(name, b"x", 0, properties={tables.CONTENT_TYPE: "text/plain"})
    assert (message := subscriber.message()).payload == b"x"
    assert message.properties is None


def test_what_has_expired_is_not_delivered(peer: MakePeer, name: str) -> None:
    keeping = {"clean": False, "properties": {tables.SESSION_EXPIRY_INTERVAL: 60}}
    subscriber, publisher = peer(name, **keeping), peer()
    subscriber.subscribe(f"{name}/x", qos=1)
    subscriber.disconnect()
    witness = peer()
    witness.subscribe(f"{name}/x")
    publisher.publish(f"{name}/x", b"short", 1, properties={EXPIRES: 1})
    publisher.publish(f"{name}/x", b"long", 1, properties={EXPIRES: 50})
    publisher.publish(f"{name}/x", b"for ever", 1)
    assert witness.message().properties == {EXPIRES: 1}
    until = time.monotonic() + 1.1
    wait_for("a second to pass", lambda: time.monotonic() > until)
    again = peer(name, **keeping)
    first, second = again.messages(2)
    assert (first.payload, second.payload) == (b"long", b"for ever")
    assert 45 <= first.properties[EXPIRES] < 50
    again.silent()


def test_expired_messages_amid_shared_frames_do_not_hold_up_the_others(peer: MakePeer, name: str) -> None:
    subscriber, publisher = peer(properties={tables.RECEIVE_MAXIMUM: 4}), peer()
    publisher.publish(name, b"", 1)
    subscriber.subscribe(name, qos=1)
    for number in range(12):
        properties = {EXPIRES: 0} if number % 2 else None
        publisher.send(Publish(name, b"%d" % number, 1, False, False, number + 1, properties))
    assert subscriber.payloads(6) == [b"%d" % number for number in range(0, 12, 2)]
    subscriber.silent()


@pytest.mark.parametrize("qos", [1, 2])
def test_a_payload_that_is_not_the_text_it_says_is_refused(peer: MakePeer, name: str, qos: int) -> None:
    publisher = peer()
    assert publisher.publish(name, b"\xc3\x28", qos, properties={TEXT: 1}) == tables.PAYLOAD_FORMAT_INVALID
    assert publisher.publish(name, b"\xc3\x28", qos, properties={TEXT: 0}) == 0
    assert publisher.publish(name, "gr\u00fcn".encode(), qos, properties={TEXT: 1}) == 0


def test_without_an_acknowledgement_such_a_payload_ends_the_connection(peer: MakePeer, name: str) -> None:
    publisher = peer()
    publisher.publish(name, b"\xff", properties={TEXT: 1})
    assert publisher.refused().reason_code == tables.PAYLOAD_FORMAT_INVALID


# --- topic aliases ------------------------------------------------------------------------------------------


def test_a_client_may_name_topics_by_aliases(peer: MakePeer, name: str) -> None:
    subscriber, publisher = peer(), peer()
    subscriber.subscribe(f"{name}/#", qos=1)
    publisher.publish(f"{name}/a", b"1", 1, properties={ALIAS: 1})
    publisher.publish(f"{name}/b", b"2", 0, properties={ALIAS: 2})
    publisher.publish("", b"3", 1, properties={ALIAS: 1})
    publisher.publish("", b"4", 0, properties={ALIAS: 2})
    publisher.publish(f"{name}/c", b"5", 1, properties={ALIAS: 1})
    publisher.publish("", b"6", 1, properties={ALIAS: 1})
    found = [(message.topic[-1], message.payload) for message in subscriber.messages(6)]
    assert found == [("a", b"1"), ("b", b"2"), ("a", b"3"), ("b", b"4"), ("c", b"5"), ("c", b"6")]


@pytest.mark.parametrize(
    ("alias", "code"), [(0xFFFF, tables.TOPIC_ALIAS_INVALID), (7, tables.PROTOCOL_FAULT)]
)
def test_unknown_aliases_end_the_connection(peer: MakePeer, alias: int, code: int) -> None:
    publisher = peer()
    publisher.send(Publish("", b"x", 0, properties={ALIAS: alias}))
    assert publisher.refused().reason_code == code


def test_alias_0_ends_the_connection(peer: MakePeer) -> None:
    publisher = peer()
    publisher.raw(b"\x30\x08\x00\x01a\x03\x23\x00\x00x")
    assert publisher.refused().reason_code == tables.TOPIC_ALIAS_INVALID


def test_aliases_do_not_outlast_the_connection(peer: MakePeer, name: str) -> None:
    keeping = {"clean": False, "properties": {tables.SESSION_EXPIRY_INTERVAL: 60}}
    peer(name, **keeping).publish(f"{name}/a", b"1", 1, properties={ALIAS: 1})
    again = peer(name, **keeping)
    again.send(Publish("", b"x", 0, properties={ALIAS: 1}))
    assert again.refused().reason_code == tables.PROTOCOL_FAULT


def test_the_broker_names_topics_by_aliases_where_the_client_takes_them(peer: MakePeer, name: str) -> None:
    subscriber, publisher = peer(properties={ALIASES: 2}), peer()
    subscriber.subscribe(f"{name}/#", qos=2)
    for number, address in enumerate("abcabc"):
        publisher.publish(f"{name}/{address}", b"%d" % number, number % 3)
    found = [(m.topic[-1:], (m.properties or {}).get(ALIAS), m.payload) for m in subscriber.messages(6)]
    assert found == [
        ("a", 1, b"0"),
        ("b", 2, b"1"),
        ("c", None, b"2"),
        ("", 1, b"3"),
        ("", 2, b"4"),
        ("c", None, b"5"),
    ]


def test_the_broker_uses_no_alias_where_none_is_taken(peer: MakePeer, name: str) -> None:
    subscriber, publisher = peer(), peer()
    subscriber.subscribe(name, qos=1)
    for _ in range(3):
        publisher.publish(name, b"x", 1)
    assert [(message.topic, message.properties) for message in subscriber.messages(3)] == [(name, None)] * 3


def test_an_alias_that_did_not_fit_is_not_used(peer: MakePeer, name: str) -> None:
    subscriber = peer(properties={ALIASES: 5, tables.MAXIMUM_PACKET_SIZE: 50})
    publisher = peer()
    subscriber.subscribe(name, qos=1)
    publisher.publish(name, b"x" * 60, 1)
    publisher.publish(name, b"fits", 1)
    assert (message := subscriber.message()).topic == name
    assert message.properties == {ALIAS: 1}


def test_request_and_response(peer: MakePeer, name: str) -> None:
    requester, responder = peer(), peer()
    requester.subscribe(f"{name}/answers/1", qos=1)
    responder.subscribe(f"{name}/questions", qos=1)
    asked = {tables.RESPONSE_TOPIC: f"{name}/answers/1", tables.CORRELATION_DATA: b"42"}
    requester.publish(f"{name}/questions", b"?", 1, properties=asked)
    question = responder.message()
    responder.acknowledge(question)
    responder.publish(
        question.properties[tables.RESPONSE_TOPIC],
        b"!",
        1,
        properties={tables.CORRELATION_DATA: question.properties[tables.CORRELATION_DATA]},
    )
    answer = requester.message()
    assert (answer.payload, answer.properties) == (b"!", {tables.CORRELATION_DATA: b"42"})


def test_odd_headers_of_records_hold_up_nobody(peer: MakePeer, name: str, running: RunningBroker) -> None:
    """Whatever Kafka allows as a header or a key, subscribers get the message."""
    subscriber = peer()
    subscriber.subscribe(f"{name}/#", qos=1)
    producer = Producer({"bootstrap.servers": running.kafka})
    headers = [
        ("content-type", b"\x00\xff"),
        ("mqtt-response-topic", b"with/#"),
        ("mqtt-correlation-data", b"x" * 70_000),
        ("long", b"x" * 70_000),
        ("fanlog-qos", b"7"),
        ("fanlog-expires", b"soon"),
        ("empty", None),
        ("nul", b"a\x00b"),
    ]
    producer.produce(name, b"odd", b"k", headers=headers)
    producer.produce(name, b"wild", b"a/#")
    producer.produce(name, b"binary", b"\xff\xfe")
    producer.produce(name, b"long", b"k" * 70_000)
    producer.produce(name, None, b"k")
    producer.flush(10)
    found = subscriber.messages(5)
    assert [(message.topic, message.payload) for message in found] == [
        (f"{name}/k", b"odd"),
        (name, b"wild"),
        (name, b"binary"),
        (name, b"long"),
        (f"{name}/k", b""),
    ]
    users = dict(found[0].properties[tables.USER_PROPERTY])
    assert users == {"empty": "", "nul": "a\ufffdb"}
    subscriber.send(Ack(tables.PUBACK, 1))
    subscriber.silent()
