"""SUBSCRIBE and UNSUBSCRIBE: what a filter covers, and the options of a subscription."""

import asyncio

import pytest

from fanlog.testing import RunningBroker
from fanlog.wire import mqtt_tables as tables
from fanlog.wire.mqtt import NO_LOCAL, Subscribe, encode_subscribe
from fanlog.wire.records import Message

from .conftest import MakePeer

EXPIRY = tables.SESSION_EXPIRY_INTERVAL
IDENTIFIER = tables.SUBSCRIPTION_IDENTIFIER


@pytest.mark.parametrize(
    ("filter", "addresses"),
    [
        ("{}/a/b", {"a/b"}),
        ("{}/+/b", {"a/b", "/b"}),
        ("{}/a/+", {"a/b", "a/"}),
        ("{}/a/#", {"a", "a/", "a/b", "a/b/c"}),
        ("{}/+", {"a", ""}),
        ("{}/#", {"a", "a/", "a/b", "a/b/c", "/b", ""}),
        ("+/a/b", {"a/b"}),
        ("+/+/+", {"a/b", "a/", "/b"}),
    ],
)
def test_wildcards_cover_levels(
    peer: MakePeer, name: str, version: int, filter: str, addresses: set[str]
) -> None:
    subscriber, publisher = peer(version=version), peer()
    subscriber.subscribe(filter.format(name), qos=1)
    for rest in ("a", "a/", "a/b", "a/b/c", "/b", ""):
        publisher.publish(f"{name}/{rest}", b"x", 1)
    found = {message.topic for message in subscriber.messages(len(addresses))}
    assert found == {f"{name}/{rest}" for rest in addresses}
    subscriber.silent()


def test_a_topic_without_further_levels_is_an_address(peer: MakePeer, name: str) -> None:
    subscriber, publisher = peer(), peer()
    subscriber.subscribe(f"{name}/#")
    publisher.publish(name, b"x")
    publisher.publish(f"/{name}", b"not mine")
    assert subscriber.message().topic == name
    subscriber.silent()
    subscriber.subscribe(f"/{name}")
    publisher.publish(f"/{name}", b"y")
    assert subscriber.message().topic == f"/{name}"


def test_wildcards_at_the_start_do_not_cover_the_brokers_addresses(
    peer: MakePeer, running: RunningBroker
) -> None:
    everything, theirs = peer(), peer()
    everything.subscribe(("#", 0x20), ("+/x", 0x20))
    theirs.subscribe("$mine/#")
    message = Message("$mine/x", None, b"x", b"\x00")
    running.loop.call_soon_threadsafe(running.broker.router.announce, [message])
    assert theirs.message().topic == "$mine/x"
    everything.silent()


@pytest.mark.parametrize("filter", ["a/#/b", "a#", "a+/b", "", "#/a"])
def test_invalid_filters_are_refused(peer: MakePeer, version: int, filter: str) -> None:
    client = peer(version=version)
    client.raw(encode_subscribe(version, 1, [(filter, 0)]))
    said = [packet.reason_code for packet in client.closed()]
    assert said == ([tables.TOPIC_FILTER_INVALID] if version == 5 else [])


def test_every_filter_has_its_answer(peer: MakePeer, name: str, version: int) -> None:
    client = peer(version=version)
    assert (
        client.subscribe((f"{name}/0", 0), (f"{name}/1", 1), (f"{name}/2", 2)).reason_codes == b"\x00\x01\x02"
    )
    answer = client.unsubscribe(f"{name}/1", f"{name}/nothing", f"{name}/0")
    expected = bytes([0, tables.NO_SUBSCRIPTION_EXISTED, 0])
    assert answer.reason_codes == (expected if version == 5 else b"")


def test_nothing_comes_after_unsuback(peer: MakePeer, name: str) -> None:
    subscriber, publisher = peer(), peer()
    subscriber.subscribe(name, qos=1)
    publisher.publish(name, b"before", 1)
    subscriber.payloads(1)
    subscriber.unsubscribe(name)
    publisher.publish(name, b"behind", 1)
    subscriber.silent()


