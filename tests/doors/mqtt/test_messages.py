"""Messages on their way from one client to another."""

import pytest

from fanlog.wire import mqtt_tables as tables
from fanlog.wire.mqtt import Ack, Publish

from .conftest import MakePeer

QOS = [(sent, wanted) for sent in (0, 1, 2) for wanted in (0, 1, 2)]


@pytest.mark.parametrize(("sent", "wanted"), QOS)
def test_a_message_arrives_with_the_lower_of_both_qualities(
    peer: MakePeer, name: str, version: int, sent: int, wanted: int
) -> None:
    subscriber, publisher = peer(version=version), peer(version=version)
    assert subscriber.subscribe(f"{name}/+", qos=wanted).reason_codes == bytes([wanted])
    assert publisher.publish(f"{name}/a", b"hello", sent) == 0
    message = subscriber.message()
    subscriber.acknowledge(message)
    assert (message.topic, message.payload, message.qos) == (f"{name}/a", b"hello", min(sent, wanted))
    assert (message.dup, message.retain) == (False, False)
    subscriber.silent()


def test_messages_of_one_address_keep_their_order_whatever_their_quality(peer: MakePeer, name: str) -> None:
    subscriber, publisher = peer(), peer()
    subscriber.subscribe(f"{name}/#", qos=2)
    for number in range(30):
        publisher.publish(f"{name}/a", b"%d" % number, number % 3)
    assert subscriber.payloads(30) == [b"%d" % number for number in range(30)]


def test_a_repeated_publish_of_qos_2_is_stored_once(peer: MakePeer, name: str, version: int) -> None:
    subscriber, publisher = peer(version=version), peer(version=version)
    subscriber.subscribe(name, qos=2)
    for dup in (False, True, True):
        publisher.send(Publish(name, b"once", 2, False, dup, 7))
        assert publisher.expect(Ack).kind == tables.PUBREC
    publisher.send(Ack(tables.PUBREL, 7))
    assert publisher.expect(Ack).kind == tables.PUBCOMP
    assert subscriber.payloads(1) == [b"once"]
    subscriber.silent()
    # The identifier is free again.
    publisher.send(Publish(name, b"twice", 2, False, False, 7))
    assert subscriber.payloads(1) == [b"twice"]


def test_a_pubrel_that_nobody_knows_is_answered(peer: MakePeer, version: int) -> None:
    client = peer(version=version)
    client.send(Ack(tables.PUBREL, 99))
    answer = client.expect(Ack)
    assert (answer.kind, answer.packet_id) == (tables.PUBCOMP, 99)
    assert answer.reason_code == (tables.PACKET_IDENTIFIER_NOT_FOUND if version == 5 else 0)


def test_a_pubrec_that_nobody_knows_is_answered(peer: MakePeer) -> None:
    client = peer()
    client.send(Ack(tables.PUBREC, 99))
    answer = client.expect(Ack)
    assert (answer.kind, answer.reason_code) == (tables.PUBREL, tables.PACKET_IDENTIFIER_NOT_FOUND)


@pytest.mark.parametrize("kind", [tables.PUBACK, tables.PUBREC])
def test_a_refused_message_is_done_with(peer: MakePeer, name: str, kind: int) -> None:
    subscriber, publisher = peer(properties={tables.RECEIVE_MAXIMUM: 1}), peer()
    qos = 1 if kind == tables.PUBACK else 2
    subscriber.subscribe(name, qos=qos)
    publisher.publish(name, b"bad", qos)
    publisher.publish(name, b"good", qos)
    refused = subscriber.message()
    subscriber.send(Ack(kind, refused.packet_id, tables.UNSPECIFIED_ERROR))
    assert subscriber.message().payload == b"good"


def test_an_answer_of_another_quality_of_service_ends_the_connection(peer: MakePeer, name: str) -> None:
    subscriber, publisher = peer(), peer()
    subscriber.subscribe(name, qos=2)
    publisher.publish(name, b"x", 2)
    subscriber.send(Ack(tables.PUBACK, subscriber.message().packet_id))
    assert subscriber.refused().reason_code == tables.PROTOCOL_FAULT


def test_acknowledgements_leave_in_the_order_of_the_publishes(peer: MakePeer, name: str) -> None:
    publisher = peer()
    publisher.send(*(Publish(f"{name}-{n % 3}", b"x", 1, n % 5 == 0, False, n + 1) for n in range(60)))
    assert [publisher.expect(Ack).packet_id for _ in range(60)] == list(range(1, 61))


