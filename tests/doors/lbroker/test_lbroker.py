"""The lbroker door, through its socket and beside the other doors."""

import contextlib
import json
from collections.abc import Iterator

import msgpack
import paho.mqtt.client as paho
import pytest
from confluent_kafka import Consumer, Producer

from fanlog.testing import RunningBroker, running_broker
from support.process import wait_for

from .client import Client


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(topics_durability="os") as running:
        yield running


def test_a_message_reaches_those_whose_pattern_covers_its_topic(broker: RunningBroker) -> None:
    with Client(broker.lbroker) as one, Client(broker.lbroker) as two, Client(broker.lbroker) as publisher:
        one.subscribe("plain/*/temp")
        two.subscribe("plain/?/temp", "plain/end")
        one.settled()
        two.settled()
        publisher.publish(("plain/a/temp", {"Foo": 0.5}), ("plain/long/temp", [1, None]), ("plain/end", True))
        assert [one.receive(), one.receive()] == [
            ["plain/a/temp", {"Foo": 0.5}],
            ["plain/long/temp", [1, None]],
        ]
        assert [two.receive(), two.receive()] == [["plain/a/temp", {"Foo": 0.5}], ["plain/end", True]]


def test_a_subscriber_gets_every_message_of_a_topic_that_came_after_it(broker: RunningBroker) -> None:
    with Client(broker.lbroker) as subscriber, Client(broker.lbroker) as publisher:
        subscriber.subscribe("fresh-*")
        subscriber.settled()
        publisher.publish(*[(f"fresh-{topic}/x", number) for number in range(50) for topic in "ab"])
        found = [subscriber.receive() for _ in range(100)]
        for topic in "ab":
            assert [value for name, value in found if name == f"fresh-{topic}/x"] == list(range(50))


def test_topics_match_by_character(broker: RunningBroker) -> None:
    with Client(broker.lbroker) as subscriber, Client(broker.lbroker) as publisher:
        subscriber.subscribe("caf?/温?")
        subscriber.settled()
        publisher.publish(("café/温", 0), ("café/温度", "ü"))
        assert subscriber.receive() == ["café/温度", "ü"]


def test_a_new_subscriber_gets_the_last_message_of_each_topic_once(broker: RunningBroker) -> None:
    with Client(broker.lbroker) as publisher, Client(broker.lbroker) as watcher:
        watcher.subscribe("last/*")
        watcher.settled()
        publisher.publish(("last/a", 1), ("last/a", 2), ("last/b", 3))
        assert [watcher.receive()[1] for _ in range(3)] == [1, 2, 3]
        with Client(broker.lbroker) as subscriber:
            subscriber.subscribe("last/a", "last/*")
            subscriber.subscribe("last/*", "last/?")
            found = sorted(subscriber.receive() for _ in range(2))
            assert found == [["last/a", 2], ["last/b", 3]]
            publisher.publish(("last/a", 4), ("last/end", 5))
            # Several patterns cover it, and it comes once.
            assert [one[1] for one in subscriber.receive_until("last/end")][-1] == 4


def test_nobody_hears_themselves(broker: RunningBroker) -> None:
    with Client(broker.lbroker) as one, Client(broker.lbroker) as two:
        one.subscribe("talk/*")
        two.subscribe("talk/*")
        one.settled()
        two.settled()
        one.publish(("talk/x", "one"))
        assert two.receive() == ["talk/x", "one"]
        two.publish(("talk/x", "two"))
        assert one.receive() == ["talk/x", "two"]
        # Not as a last message either.
        two.subscribe("talk/?")
        one.publish(("talk/end", 0))
        assert two.receive_until("talk/end") == []


def test_who_unsubscribes_hears_no_more(broker: RunningBroker) -> None:
    with Client(broker.lbroker) as subscriber, Client(broker.lbroker) as publisher:
        subscriber.subscribe("off/*", "sign")
        subscriber.unsubscribe("off/*")
        subscriber.settled()
        publisher.publish(("off/x", 1), ("sign", 2))
        assert subscriber.receive_until("sign") == []


def test_a_publisher_may_leave_at_once(broker: RunningBroker) -> None:
    with Client(broker.lbroker) as subscriber:
        subscriber.subscribe("leaving-*")
        subscriber.settled()
        with Client(broker.lbroker) as publisher:
            publisher.publish(*[(f"leaving-{number}", number) for number in range(20)])
        assert sorted(subscriber.receive()[1] for _ in range(20)) == list(range(20))


def assert_cut_off(broker: RunningBroker, data: bytes) -> None:
    with Client(broker.lbroker) as client:
        with contextlib.suppress(ConnectionError):
            client.socket.sendall(data)
        with pytest.raises(ConnectionError):
            client.receive()


def test_nonsense_costs_only_the_connection_it_came_on(broker: RunningBroker) -> None:
    frame_bytes_max = broker.broker.settings.limits.lbroker_frame_bytes_max
    with Client(broker.lbroker) as bystander:
        bystander.subscribe("calm/*")
        bystander.settled()
        for nonsense in (b"\xc1", msgpack.packb({"Publish": 7})):
            assert_cut_off(broker, nonsense)
        # It says that four gigabytes will follow: it is cut off at the limit of a frame.
        assert_cut_off(broker, b"\xc6\xff\xff\xff\xff" + b"x" * 2 * frame_bytes_max)
        with Client(broker.lbroker) as publisher:
            publisher.publish(("$SYS/x", 1), ("calm/+", 1), ("calm/x", 2))
        assert bystander.receive() == ["calm/x", 2]


