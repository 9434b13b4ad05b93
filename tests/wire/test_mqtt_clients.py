"""Other people's clients understand what the MQTT codec encodes, and it understands them.

A server that is nothing but the codec answers what it must and sends every message back to its sender, on a
real socket; paho and gmqtt connect to it, in each version that they speak, and see that what comes back is
what they sent.
"""

import asyncio
import queue
import socket
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

WAIT_S = 20.0


class Echo:
    """Serves one connection, in a thread, until the client leaves."""

    def __init__(self, mqtt: ModuleType) -> None:
        self.mqtt = mqtt
        self.seen: list[Any] = []
        self.failed: BaseException | None = None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(WAIT_S)
        self.port: int = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        try:
            connection, _ = self.listener.accept()
            connection.settimeout(WAIT_S)
            with connection:
                decoder = self.mqtt.Decoder(100_000)
                while data := connection.recv(65536):
                    for packet in decoder.feed(data):
                        self.seen.append(packet)
                        connection.sendall(b"".join(self._answers(packet, decoder.version)))
        except ConnectionError:
            pass
        except BaseException as error:
            self.failed = error

    def _answers(self, packet: Any, version: int) -> list[bytes]:
        mqtt = self.mqtt
        if isinstance(packet, mqtt.Connect):
            limits = {0x21: 10, 0x22: 5, 0x25: 1, 0x26: [("server", "echo")]}
            return [mqtt.encode_connack(version, False, 0, limits)]
        if isinstance(packet, mqtt.Subscribe):
            codes = bytes(options & mqtt.QOS_MASK for _, options in packet.filters)
            return [mqtt.encode_suback(version, packet.packet_id, codes, {0x1F: "granted"})]
        if isinstance(packet, mqtt.Unsubscribe):
            codes = bytes(len(packet.filters))
            return [mqtt.encode_unsuback(version, packet.packet_id, codes)]
        if isinstance(packet, mqtt.Pingreq):
            return [mqtt.PINGRESP_FRAME]
        if isinstance(packet, mqtt.Publish):
            return self._echo(packet, version)
        if isinstance(packet, mqtt.Ack) and packet.kind == mqtt.PUBREC:
            return [mqtt.encode_ack(mqtt.PUBREL, packet.packet_id, version)]
        if isinstance(packet, mqtt.Ack) and packet.kind == mqtt.PUBREL:
            return [mqtt.encode_ack(mqtt.PUBCOMP, packet.packet_id, version)]
        return []

    def _echo(self, packet: Any, version: int) -> list[bytes]:
        mqtt = self.mqtt
        said = {number: value for number, value in (packet.properties or {}).items() if number != 0x23}
        properties = mqtt.encode_properties(said | {0x0B: [7]}, 3) if version == 5 else None
        if packet.qos == 0:
            back = mqtt.encode_publish(packet.topic.encode(), packet.payload, 0, False, False, 0, properties)
            return [back]
        kind = mqtt.PUBACK if packet.qos == 1 else mqtt.PUBREC
        ack = mqtt.encode_ack(kind, packet.packet_id, version, 0x10, {0x1F: "alone"})
        head, tail = mqtt.publish_frame_parts(
            packet.topic.encode(), packet.payload, packet.qos, False, properties
        )
        return [ack, head, (1000 + packet.packet_id).to_bytes(2, "big"), tail]

    def close(self) -> None:
        self.listener.close()
        self.thread.join(WAIT_S)
        if self.failed is not None:
            raise self.failed

    def kinds(self) -> set[str]:
        return {type(packet).__name__ for packet in self.seen}


@pytest.fixture
def echo(mqtt: ModuleType) -> Iterator[Echo]:
    server = Echo(mqtt)
    yield server
    server.close()