def test_no_more_messages_are_on_their_way_than_the_client_wants(peer: MakePeer, name: str) -> None:
    subscriber, publisher = peer(properties={tables.RECEIVE_MAXIMUM: 3}), peer()
    subscriber.subscribe(name, qos=2)
    for number in range(10):
        publisher.publish(name, b"%d" % number, 1 + number % 2)
    first = subscriber.messages(3, acknowledge=False)
    subscriber.silent()
    for packet in first:
        subscriber.acknowledge(packet)
    payloads = [packet.payload for packet in first] + subscriber.payloads(7)
    assert payloads == [b"%d" % number for number in range(10)]


def test_a_client_that_exceeds_our_receive_maximum_is_cut_off(peer: MakePeer, name: str) -> None:
    publisher = peer(None)
    maximum = publisher.connect().properties[tables.RECEIVE_MAXIMUM]
    publisher.send(*(Publish(name, b"x", 2, False, False, n) for n in range(1, maximum + 2)))
    assert publisher.refused().reason_code == tables.RECEIVE_MAXIMUM_EXCEEDED


def test_a_message_that_is_too_long_for_a_client_is_left_out(peer: MakePeer, name: str) -> None:
    small, large = peer(properties={tables.MAXIMUM_PACKET_SIZE: 60}), peer()
    publisher = peer()
    for subscriber in (small, large):
        subscriber.subscribe(name, qos=1)
    for payload in (b"a", b"x" * 100, b"b"):
        publisher.publish(name, payload, 1)
    assert small.payloads(2) == [b"a", b"b"]
    assert len(large.payloads(3)) == 3
    # It does not count as being on its way.
    small.silent()


def test_a_packet_that_is_too_long_for_the_broker_ends_the_connection(peer: MakePeer, name: str) -> None:
    client = peer(None)
    most = client.connect().properties[tables.MAXIMUM_PACKET_SIZE]
    room = most - len(name) - 2 - 1 - 4
    client.publish(name, b"x" * room)
    client.silent()
    client.send(Publish(name, b"x" * (room + 1)))
    assert client.refused().reason_code == tables.PACKET_TOO_LARGE


def test_what_is_published_to_new_topics_keeps_its_order(peer: MakePeer, name: str) -> None:
    subscriber, publisher = peer(), peer()
    subscriber.subscribe("+/order", qos=1)
    topics = [f"{name}-{number % 4}/order" for number in range(12)]
    publisher.send(*(Publish(topic, b"%d" % n, 1, False, False, n + 1) for n, topic in enumerate(topics)))
    assert [publisher.expect(Ack).packet_id for _ in range(12)] == list(range(1, 13))
    arrived = [message for message in subscriber.messages(12) if message.topic.startswith(name)]
    for topic in set(topics):
        numbers = [int(message.payload) for message in arrived if message.topic == topic]
        assert numbers == [n for n, one in enumerate(topics) if one == topic]


def test_what_was_published_before_the_client_left_is_stored(peer: MakePeer, name: str, version: int) -> None:
    subscriber, publisher = peer(), peer(version=version)
    subscriber.subscribe(f"{name}/#", qos=1)
    # The topic has to be made first; nobody waits for that.
    publisher.send(Publish(f"{name}/a", b"1"), Publish(f"{name}/a", b"2", 1, False, False, 1))
    publisher.cut()
    assert subscriber.payloads(2) == [b"1", b"2"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_addresses_of_the_broker_cannot_be_published_to(
    peer: MakePeer, name: str, version: int, qos: int
) -> None:
    subscriber, publisher = peer(), peer(version=version)
    without_retained = 0x20 | qos
    subscriber.subscribe(("$x/#", qos), ("#", without_retained))
    expected = tables.TOPIC_NAME_INVALID if version == 5 and qos else 0
    assert publisher.publish(f"$x/{name}", b"x", qos) == expected
    publisher.silent()
    subscriber.silent()


def test_an_address_whose_topic_cannot_be_made_is_refused(peer: MakePeer, name: str) -> None:
    publisher = peer()
    assert publisher.publish("ö" * 200, b"x", 1) == tables.TOPIC_NAME_INVALID
    assert publisher.publish(name, b"x", 1) == 0