def test_what_is_in_flight_is_completed_after_unsubscribing(peer: MakePeer, name: str) -> None:
    keeping = {"clean": False, "properties": {EXPIRY: 60}}
    subscriber, publisher = peer(name, **keeping), peer()
    subscriber.subscribe(f"{name}/x", qos=2)
    publisher.publish(f"{name}/x", b"in flight", 2)
    first = subscriber.message()
    subscriber.unsubscribe(f"{name}/x")
    subscriber.cut()
    again = peer(name, **keeping)
    message = again.message()
    assert (message.packet_id, message.dup, message.qos) == (first.packet_id, True, 2)
    again.acknowledge(message)
    again.silent()


def test_who_is_behind_and_unsubscribes_gets_nothing_more(peer: MakePeer, name: str) -> None:
    subscriber, publisher = peer(properties={tables.RECEIVE_MAXIMUM: 1}), peer()
    subscriber.subscribe(name, qos=1)
    for number in range(5):
        publisher.publish(name, b"%d" % number, 1)
    first = subscriber.message()
    subscriber.unsubscribe(name)
    subscriber.acknowledge(first)
    publisher.publish(name, b"later", 1)
    subscriber.silent()


def test_subscribing_again_changes_the_options_and_misses_nothing(peer: MakePeer, name: str) -> None:
    subscriber, publisher = peer(), peer()
    subscriber.subscribe(name, qos=0)
    publisher.publish(name, b"1", 2)
    subscriber.subscribe(name, qos=2)
    publisher.publish(name, b"2", 2)
    first, second = subscriber.messages(2)
    assert (first.qos, second.qos) == (0, 2)
    subscriber.silent()


def test_overlapping_subscriptions_send_a_message_once_for_all(peer: MakePeer, name: str) -> None:
    subscriber, publisher = peer(), peer()
    subscriber.subscribe((f"{name}/a", 0), properties={IDENTIFIER: [2]})
    subscriber.subscribe((f"{name}/#", 2), properties={IDENTIFIER: [3]})
    subscriber.subscribe((f"{name}/+/c", 1), properties={IDENTIFIER: [4]})
    publisher.publish(f"{name}/a", b"x", 1)
    publisher.publish(f"{name}/b/c", b"y", 2)
    publisher.publish(f"{name}/d", b"z", 2)
    found = [
        (message.payload, message.qos, sorted(message.properties[IDENTIFIER]))
        for message in subscriber.messages(3)
    ]
    assert found == [(b"x", 1, [2, 3]), (b"y", 2, [3, 4]), (b"z", 2, [3])]
    subscriber.silent()


def test_an_overlap_ends_with_one_of_the_subscriptions(peer: MakePeer, name: str, version: int) -> None:
    subscriber, publisher = peer(version=version), peer()
    subscriber.subscribe((f"{name}/#", 0), (f"{name}/a", 1), (f"{name}/b", 1))
    publisher.publish(f"{name}/a", b"1", 1)
    subscriber.unsubscribe(f"{name}/#")
    publisher.publish(f"{name}/a", b"2", 1)
    publisher.publish(f"{name}/b", b"3", 1)
    publisher.publish(f"{name}/c", b"4", 1)
    assert [(message.payload, message.qos) for message in subscriber.messages(3)] == [
        (b"1", 1),
        (b"2", 1),
        (b"3", 1),
    ]
    subscriber.silent()


def test_overlapping_subscriptions_lose_nothing_when_the_client_is_slow(peer: MakePeer, name: str) -> None:
    subscriber, publisher = peer(properties={tables.RECEIVE_MAXIMUM: 2}), peer()
    subscriber.subscribe((f"{name}/a", 1), (f"{name}/#", 1), (f"{name}/+", 1))
    addresses = ["a", "b", "a", "c/d", "b", "a"] * 10
    for number, address in enumerate(addresses):
        publisher.publish(f"{name}/{address}", b"%d" % number, 1)
    found = subscriber.messages(len(addresses))
    subscriber.silent()
    for address in set(addresses):
        numbers = [int(message.payload) for message in found if message.topic == f"{name}/{address}"]
        assert numbers == [n for n, one in enumerate(addresses) if one == address]


