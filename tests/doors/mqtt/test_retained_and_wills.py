"""Messages that are kept as the last of their address, and those that are published for the dead."""

import time

import pytest

from fanlog.testing import RunningBroker
from fanlog.wire import mqtt_tables as tables
from fanlog.wire.mqtt import NO_LOCAL, RETAIN_AS_PUBLISHED, Ack, Publish, Subscribe, Will
from support.process import wait_for

from .conftest import MakePeer

EXPIRY = tables.SESSION_EXPIRY_INTERVAL
IF_NEW, NEVER = 0x10, 0x20


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_retained_message_greets_new_subscriptions(
    peer: MakePeer, name: str, version: int, qos: int, running: RunningBroker
) -> None:
    publisher, subscriber = peer(version=version), peer(version=version)
    publisher.publish(f"{name}/a", b"old", qos, retain=True)
    publisher.publish(f"{name}/a", b"new", qos, retain=True)
    publisher.publish(f"{name}/b", b"not retained", qos)
    wait_for("it to be kept", lambda: _kept(running, f"{name}/a") == b"new")
    subscriber.subscribe(f"{name}/+", qos=2)
    message = subscriber.message()
    subscriber.acknowledge(message)
    assert (message.payload, message.retain, message.qos, message.dup) == (b"new", True, qos, False)
    subscriber.silent()


def _kept(running: RunningBroker, address: str) -> bytes | None:
    message = running.broker.retained.get(address)
    return None if message is None else message.value


def test_an_empty_message_removes_what_is_retained(peer: MakePeer, name: str, version: int) -> None:
    publisher, live = peer(version=version), peer(version=version)
    live.subscribe(name, qos=1)
    publisher.publish(name, b"kept", 1, retain=True)
    publisher.publish(name, b"", 1, retain=True)
    assert live.payloads(2) == [b"kept", b""]
    late = peer(version=version)
    late.subscribe(name, qos=1)
    late.silent()


def test_an_established_subscription_gets_it_as_any_other_message(peer: MakePeer, name: str) -> None:
    plain, as_published = peer(), peer()
    plain.subscribe(name, qos=1)
    as_published.subscribe((name, 1 | RETAIN_AS_PUBLISHED))
    publisher = peer()
    publisher.publish(name, b"x", 1, retain=True)
    publisher.publish(name, b"y", 1)
    assert [message.retain for message in plain.messages(2)] == [False, False]
    assert [message.retain for message in as_published.messages(2)] == [True, False]


@pytest.mark.parametrize(
    ("handling", "at_first", "again"), [(0, True, True), (IF_NEW, True, False), (NEVER, False, False)]
)
def test_retain_handling_says_when_retained_messages_are_sent(
    peer: MakePeer, name: str, handling: int, at_first: bool, again: bool
) -> None:
    publisher, subscriber = peer(), peer()
    publisher.publish(name, b"x", 1, retain=True)
    for expected in (at_first, again):
        subscriber.subscribe((name, 1 | handling))
        if expected:
            message = subscriber.message()
            subscriber.acknowledge(message)
            assert message.retain
        subscriber.silent()


def test_subscribing_again_sends_retained_messages_again_in_3_1_1(peer: MakePeer, name: str) -> None:
    publisher, subscriber = peer(version=4), peer(version=4)
    publisher.publish(name, b"x", 1, retain=True)
    for _ in range(2):
        subscriber.subscribe(name)
        assert subscriber.message().retain


def test_many_retained_messages_come_as_fast_as_the_client_takes_them(peer: MakePeer, name: str) -> None:
    publisher, subscriber = peer(), peer(properties={tables.RECEIVE_MAXIMUM: 5})
    for number in range(40):
        publisher.publish(f"{name}/{number}", b"%d" % number, 1, retain=True)
    subscriber.subscribe(f"{name}/+", qos=1)
    first = subscriber.messages(5, acknowledge=False)
    subscriber.silent()
    for packet in first:
        subscriber.acknowledge(packet)
    rest = subscriber.messages(35)
    assert {int(message.payload) for message in first + rest} == set(range(40))
    subscriber.silent()


def test_publish_and_subscribe_in_one_go_gives_one_message(peer: MakePeer, name: str) -> None:
    client = peer()
    client.publish(name, b"make the topic", 1)
    client.send(Publish(name, b"x", 1, True, False, 9), Subscribe(10, [(name, 1)]))
    assert client.payloads(1) == [b"x"]
    assert client.expect(Ack).packet_id == 9
    client.arrived.clear()
    client.silent()


def test_retained_messages_expire(peer: MakePeer, name: str, running: RunningBroker) -> None:
    publisher = peer()
    publisher.publish(f"{name}/short", b"x", 1, True, {tables.MESSAGE_EXPIRY_INTERVAL: 1})
    publisher.publish(f"{name}/long", b"y", 1, True, {tables.MESSAGE_EXPIRY_INTERVAL: 100})
    early = peer()
    early.subscribe(f"{name}/+")
    assert len(early.payloads(2)) == 2
    wait_for("its time to be over", lambda: _kept(running, f"{name}/short") is None)
    late = peer()
    late.subscribe(f"{name}/+")
    message = late.message()
    assert message.payload == b"y"
    assert 95 <= message.properties[tables.MESSAGE_EXPIRY_INTERVAL] <= 99
    late.silent()


