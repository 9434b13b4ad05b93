"""The same scenarios with every client: paho-mqtt, aiomqtt, gmqtt, mqtt.js, in 3.1.1 and in 5.0."""

from collections import Counter

import pytest

from .clients import Message, Properties, Will
from .conftest import Connect


def test_messages_of_every_quality_arrive(connect: Connect, topic: str) -> None:
    subscriber, publisher = connect(), connect()
    subscriber.subscribe(f"{topic}/+/x", 2)
    for qos in (0, 1, 2):
        publisher.publish(f"{topic}/{qos}/x", b"%d" % qos, qos)
    expected = [Message(f"{topic}/{qos}/x", b"%d" % qos, qos, False) for qos in (0, 1, 2)]
    assert sorted(subscriber.messages(3), key=lambda message: message.qos) == expected


def test_many_messages_arrive_in_order(connect: Connect, topic: str) -> None:
    subscriber, publisher = connect(), connect()
    subscriber.subscribe(f"{topic}/#", 1)
    for number in range(60):
        publisher.publish(f"{topic}/a", b"%d" % number, number % 3)
    assert [int(message.payload) for message in subscriber.messages(60)] == list(range(60))


def test_large_messages_arrive(connect: Connect, topic: str) -> None:
    subscriber, publisher = connect(), connect()
    subscriber.subscribe(topic, 1)
    payload = bytes(range(256)) * 2000
    publisher.publish(topic, payload, 1)
    assert subscriber.message().payload == payload


def test_retained_messages_greet_new_subscriptions(connect: Connect, topic: str) -> None:
    publisher = connect()
    publisher.publish(f"{topic}/kept", b"last", 1, retain=True)
    publisher.publish(f"{topic}/removed", b"x", 1, retain=True)
    publisher.publish(f"{topic}/removed", b"", 1, retain=True)
    subscriber = connect()
    subscriber.subscribe(f"{topic}/+", 1)
    assert subscriber.message() == Message(f"{topic}/kept", b"last", 1, True)
    publisher.publish(f"{topic}/kept", b"", 1, retain=True)
    assert subscriber.message() == Message(f"{topic}/kept", b"", 1, False)


def test_a_will_is_published_for_the_dead_only(connect: Connect, topic: str) -> None:
    watcher = connect()
    watcher.subscribe(f"{topic}/#", 1)
    connect(will=Will(f"{topic}/polite", b"gone", 1)).disconnect()
    connect(will=Will(f"{topic}/dead", b"gone", 1)).cut()
    assert watcher.message() == Message(f"{topic}/dead", b"gone", 1, False)


def test_a_session_that_is_kept_gets_what_it_missed(connect: Connect, topic: str) -> None:
    name = f"{topic}-client"
    subscriber = connect(name, clean=False)
    subscriber.subscribe(topic, 1)
    subscriber.disconnect()
    publisher = connect()
    for number in range(5):
        publisher.publish(topic, b"%d" % number, 1)
    again = connect(name, clean=False)
    assert [message.payload for message in again.messages(5)] == [b"%d" % number for number in range(5)]


def test_nothing_comes_after_unsubscribing(connect: Connect, topic: str) -> None:
    subscriber, publisher = connect(), connect()
    subscriber.subscribe(f"{topic}/a", 1)
    subscriber.subscribe(f"{topic}/b", 1)
    subscriber.unsubscribe(f"{topic}/a")
    publisher.publish(f"{topic}/a", b"x", 1)
    publisher.publish(f"{topic}/b", b"y", 1)
    assert subscriber.message().payload == b"y"


def test_properties_arrive_as_they_were_sent(connect: Connect, topic: str, version: int) -> None:
    if version < 5:
        pytest.skip("MQTT 3.1.1 has no properties")
    said = Properties((("b", "2"), ("a", "1")), "text/plain", "answers/here", b"\x00\x01")
    subscriber, publisher = connect(), connect()
    subscriber.subscribe(topic, 1)
    publisher.publish(topic, b"x", 1, properties=said)
    assert subscriber.message().properties == said


def test_a_shared_subscription_deals_messages_out(connect: Connect, topic: str) -> None:
    members = [connect() for _ in range(2)]
    for member in members:
        member.subscribe(f"$share/group/{topic}/#", 1)
    publisher = connect()
    for number in range(20):
        publisher.publish(f"{topic}/a", b"%d" % number, 1)
    found = [member.messages(10) for member in members]
    assert Counter(int(m.payload) for part in found for m in part) == Counter(range(20))