def test_overlapping_subscriptions_of_a_session_that_was_away(peer: MakePeer, name: str) -> None:
    keeping = {"clean": False, "properties": {EXPIRY: 60}}
    subscriber, publisher = peer(name, **keeping), peer()
    subscriber.subscribe((f"{name}/a", 1), (f"{name}/#", 2))
    subscriber.disconnect()
    for number in range(5):
        publisher.publish(f"{name}/a", b"%d" % number, 2)
    again = peer(name, **keeping)
    assert again.payloads(5) == [b"%d" % number for number in range(5)]
    again.silent()


def test_no_local_keeps_a_clients_messages_from_it(peer: MakePeer, name: str) -> None:
    keeping = {"clean": False, "properties": {EXPIRY: 60}}
    client, other = peer(name, **keeping), peer()
    client.subscribe((f"{name}/x", 1 | NO_LOCAL))
    other.subscribe(f"{name}/x")
    client.publish(f"{name}/x", b"mine", 1)
    other.publish(f"{name}/x", b"theirs", 1)
    assert client.payloads(1) == [b"theirs"]
    client.silent()
    assert other.payloads(2) == [b"mine", b"theirs"]
    # Also what it reads later from the log, over another connection.
    client.publish(f"{name}/x", b"mine again", 1)
    client.disconnect()
    other.publish(f"{name}/x", b"while away", 1)
    again = peer(name, **keeping)
    assert again.payloads(1) == [b"while away"]
    again.silent()


def test_identifiers_of_a_growing_topic_do_not_collide(
    peer: MakePeer, name: str, running: RunningBroker
) -> None:
    """Identifiers come from the offsets while there is one partition, and not when there are two."""
    subscriber, publisher = peer(), peer()
    subscriber.subscribe(f"{name}/#", qos=1)
    publisher.publish(f"{name}/a", b"0", 1)
    publisher.publish(f"{name}/a", b"1", 1)
    unacknowledged = subscriber.messages(2, acknowledge=False)
    growing = running.broker.catalog.grow(name, 3)
    asyncio.run_coroutine_threadsafe(growing, running.loop).result(10)
    for number in range(2, 30):
        publisher.publish(f"{name}/{number}", b"%d" % number, 1)
    unacknowledged += subscriber.messages(28, acknowledge=False)
    assert len({message.packet_id for message in unacknowledged}) == 30
    assert sorted(int(message.payload) for message in unacknowledged) == list(range(30))


def test_a_subscription_outlives_its_topic(peer: MakePeer, name: str, running: RunningBroker) -> None:
    subscriber, publisher = peer(), peer()
    subscriber.subscribe(f"{name}/#", qos=1)
    for number in range(3):
        publisher.publish(f"{name}/a", b"%d" % number, 1)
    in_flight = subscriber.messages(3, acknowledge=False)
    asyncio.run_coroutine_threadsafe(running.broker.delete_topic(name), running.loop).result(10)
    for number in range(3, 6):
        publisher.publish(f"{name}/a", b"%d" % number, 1)
    later = subscriber.messages(3, acknowledge=False)
    assert [message.payload for message in in_flight + later] == [b"%d" % number for number in range(6)]
    assert len({message.packet_id for message in in_flight + later}) == 6
    for message in in_flight + later:
        subscriber.acknowledge(message)
    subscriber.silent()


def test_many_filters_in_one_packet(peer: MakePeer, name: str) -> None:
    subscriber, publisher = peer(), peer()
    packet = Subscribe(1, [(f"{name}/{number}", number % 3) for number in range(300)])
    subscriber.send(packet)
    publisher.publish(f"{name}/299", b"x", 2)
    publisher.publish(f"{name}/7", b"y", 2)
    assert [(message.topic, message.qos) for message in subscriber.messages(2)] == [
        (f"{name}/299", 2),
        (f"{name}/7", 1),
    ]
    assert subscriber.unsubscribe(*(f"{name}/{number}" for number in range(300))).reason_codes == bytes(300)
    publisher.publish(f"{name}/7", b"y", 2)
    subscriber.arrived.clear()
    subscriber.silent()