def test_a_client_that_does_not_read_skips_to_the_newest_and_delays_nobody() -> None:
    with (
        running_broker(topics_durability="memory", limits_lbroker_write_buffer_bytes_max=20_000) as broker,
        Client(broker.lbroker, receive_bytes=4096) as slow,
        Client(broker.lbroker) as quick,
        Client(broker.lbroker) as publisher,
    ):
        slow.subscribe("load/*")
        slow.settled()
        quick.subscribe("load/*")
        quick.settled()
        number = 0
        while not broker.broker.lbroker.skipped and number < 200_000:
            publisher.publish(*[(f"load/{topic}", [number, b"x" * 1000]) for topic in "ab"])
            quick.receive()
            assert quick.receive()[1][0] == number
            number += 1
        assert broker.broker.lbroker.skipped
        for _ in range(100):
            publisher.publish(*[(f"load/{topic}", [number, b"x" * 1000]) for topic in "ab"])
            quick.receive()
            assert quick.receive()[1][0] == number
            number += 1
        # Nothing more is published: the newest of both topics arrive all the same.
        seen: dict[str, list[int]] = {"load/a": [], "load/b": []}
        while not all(numbers and numbers[-1] == number - 1 for numbers in seen.values()):
            topic, (value, _) = slow.receive()
            seen[topic].append(value)
        for numbers in seen.values():
            assert numbers == sorted(set(numbers))
            assert len(numbers) < number


def test_lbroker_mqtt_and_kafka_share_topics(broker: RunningBroker) -> None:
    host, port = broker.mqtt.split(":")
    got: list[tuple[str, bytes]] = []
    device = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    subscribed: list[object] = []
    device.on_message = lambda client, data, message: got.append((message.topic, message.payload))
    device.on_subscribe = lambda *rest: subscribed.append(rest)
    device.connect(host, int(port))
    device.loop_start()
    try:
        device.subscribe("shared/#", 1)
        wait_for("SUBACK", lambda: subscribed)
        with Client(broker.lbroker) as client:
            client.subscribe("shared/*")
            client.settled()
            client.publish(("shared/a/b", {"x": [1, 2]}))
            wait_for("the message at the device", lambda: got)
            assert got == [("shared/a/b", msgpack.packb({"x": [1, 2]}))]

            device.publish("shared/text", "grüße", qos=1)
            assert client.receive() == ["shared/text", "grüße"]
            device.publish("shared/bytes", b"\xff\x00", qos=0)
            assert client.receive() == ["shared/bytes", b"\xff\x00"]
            producer = Producer({"bootstrap.servers": broker.kafka})
            for kind, value in (
                ("application/json; charset=utf-8", json.dumps({"t": 20.5, "ok": True}).encode()),
                ("application/msgpack", msgpack.packb([1, "z"])),
                ("application/msgpack", b"\xc1 not msgpack"),
            ):
                producer.produce("shared", value, key="key", headers={"content-type": kind.encode()})
                producer.flush(10)
            assert client.receive() == ["shared/key", {"t": 20.5, "ok": True}]
            assert client.receive() == ["shared/key", [1, "z"]]
            assert client.receive() == ["shared/key", b"\xc1 not msgpack"]
    finally:
        device.disconnect()
        device.loop_stop()
    consumer = Consumer(
        {"bootstrap.servers": broker.kafka, "group.id": "lb", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["shared"])
    record = consumer.poll(10)
    consumer.close()
    assert record is not None
    assert (record.key(), record.value()) == (b"a/b", msgpack.packb({"x": [1, 2]}))
    assert ("content-type", b"application/msgpack") in record.headers()


def test_last_messages_are_known_after_a_restart(tmp_path) -> None:
    with running_broker(data=tmp_path) as broker, Client(broker.lbroker) as client:
        client.publish(*[(f"kept/{topic}", number) for number in range(100) for topic in "ab"])
        client.settled()
    with running_broker(data=tmp_path) as broker, Client(broker.lbroker) as client:
        client.subscribe("kept/*")
        assert sorted(client.receive() for _ in range(2)) == [["kept/a", 99], ["kept/b", 99]]


def test_last_messages_have_a_limit() -> None:
    with (
        running_broker(topics_durability="os", limits_lbroker_topics_max=3) as broker,
        Client(broker.lbroker) as publisher,
        Client(broker.lbroker) as watcher,
    ):
        watcher.subscribe("many/*")
        watcher.settled()
        publisher.publish(*[(f"many/{number}", number) for number in range(10)])
        assert [watcher.receive()[1] for _ in range(10)] == list(range(10))
        with Client(broker.lbroker) as subscriber:
            subscriber.subscribe("*")
            assert [subscriber.receive()[1] for _ in range(3)] == [7, 8, 9]


def test_channels_go_with_their_last_member(broker: RunningBroker) -> None:
    door = broker.broker.lbroker
    with Client(broker.lbroker) as client:
        client.subscribe("going/*")
        client.settled()
        assert "going/*" in door.globs._channels
    wait_for("the channel to go", lambda: "going/*" not in door.globs._channels)


def test_patterns_have_a_limit() -> None:
    with running_broker(limits_lbroker_patterns_max=2) as broker, Client(broker.lbroker) as client:
        client.subscribe("a", "b", "a")
        client.publish(("c", 1))
        client.subscribe("c")
        with pytest.raises(ConnectionError):
            client.receive()


def test_a_half_sent_command_is_not_waited_for_without_end() -> None:
    with running_broker(limits_frame_seconds_max=1) as broker, Client(broker.lbroker) as client:
        client.socket.sendall(b"\x81\xa9Subsc")
        with pytest.raises(ConnectionError):
            client.receive()
