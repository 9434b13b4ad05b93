"""MQTT over WebSocket at /mqtt on the HTTP port."""

import asyncio
import contextlib
import http.client
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiomqtt
import paho.mqtt.client as paho
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect

from fanlog.doors.mqtt.websocket import frame_header
from fanlog.testing import RunningBroker, running_broker
from fanlog.wire import mqtt_tables as mqtt
from fanlog.wire.mqtt import Connect, encode_connect, encode_publish
from support.process import wait_for

_CONNECT = b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x3c\x00\x03raw"
_CONNACK = b"\x20\x02\x00\x00"
_PINGREQ, _PINGRESP = b"\xc0\x00", b"\xd0\x00"


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(topics_durability="os", limits_websocket_message_bytes_max=100_000) as running:
        yield running


def dial(broker: RunningBroker) -> ClientConnection:
    return connect(f"ws://{broker.http}/mqtt", subprotocols=["mqtt"], compression=None, open_timeout=10)


def receive_exactly(client: ClientConnection, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += client.recv(timeout=10)
    return found


@given(st.integers(0, 70_000) | st.sampled_from([125, 126, 65_535, 65_536]))
def test_headers_are_those_of_the_websockets_package(size: int) -> None:
    data = bytes(size)
    assert frame_header(size) + data == Frame(Opcode.BINARY, data).serialize(mask=False)


@pytest.mark.parametrize("version", [paho.MQTTv31, paho.MQTTv311, paho.MQTTv5])
def test_paho_exchanges_messages_of_every_quality(broker: RunningBroker, version: int) -> None:
    host, port = broker.http.split(":")
    got: list[tuple[str, int, bytes]] = []
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, transport="websockets", protocol=version)
    client.on_message = lambda *rest: got.append((rest[-1].topic, rest[-1].qos, rest[-1].payload))
    subscribed: list[object] = []
    client.on_connect = lambda *rest: client.subscribe(f"web{version}/#", 2)
    client.on_subscribe = lambda *rest: subscribed.append(rest)
    client.connect(host, int(port))
    client.loop_start()
    try:
        wait_for("SUBACK", lambda: subscribed)
        for qos in (0, 1, 2):
            client.publish(f"web{version}/{qos}", b"x" * 80_000, qos=qos)
        wait_for("three messages", lambda: len(got) == 3)
        assert sorted(got) == [(f"web{version}/{qos}", qos, b"x" * 80_000) for qos in (0, 1, 2)]
    finally:
        client.disconnect()
        client.loop_stop()


def test_aiomqtt_hears_what_came_by_tcp(broker: RunningBroker) -> None:
    async def main() -> None:
        web_host, web_port = broker.http.split(":")
        host, port = broker.mqtt.split(":")
        async with (
            aiomqtt.Client(web_host, int(web_port), transport="websockets", websocket_path="/mqtt") as web,
            aiomqtt.Client(host, int(port)) as device,
        ):
            await web.subscribe("both/#", 1)
            for number in range(100):
                await device.publish(f"both/{number}", str(number), 1)
            found = []
            async with asyncio.timeout(10):
                async for message in web.messages:
                    found.append(message.payload)
                    if len(found) == 100:
                        break
            assert found == [str(number).encode() for number in range(100)]

    asyncio.run(main())


_MQTT_JS = """
const mqtt = require("mqtt");
const client = mqtt.connect(process.argv[2], {protocolVersion: 5, reconnectPeriod: 0});
client.on("connect", () => client.subscribe("js/#", {qos: 2}, () => {
  for (const qos of [0, 1, 2]) client.publish("js/" + qos, "x".repeat(80000), {qos});
}));
const got = [];
client.on("message", (topic, payload) => {
  got.push(topic + ":" + payload.length);
  if (got.length == 3) { console.log(got.sort().join(" ")); client.end(); }
});
client.on("error", (error) => { console.error(error); process.exit(1); });
"""


def test_mqtt_js_exchanges_messages_of_every_quality(broker: RunningBroker, tmp_path: Path) -> None:
    provision = Path(__file__).parents[2] / "scripts" / "provision"
    found = subprocess.run([provision, "mqtt-js"], capture_output=True, text=True, timeout=200)
    if found.returncode:
        pytest.skip(found.stderr.strip())
    script = tmp_path / "exchange.js"
    script.write_text(_MQTT_JS)
    environment = {**os.environ, "NODE_PATH": found.stdout.strip().splitlines()[-1]}
    done = subprocess.run(
        ["node", str(script), f"ws://{broker.http}/mqtt"],
        capture_output=True,
        text=True,
        timeout=30,
        env=environment,
    )
    assert done.stdout.strip() == "js/0:80000 js/1:80000 js/2:80000", done.stderr