def test_no_local_holds_for_retained_messages_too(peer: MakePeer, name: str) -> None:
    client, other = peer(name), peer()
    client.subscribe((f"{name}/other", NO_LOCAL))
    client.publish(f"{name}/x", b"mine", 1, retain=True)
    client.subscribe((f"{name}/x", NO_LOCAL))
    client.silent()
    other.subscribe(f"{name}/x")
    assert other.payloads(1) == [b"mine"]


# --- wills --------------------------------------------------------------------------------------------------


def test_a_will_is_published_when_the_connection_breaks(peer: MakePeer, name: str, version: int) -> None:
    watcher = peer()
    watcher.subscribe(f"{name}/#", qos=2)
    client = peer(version=version, will=Will(f"{name}/will", b"gone", 2, True))
    client.cut()
    message = watcher.message()
    watcher.acknowledge(message)
    assert (message.topic, message.payload, message.qos, message.retain) == (
        f"{name}/will",
        b"gone",
        2,
        False,
    )
    late = peer()
    late.subscribe(f"{name}/will")
    assert late.message().retain


def test_a_will_is_forgotten_by_a_proper_disconnect(peer: MakePeer, name: str, version: int) -> None:
    watcher = peer()
    watcher.subscribe(name)
    client = peer(version=version, will=Will(name, b"gone"))
    client.disconnect()
    watcher.silent()


def test_a_client_may_leave_with_its_will(peer: MakePeer, name: str) -> None:
    watcher = peer()
    watcher.subscribe(name)
    peer(will=Will(name, b"gone")).disconnect(tables.DISCONNECT_WITH_WILL)
    assert watcher.payloads(1) == [b"gone"]


def test_a_will_is_published_after_a_fault(peer: MakePeer, name: str, version: int) -> None:
    watcher = peer()
    watcher.subscribe(name)
    client = peer(version=version, will=Will(name, b"gone"))
    client.raw(b"\x00\x00")
    client.closed()
    assert watcher.payloads(1) == [b"gone"]


def test_a_will_is_published_after_silence(peer: MakePeer, name: str) -> None:
    watcher = peer()
    watcher.subscribe(name)
    peer(will=Will(name, b"gone"), keep_alive_s=1)
    assert watcher.payloads(1) == [b"gone"]


def test_a_will_is_published_when_another_takes_the_session(peer: MakePeer, name: str) -> None:
    watcher = peer()
    watcher.subscribe(f"{name}/will")
    peer(name, will=Will(f"{name}/will", b"gone"))
    peer(name)
    assert watcher.payloads(1) == [b"gone"]


def test_a_delayed_will_waits(peer: MakePeer, name: str) -> None:
    watcher = peer()
    watcher.subscribe(f"{name}/will")
    will = Will(f"{name}/will", b"gone", properties={tables.WILL_DELAY_INTERVAL: 1})
    client = peer(name, will=will, properties={EXPIRY: 60})
    begun = time.monotonic()
    client.cut()
    assert watcher.payloads(1) == [b"gone"]
    assert 0.9 <= time.monotonic() - begun < 5


def test_a_delayed_will_is_forgotten_if_the_client_comes_back(
    peer: MakePeer, name: str, running: RunningBroker
) -> None:
    watcher = peer()
    watcher.subscribe(f"{name}/will")
    will = Will(f"{name}/will", b"gone", properties={tables.WILL_DELAY_INTERVAL: 1})
    peer(name, will=will, properties={EXPIRY: 60}).cut()
    sessions = running.broker.mqtt.sessions
    wait_for("the broker to see it", lambda: sessions[name].connection is None)
    back = peer(name, clean=False, properties={EXPIRY: 60})
    # The same delay again, by another client, passes after the first would have.
    other = Will(f"{name}/will", b"other", properties={tables.WILL_DELAY_INTERVAL: 1})
    peer(f"{name}-other", will=other, properties={EXPIRY: 60}).cut()
    assert watcher.payloads(1) == [b"other"]
    back.silent()


def test_a_delayed_will_is_published_with_the_end_of_the_session(peer: MakePeer, name: str) -> None:
    watcher = peer()
    watcher.subscribe(f"{name}/will")
    will = Will(f"{name}/will", b"gone", properties={tables.WILL_DELAY_INTERVAL: 1000})
    peer(name, will=will, properties={EXPIRY: 1}).cut()
    assert watcher.payloads(1) == [b"gone"]
    peer(name, will=will, properties={EXPIRY: 1000}).cut()
    peer(name, clean=True)
    assert watcher.payloads(1) == [b"gone"]


def test_a_will_has_its_properties(peer: MakePeer, name: str) -> None:
    said = {
        tables.CONTENT_TYPE: "text/plain",
        tables.RESPONSE_TOPIC: "answers/here",
        tables.CORRELATION_DATA: b"\x00\x01",
        tables.PAYLOAD_FORMAT_INDICATOR: 1,
        tables.USER_PROPERTY: [("b", "2"), ("a", "1")],
    }
    watcher = peer()
    watcher.subscribe(name)
    peer(will=Will(name, b"gone", properties=dict(said))).cut()
    assert watcher.message().properties == said


def test_a_will_that_is_not_the_text_it_says_is_refused(peer: MakePeer, name: str) -> None:
    will = Will(name, b"\xff", properties={tables.PAYLOAD_FORMAT_INDICATOR: 1})
    client = peer(None)
    assert client.connect(will=will).reason_code == tables.PAYLOAD_FORMAT_INVALID
    client.closed()
