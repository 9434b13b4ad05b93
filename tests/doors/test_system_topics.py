"""What the broker says of itself below $SYS."""

import json
import logging
import socket
from collections.abc import Iterator

import paho.mqtt.client as paho
import pytest

from fanlog.testing import RunningBroker, running_broker
from fanlog.wire import mqtt_tables as mqtt
from fanlog.wire.mqtt import Connect, encode_connect, encode_publish, encode_subscribe
from support.process import wait_for


class Device:
    """A paho client that remembers what it got: topic, payload, whether it was retained."""

    def __init__(self, broker: RunningBroker, *filters: str, client_id: str = "") -> None:
        self.got: list[tuple[str, bytes, bool]] = []
        self._subscribed = 0
        host, port = broker.mqtt.split(":")
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5, client_id=client_id)
        self.client.on_message = self._on_message
        self.client.on_subscribe = self._on_subscribe
        self.client.connect(host, int(port))
        self.client.loop_start()
        for filter in filters:
            self.client.subscribe(filter, 1)
        wait_for("SUBACK", lambda: self._subscribed == len(filters))

    def _on_message(self, client: object, data: object, message: paho.MQTTMessage) -> None:
        self.got.append((message.topic, message.payload, message.retain))

    def _on_subscribe(self, *rest: object) -> None:
        self._subscribed += 1

    def last(self, topic: str, *, retained: bool | None = None) -> str | None:
        for name, payload, was_retained in reversed(self.got):
            if name == topic and retained in (None, was_retained):
                return payload.decode()
        return None

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(topics_durability="os", statistics_interval_s=1) as running:
        yield running


def test_a_newcomer_is_greeted_with_every_statistic(broker: RunningBroker) -> None:
    with Device(broker, "$SYS/#") as device:
        expected = {
            "$SYS/broker/version",
            "$SYS/broker/uptime",
            "$SYS/broker/clients/connected",
            "$SYS/broker/clients/total",
            "$SYS/broker/clients/maximum",
            "$SYS/broker/messages/received",
            "$SYS/broker/messages/sent",
            "$SYS/broker/bytes/received",
            "$SYS/broker/bytes/sent",
            "$SYS/broker/publish/messages/received",
            "$SYS/broker/publish/messages/sent",
            "$SYS/broker/subscriptions/count",
            "$SYS/broker/retained messages/count",
            "$SYS/fanlog/commands_per_second",
            "$SYS/fanlog/messages_sent_per_second",
        } | {
            f"$SYS/broker/load/{name}/{minutes}min"
            for name in ("messages/received", "messages/sent", "bytes/received", "publish/sent", "sockets")
            for minutes in (1, 5, 15)
        }
        wait_for("the greeting", lambda: expected <= {topic for topic, _, retained in device.got if retained})
        assert device.last("$SYS/broker/version", retained=True) == "fanlog 0.1.0"
        # Then the changes come, and are not retained messages.
        wait_for("a second", lambda: device.last("$SYS/broker/uptime", retained=False))


def test_wildcards_and_the_log_do_not_cover_it(broker: RunningBroker) -> None:
    with Device(broker, "#", "+/broker/uptime", "$SYS/broker/uptime") as device:
        wait_for("two uptimes", lambda: len(device.got) >= 2)
        assert {topic for topic, _, _ in device.got} == {"$SYS/broker/uptime"}
    assert not any("SYS" in name for name in broker.broker.catalog.topics)