@pytest.mark.parametrize("version", [3, 4, 5])
def test_paho_gets_back_what_it_sends(echo: Echo, version: int) -> None:
    paho = pytest.importorskip("paho.mqtt.client")
    properties = pytest.importorskip("paho.mqtt.properties").Properties
    packet_types = pytest.importorskip("paho.mqtt.packettypes").PacketTypes
    options: dict[str, Any] = {"clean_session": True} if version < 5 else {}
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "me", protocol=version, **options)
    events: queue.Queue[tuple[Any, ...]] = queue.Queue()
    client.on_connect = lambda _c, _u, _f, code, said: events.put(("connect", code.value, said))
    client.on_subscribe = lambda _c, _u, _mid, codes, _p: events.put(("subscribe", [c.value for c in codes]))
    client.on_unsubscribe = lambda _c, _u, _mid, _codes, _p: events.put(("unsubscribe",))
    client.on_message = lambda _c, _u, message: events.put(("message", message))
    published: queue.Queue[int] = queue.Queue()
    client.on_publish = lambda _c, _u, _mid, code, _p: published.put(code.value)
    will = properties(packet_types.WILLMESSAGE) if version == 5 else None
    if will is not None:
        will.WillDelayInterval = 5
    client.will_set("will/me", b"gone", 1, True, will)
    client.username_pw_set("user", "secret")
    client.connect("127.0.0.1", echo.port, keepalive=60)
    client.loop_start()
    try:
        assert events.get(timeout=WAIT_S)[:2] == ("connect", 0)
        client.subscribe([("a/#", 1), ("b/+", 2)])
        assert events.get(timeout=WAIT_S) == ("subscribe", [1, 2])
        sent = None
        if version == 5:
            sent = properties(packet_types.PUBLISH)
            sent.UserProperty = [("k", "v"), ("k", "w")]
            sent.ResponseTopic = "r/t"
            sent.CorrelationData = b"\x00\x01"
            sent.MessageExpiryInterval = 60
        for qos in (0, 1, 2):
            payload = b"x" * 10**qos * 100
            client.publish(f"a/\u20ac/{qos}", payload, qos, True, sent)
            name, message = events.get(timeout=WAIT_S)
            assert (name, message.topic, message.payload, message.qos) == (
                "message",
                f"a/\u20ac/{qos}",
                payload,
                qos,
            )
            assert published.get(timeout=WAIT_S) == (0x10 if version == 5 and qos == 1 else 0)
            if version == 5:
                assert message.properties.UserProperty == [("k", "v"), ("k", "w")]
                assert (message.properties.ResponseTopic, message.properties.SubscriptionIdentifier) == (
                    "r/t",
                    [7],
                )
        client.unsubscribe(["a/#", "b/+"])
        assert events.get(timeout=WAIT_S) == ("unsubscribe",)
        client.disconnect()
    finally:
        client.loop_stop()
    echo.thread.join(WAIT_S)
    connect = echo.seen[0]
    assert (connect.version, connect.username, connect.password) == (version, "user", b"secret")
    assert (connect.will.topic, connect.will.payload, connect.will.qos, connect.will.retain) == (
        "will/me",
        b"gone",
        1,
        True,
    )
    assert connect.will.properties == ({0x18: 5} if version == 5 else {})
    assert {"Publish", "Ack", "Subscribe", "Unsubscribe", "Disconnect"} <= echo.kinds()


@pytest.mark.parametrize("version", [4, 5])
def test_gmqtt_gets_back_what_it_sends(echo: Echo, version: int) -> None:
    gmqtt = pytest.importorskip("gmqtt")

    async def run() -> None:
        client = gmqtt.Client("me", will_message=gmqtt.Message("will/me", b"gone", qos=1, retain=True))
        messages: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        subscribed: asyncio.Queue[Any] = asyncio.Queue()

        def arrived(_client: Any, topic: str, payload: bytes, qos: int, properties: dict[str, Any]) -> int:
            messages.put_nowait((topic, payload, qos, properties))
            return 0

        def granted(_client: Any, _mid: int, codes: Any, _properties: Any) -> None:
            subscribed.put_nowait(codes)

        client.on_message = arrived
        client.on_subscribe = granted
        client.set_auth_credentials("user", "secret")
        await client.connect("127.0.0.1", echo.port, keepalive=60, version=version)
        client.subscribe("a/#", qos=2)
        assert list(await subscribed.get()) == [2]
        for qos in (0, 1, 2):
            client.publish(f"a/{qos}", b"x" * 300, qos=qos, user_property=("k", "v"), content_type="text")
            topic, payload, back, properties = await messages.get()
            assert (topic, bytes(payload), back) == (f"a/{qos}", b"x" * 300, qos)
            if version == 5:
                assert properties["user_property"] == [("k", "v")]
                assert properties["content_type"] == ["text"]
        await client.disconnect()

    asyncio.run(asyncio.wait_for(run(), WAIT_S))
    echo.thread.join(WAIT_S)
    assert echo.seen[0].version == version
    assert {"Publish", "Ack", "Subscribe"} <= echo.kinds()