def test_packets_may_be_cut_across_frames_and_joined_within_them(broker: RunningBroker) -> None:
    with dial(broker) as client:
        # A fragmented message: one byte per frame.
        client.send(_CONNECT[at : at + 1] for at in range(len(_CONNECT)))
        assert receive_exactly(client, 4) == _CONNACK
        client.send(_PINGREQ[:1])
        client.send(_PINGREQ[1:] + _PINGREQ * 3)
        assert receive_exactly(client, 8) == _PINGRESP * 4


def test_pings_are_answered_and_the_close_is_a_handshake(broker: RunningBroker) -> None:
    with dial(broker) as client:
        assert client.subprotocol == "mqtt"
        client.send(_CONNECT)
        receive_exactly(client, 4)
        assert client.ping().wait(10)
        # DISCONNECT: the broker begins to close.
        client.send(b"\xe0\x00")
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000
    with dial(broker) as client:
        client.send(_CONNECT)
        receive_exactly(client, 4)
        client.close()
        assert client.close_code == 1000


def test_text_and_messages_past_the_limit_are_refused_in_websockets_words(broker: RunningBroker) -> None:
    for data, code in (("text", 1003), (bytes(100_001), 1009)):
        with dial(broker) as client:
            client.send(_CONNECT)
            receive_exactly(client, 4)
            client.send(data)
            with pytest.raises(ConnectionClosed) as closed:
                client.recv(timeout=10)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == code


def test_only_mqtt_is_spoken_there(broker: RunningBroker) -> None:
    for options in ({}, {"subprotocols": ["chat"]}):
        with pytest.raises(InvalidStatus) as refused, connect(f"ws://{broker.http}/mqtt", **options):
            pass
        assert refused.value.response.status_code == 400
    with pytest.raises(InvalidStatus) as refused, connect(f"ws://{broker.http}/readyz/x"):
        pass
    assert refused.value.response.status_code == 404
    plain = http.client.HTTPConnection(broker.http, timeout=10)
    plain.request("GET", "/mqtt")
    assert plain.getresponse().status == 404
    plain.close()


def test_a_lost_web_client_leaves_its_will(broker: RunningBroker) -> None:
    host, port = broker.mqtt.split(":")
    got: list[bytes] = []
    watcher = paho.Client(paho.CallbackAPIVersion.VERSION2)
    subscribed: list[object] = []
    watcher.on_message = lambda *rest: got.append(rest[-1].payload)
    watcher.on_subscribe = lambda *rest: subscribed.append(rest)
    watcher.connect(host, int(port))
    watcher.subscribe("wills/#")
    watcher.loop_start()
    try:
        wait_for("SUBACK", lambda: subscribed)
        mortal = paho.Client(paho.CallbackAPIVersion.VERSION2, transport="websockets")
        mortal.will_set("wills/web", b"gone")
        connected: list[object] = []
        mortal.on_connect = lambda *rest: connected.append(rest)
        web_host, web_port = broker.http.split(":")
        mortal.connect(web_host, int(web_port))
        mortal.loop_start()
        wait_for("CONNACK", lambda: connected)
        mortal.loop_stop()
        raw = mortal.socket()._socket
        raw.shutdown(socket.SHUT_RDWR)
        wait_for("the will", lambda: got == [b"gone"])
    finally:
        watcher.disconnect()
        watcher.loop_stop()


def test_a_web_client_that_does_not_read_catches_up_in_order() -> None:
    with running_broker(topics_durability="os") as broker:
        host, port = broker.http.split(":")
        got: list[int] = []
        subscribed: list[object] = []
        slow = paho.Client(paho.CallbackAPIVersion.VERSION2, transport="websockets", client_id="slow")
        slow.on_subscribe = lambda *rest: subscribed.append(rest)
        slow.on_message = lambda *rest: got.append(int(rest[-1].payload[:6]))
        slow.connect(host, int(port))
        slow.subscribe("flood/x", 0)
        slow.loop_start()
        wait_for("SUBACK", lambda: subscribed)
        slow.loop_stop()
        mqtt_host, mqtt_port = broker.mqtt.split(":")
        with socket.create_connection((mqtt_host, int(mqtt_port)), timeout=10) as publisher:
            publisher.sendall(encode_connect(Connect(mqtt.V311, "flooder")))
            assert publisher.recv(4) == _CONNACK
            for number in range(10_000):
                publisher.sendall(
                    encode_publish(b"flood/x", b"%06d" % number + bytes(1000), 0, False, False, 0, None)
                )
        session = broker.broker.mqtt.sessions["slow"]
        wait_for("it to fall behind", lambda: session.subscriptions["flood/x"].cursor is not None)
        slow.loop_start()
        try:
            wait_for("everything", lambda: got and got[-1] == 9_999, 20)
            assert got == list(range(10_000))
        finally:
            slow.disconnect()
            with contextlib.suppress(RuntimeError):
                slow.loop_stop()
