"""TLS beside the plain addresses: MQTT, Kafka, HTTP and WebSocket, with and without client certificates."""

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from confluent_kafka import Consumer, Producer

from fanlog.config import ConfigError
from fanlog.testing import RunningBroker, running_broker
from fanlog.wire import mqtt_tables as mqtt
from fanlog.wire.mqtt import Connect, Decoder, Publish, encode_connect, encode_subscribe
from support.certificates import Authority, Certificate
from support.process import wait_for


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def served(authority: Authority) -> Certificate:
    return authority.sign("broker")


@pytest.fixture(scope="module")
def broker(served: Certificate) -> Iterator[RunningBroker]:
    with running_broker(
        topics_durability="os",
        tls_certificate=served.certificate,
        tls_key=served.key,
        mqtt_tls="127.0.0.1:0",
        kafka_tls="127.0.0.1:0",
        http_tls="127.0.0.1:0",
    ) as running:
        yield running


def exchange(client: paho.Client, host: str, port: int) -> bytes:
    """Sends a message to oneself."""
    got: list[bytes] = []
    client.on_connect = lambda *rest: client.subscribe("secret/#", 1)
    client.on_subscribe = lambda *rest: client.publish("secret/x", b"hush" * 50_000, qos=1)
    client.on_message = lambda *rest: got.append(rest[-1].payload)
    client.connect(host, port)
    client.loop_start()
    try:
        wait_for("the message", lambda: got)
    finally:
        client.disconnect()
        client.loop_stop()
    return got[0]


@pytest.mark.parametrize(("transport", "door"), [("tcp", "mqtt_tls"), ("websockets", "http_tls")])
def test_mqtt_by_tls(broker: RunningBroker, authority: Authority, transport: str, door: str) -> None:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, transport=transport, protocol=paho.MQTTv5)
    client.tls_set(authority.certificate)
    assert exchange(client, *broker.broker.addresses[door]) == b"hush" * 50_000


def test_kafka_by_tls_stays_with_tls(broker: RunningBroker, authority: Authority) -> None:
    host, port = broker.broker.addresses["kafka_tls"]
    common = {
        "bootstrap.servers": f"{host}:{port}",
        "security.protocol": "SSL",
        "ssl.ca.location": authority.certificate,
    }
    producer = Producer(common)
    for _ in range(20):
        producer.produce("hushed", b"x" * 100_000)
    assert producer.flush(10) == 0
    # Only the address that it came by is of use to a client: it is told that one.
    assert {(one.host, one.port) for one in producer.list_topics(timeout=10).brokers.values()} == {
        (host, port)
    }
    consumer = Consumer({**common, "group.id": "tls", "auto.offset.reset": "earliest"})
    consumer.subscribe(["hushed"])
    found = [record.value() for record in consumer.consume(20, 10)]
    consumer.close()
    assert found == [b"x" * 100_000] * 20


def test_a_subscriber_by_tls_that_stops_reading_catches_up_in_order(
    broker: RunningBroker, authority: Authority
) -> None:
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.settimeout(20)
    plain.connect(broker.broker.addresses["mqtt_tls"])
    context = ssl.create_default_context(cafile=authority.certificate)
    publisher = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="publisher")
    host, port = broker.mqtt.split(":")
    publisher.connect(host, int(port))
    publisher.loop_start()
    with context.wrap_socket(plain, server_hostname="127.0.0.1") as slow:
        slow.sendall(encode_connect(Connect(mqtt.V311, "slow-by-tls")))
        assert slow.recv(4) == b"\x20\x02\x00\x00"
        slow.sendall(encode_subscribe(mqtt.V311, 1, [("slowly/#", 0)]))
        assert slow.recv(5) == b"\x90\x03\x00\x01\x00"
        subscription = broker.broker.mqtt.sessions["slow-by-tls"].subscriptions["slowly/#"]
        sent, enough = 0, 20_000
        while sent < enough:
            if subscription.cursor is not None:
                enough = min(enough, sent + 200)
            payload = b"%06d" % sent + bytes(10_000)
            publisher.publish("slowly/x", payload, qos=1).wait_for_publish(10)
            sent += 1
        decoder = Decoder(1 << 20, mqtt.V311, from_client=False)
        found: list[int] = []
        while len(found) < sent:
            for packet in decoder.feed(slow.recv(1 << 16)):
                assert isinstance(packet, Publish)
                found.append(int(packet.payload[:6]))
        assert found == list(range(sent))
        wait_for("it to be in sync", lambda: subscription.cursor is None)
    publisher.disconnect()
    publisher.loop_stop()


def test_health_by_tls(broker: RunningBroker, authority: Authority) -> None:
    host, port = broker.broker.addresses["http_tls"]
    context = ssl.create_default_context(cafile=authority.certificate)
    connection = http.client.HTTPSConnection(host, port, timeout=10, context=context)
    connection.request("GET", "/readyz")
    assert connection.getresponse().status == 200
    connection.close()


def test_who_has_to_show_a_certificate_has_to_have_one(authority: Authority, served: Certificate) -> None:
    with running_broker(
        tls_certificate=served.certificate,
        tls_key=served.key,
        tls_client_ca=authority.certificate,
        mqtt_tls="127.0.0.1:0",
    ) as broker:
        address = broker.broker.addresses["mqtt_tls"]
        stranger = ssl.create_default_context(cafile=authority.certificate)
        with socket.create_connection(address, timeout=10) as plain, contextlib.suppress(OSError):
            # TLS 1.3 tells a client only when it reads.
            assert stranger.wrap_socket(plain, server_hostname="127.0.0.1").recv(1) == b""
        mine = authority.sign("device")
        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        client.tls_set(authority.certificate, mine.certificate, mine.key)
        assert exchange(client, *address) == b"hush" * 50_000


def test_a_handshake_has_a_time_limit(served: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fanlog.doors.listening.HANDSHAKE_SECONDS", 0.3)
    settings = {"tls_certificate": served.certificate, "tls_key": served.key, "mqtt_tls": "127.0.0.1:0"}
    with (
        running_broker(**settings) as broker,
        socket.create_connection(broker.broker.addresses["mqtt_tls"], timeout=10) as silent,
    ):
        assert silent.recv(1) == b""


def test_a_certificate_that_cannot_be_used_stops_the_start(tmp_path: Path, served: Certificate) -> None:
    with (
        pytest.raises(ConfigError, match="mqtt_tls needs tls_certificate"),
        running_broker(mqtt_tls="127.0.0.1:0"),
    ):
        pass
    nothing = str(tmp_path / "nothing.pem")
    with pytest.raises(ConfigError, match="is not there"), running_broker(tls_certificate=nothing):
        pass
    with (
        pytest.raises(ConfigError, match="cannot be used"),
        running_broker(tls_certificate=served.certificate, tls_key=served.certificate),
    ):
        pass