def test_traffic_is_counted_and_the_fan_out_of_a_topic_told() -> None:
    with running_broker(topics_durability="os", statistics_interval_s=1) as broker:
        filters = ("$SYS/broker/#", "$SYS/fanlog/topics/#")
        with Device(broker, *filters) as watcher, Device(broker, "spread/#") as one:
            with Device(broker, "spread/#") as two, Device(broker) as publisher:
                for _ in range(50):
                    publisher.client.publish("spread/x", b"x" * 100, qos=1)
                wait_for("the messages", lambda: len(one.got) == 50 and len(two.got) == 50)
                wait_for("the fan-out", lambda: watcher.last("$SYS/fanlog/topics/spread/fanout") == "2.00")

                def counted(name: str) -> float:
                    return float(watcher.last(f"$SYS/broker/{name}") or 0)

                wait_for("the count", lambda: counted("publish/messages/received") == 50)
                wait_for("what was sent", lambda: counted("publish/messages/sent") >= 100)
                wait_for("the clients", lambda: counted("clients/connected") == 4)
                assert counted("bytes/sent") >= 100 * 100
                assert counted("bytes/received") >= 50 * 100
                assert counted("subscriptions/count") == 4
                assert counted("load/publish/received/1min") > 0
            wait_for("two to leave", lambda: counted("clients/connected") == 2)
            assert counted("clients/maximum") == 4


def test_nobody_may_write_there(broker: RunningBroker) -> None:
    with Device(broker, "$SYS/broker/version") as device:
        wait_for("the version", lambda: device.got)
        device.client.publish("$SYS/broker/version", "mine", qos=0)
        refused: list[bool] = []
        device.client.on_publish = lambda *rest: refused.append(rest[3].is_failure)
        device.client.publish("$SYS/broker/version", "mine", qos=1)
        wait_for("the refusal", lambda: True in refused)
        assert [payload for _, payload, _ in device.got] == [b"fanlog 0.1.0"]


def test_a_slow_client_is_named_with_its_lag_and_when_it_has_caught_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="fanlog.router.slow")
    with (
        running_broker(topics_durability="memory") as broker,
        Device(broker, "$SYS/fanlog/slow/#") as watcher,
    ):
        host, port = broker.mqtt.split(":")
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(10)
        slow.connect((host, int(port)))
        with slow, Device(broker, client_id="quick") as publisher:
            slow.sendall(encode_connect(Connect(mqtt.V311, "sloth")))
            assert slow.recv(4) == b"\x20\x02\x00\x00"
            slow.sendall(encode_subscribe(mqtt.V311, 1, [("flood/#", 0)]))
            assert slow.recv(5) == b"\x90\x03\x00\x01\x00"
            frame_bytes = len(encode_publish(b"flood/x", bytes(10_000), 0, False, False, 0, None))
            sent = 0
            subscription = broker.broker.mqtt.sessions["sloth"].subscriptions["flood/#"]
            # The kernel takes some megabytes before anybody is slow; and then some more.
            enough = 20_000
            while sent < enough:
                if subscription.cursor is not None:
                    enough = min(enough, sent + 500)
                publisher.client.publish("flood/x", bytes(10_000), qos=1).wait_for_publish(10)
                sent += 1
            told = wait_for("the event", lambda: watcher.last("$SYS/fanlog/slow/sloth"))
            event = json.loads(told)
            assert event["client"] == "sloth"
            assert event["filter"] == "flood/#"
            assert event["state"] == "behind"
            assert 0 < event["behind"] <= sent
            # Who asks later is told as well, as long as it lasts.
            with Device(broker, "$SYS/fanlog/slow/sloth") as late:
                wait_for("the state", lambda: late.last("$SYS/fanlog/slow/sloth", retained=True))
            left = sent * frame_bytes
            while left:
                left -= len(slow.recv(min(left, 1 << 16)))
            wait_for(
                "the end of it",
                lambda: json.loads(watcher.last("$SYS/fanlog/slow/sloth") or "{}")["state"] == "caught up",
            )
            assert len(watcher.got) == 2
        with Device(broker, "$SYS/fanlog/#") as late:
            wait_for("anything", lambda: late.got)
            assert late.last("$SYS/fanlog/slow/sloth") is None
    lines = [record.getMessage() for record in caplog.records if record.name == "fanlog.router.slow"]
    assert len(lines) == 2
    assert lines[0].startswith("slow: sloth, subscribed to flood/#, is behind: ")
    assert lines[1].startswith("slow: sloth, subscribed to flood/#, is caught up: 0 records left")
