"""A client that says exactly what a test wants it to say, in our own codec, over a real socket.

It acknowledges nothing by itself and keeps what it was sent in the order of arrival: `next` gives the next
packet, `expect` the next of a kind, `silent` proves that there is none, `closed` waits for the end.
"""

import socket
import time
from collections import deque
from types import TracebackType
from typing import Any, TypeVar

from fanlog.wire import mqtt
from fanlog.wire import mqtt_tables as tables
from fanlog.wire.mqtt import (
    Ack,
    Connack,
    Connect,
    Decoder,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)

PATIENCE_SECONDS = 10.0
Kind = TypeVar("Kind", bound=Packet)


class Closed(AssertionError):
    """The broker has closed the connection."""


class Peer:
    def __init__(self, address: str, version: int = 5) -> None:
        host, _, port = address.rpartition(":")
        self.version = version
        self.socket = socket.create_connection((host, int(port)), PATIENCE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.decoder = Decoder(version=version, from_client=False)
        self.arrived: deque[Packet] = deque()
        self.last_id = 0

    def __enter__(self) -> "Peer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()

    def cut(self) -> None:
        """Goes away without a word."""
        self.socket.close()

    # --- send -------------------------------------------------------------------------------------------

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, *packets: Packet) -> None:
        self.raw(b"".join([mqtt.encode(packet, self.version) for packet in packets]))

    def packet_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def connect(
        self,
        client_id: str = "",
        clean: bool = True,
        keep_alive_s: int = 0,
        will: Will | None = None,
        properties: dict[int, Any] | None = None,
    ) -> Connack:
        self.send(Connect(self.version, client_id, keep_alive_s, clean, will, None, None, properties))
        return self.expect(Connack)

    def subscribe(
        self, *filters: str | tuple[str, int], qos: int = 0, properties: dict[int, Any] | None = None
    ) -> Suback:
        wanted = [one if isinstance(one, tuple) else (one, qos) for one in filters]
        packet_id = self.packet_id()
        self.send(Subscribe(packet_id, wanted, properties))
        answer = self.expect(Suback)
        assert answer.packet_id == packet_id
        return answer

    def unsubscribe(self, *filters: str) -> Unsuback:
        packet_id = self.packet_id()
        self.send(Unsubscribe(packet_id, list(filters)))
        answer = self.expect(Unsuback)
        assert answer.packet_id == packet_id
        return answer

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        retain: bool = False,
        properties: dict[int, Any] | None = None,
    ) -> int:
        """Publishes, and goes through all that its QoS asks for; returns the reason code."""
        packet_id = self.packet_id() if qos else 0
        self.send(Publish(topic, payload, qos, retain, False, packet_id, properties))
        if not qos:
            return 0
        answer = self.expect(Ack)
        assert (answer.kind, answer.packet_id) == ((tables.PUBACK, tables.PUBREC)[qos - 1], packet_id)
        if qos == 2 and answer.reason_code < 0x80:
            self.send(Ack(tables.PUBREL, packet_id))
            assert self.expect(Ack).kind == tables.PUBCOMP
        return answer.reason_code

    def acknowledge(self, packet: Publish) -> None:
        """Does all that a message of its QoS asks of the receiver."""
        if packet.qos == 1:
            self.send(Ack(tables.PUBACK, packet.packet_id))
        elif packet.qos == 2:
            self.send(Ack(tables.PUBREC, packet.packet_id))
            released = self.expect(Ack)
            assert (released.kind, released.packet_id) == (tables.PUBREL, packet.packet_id)
            self.send(Ack(tables.PUBCOMP, packet.packet_id))

    def disconnect(self, code: int = 0, properties: dict[int, Any] | None = None) -> None:
        self.send(Disconnect(code, properties))
        self.closed()

    # --- receive ----------------------------------------------------------------------------------------

    def next(self, seconds: float = PATIENCE_SECONDS) -> Packet:
        deadline = time.monotonic() + seconds
        while not self.arrived:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                data = self.socket.recv(1 << 16)
            except TimeoutError:
                raise AssertionError(f"nothing came for {seconds} s") from None
            except ConnectionError:
                data = b""
            if not data:
                raise Closed
            self.arrived.extend(self.decoder.feed(data))
        return self.arrived.popleft()

    def expect(self, kind: type[Kind], seconds: float = PATIENCE_SECONDS) -> Kind:
        """The next packet of a kind; those of other kinds before it are put back behind it."""
        others: list[Packet] = []
        while True:
            packet = self.next(seconds)
            if isinstance(packet, kind):
                self.arrived.extendleft(reversed(others))
                return packet
            others.append(packet)

    def message(self) -> Publish:
        return self.expect(Publish)

    def messages(self, count: int, acknowledge: bool = True) -> list[Publish]:
        found = []
        for _ in range(count):
            found.append(self.message())
            if acknowledge:
                self.acknowledge(found[-1])
        return found

    def payloads(self, count: int) -> list[bytes]:
        return [packet.payload for packet in self.messages(count)]

    def silent(self) -> None:
        """Whatever was on its way has arrived, and it was nothing: a PINGREQ is answered behind it."""
        self.send(Pingreq())
        packet = self.next()
        assert isinstance(packet, Pingresp), packet

    def closed(self) -> list[Packet]:
        """Waits for the broker to close; gives what it said before."""
        said: list[Packet] = []
        try:
            while True:
                said.append(self.next())
        except Closed:
            self.cut()
            return said

    def refused(self) -> Disconnect:
        """Waits for the broker to say why it closes, and to close."""
        last = self.closed()[-1]
        assert isinstance(last, Disconnect), last
        return last
