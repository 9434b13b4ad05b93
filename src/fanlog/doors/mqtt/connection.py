"""One MQTT client's connection: packets in, answers out.

Packets are handled in the order in which they come. One that has to wait (a topic must be made first) holds
up those behind it on the same connection and nobody else. Acknowledgements of publishes leave in the order
of the publishes, [MQTT-4.6.0-2], once the log has them, all of a turn in one write.
"""

import asyncio
import logging
import os
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from fanlog.cluster.catalog import CatalogError
from fanlog.doors.mqtt import subscribing
from fanlog.doors.mqtt.session import Session
from fanlog.doors.mqtt.translate import expiry_of, headers_of, plain_headers, with_sender
from fanlog.log.commit import now_ms
from fanlog.log.errors import LogError
from fanlog.router.addresses import AddressError
from fanlog.wire import mqtt_tables as mqtt
from fanlog.wire.mqtt import (
    PINGRESP_FRAME,
    Ack,
    Auth,
    Connect,
    Decoder,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Subscribe,
    Unsubscribe,
    Will,
    encode_ack,
    encode_connack,
    encode_disconnect,
)
from fanlog.wire.mqtt_tables import ProtocolError
from fanlog.wire.records import Message

if TYPE_CHECKING:
    from fanlog.doors.mqtt.door import MqttDoor
    from fanlog.router.router import Target

logger = logging.getLogger(__name__)


class MqttConnection(asyncio.Protocol):
    # There may be many thousands, most of them silent: each has what it needs, when it needs it.
    __slots__ = (
        "_acks",
        "_aliases",
        "_flushing",
        "_stored",
        "_task",
        "_unstored",
        "_waiting",
        "_waiting_packet",
        "active_at",
        "decoder",
        "door",
        "fd",
        "keep_alive_s",
        "session",
        "transport",
        "version",
        "will",
        "writable",
    )

    def __init__(self, door: "MqttDoor") -> None:
        self.door = door
        self.transport: asyncio.Transport | None = None
        self.decoder = Decoder(door.limits.mqtt_packet_bytes_max)
        self.session: Session | None = None
        self.version = 0
        self.writable = True
        # Where to write without the transport; -1 where that cannot be.
        self.fd = -1
        self.will: Will | None = None
        self.keep_alive_s = 0
        self.active_at = 0.0
        self._aliases: dict[int, str] | None = None
        # Publishes that wait for the log, in their order, and those of them that it has.
        self._unstored: deque[Message] | None = None
        self._stored: dict[Message, int] | None = None
        self._acks: list[bytes] | None = None
        self._flushing = False
        # A publish that waits for its topic, and what came behind it.
        self._task: asyncio.Task[None] | None = None
        self._waiting_packet: Publish | None = None
        self._waiting: list[Packet] | None = None

    # --- the transport's side ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        # Whatever has to wait makes the connection one that is behind.
        self.transport.set_write_buffer_limits(high=0)
        if self.transport.get_extra_info("sslcontext") is None:
            peer_socket = self.transport.get_extra_info("socket")
            self.fd = -1 if peer_socket is None else peer_socket.fileno()
        self.active_at = self.door.loop.time()
        self.door.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.fd = -1
        if self._task is not None:
            self._task.cancel()
        self.door.closed(self)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self.session is not None:
            self.session.wake()

    def write(self, data: bytes) -> None:
        """Hands bytes to the kernel, on the spot where it takes them.

        The transport would gather them until the end of the turn, which costs more than it saves: what
        belongs together is joined already. What the kernel does not take is the transport's, and until it
        is rid of it the connection is not writable.
        """
        if self.fd >= 0 and self.writable:
            try:
                sent = os.write(self.fd, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                # The peer is gone; the transport will hear of it.
                return
            if sent == len(data):
                return
            data = data[sent:]
        if self.transport is not None:
            self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        self.active_at = self.door.loop.time()
        session = self.session
        if session is not None and session.shared and self._task is None and self.decoder.between_packets():
            matched = session.match_acks(data)
            if matched == len(data):
                return
            data = data[matched:]
        try:
            packets = self.decoder.feed(data)
        except ProtocolError as error:
            self._handle(error.packets)
            self.refuse(error.reason_code, error.text)
            return
        self._handle(packets)

    def _handle(self, packets: list[Packet]) -> None:
        if self._waiting is not None:
            self._waiting.extend(packets)
            return
        for number, packet in enumerate(packets):
            if self.transport is None:
                return
            wait = self._dispatch(packet)
            if wait is not None:
                self._hold(wait, packets[number + 1 :])
                return

    def _hold(self, address: str, rest: list[Packet]) -> None:
        """Waits for the topic of an address; the packets behind wait with it."""
        assert self.transport is not None
        self._waiting = list(rest)
        self.transport.pause_reading()
        self._task = self.door.loop.create_task(self._wait(address))

    async def _wait(self, address: str) -> None:
        packet = self._waiting_packet
        assert packet is not None
        try:
            target = await self.door.router.make_target(address)
        except (CatalogError, AddressError, OSError) as error:
            self._not_published(packet, mqtt.TOPIC_NAME_INVALID, str(error))
        else:
            self._store(packet, address, target)
        if self.transport is not None:
            self.transport.resume_reading()
            rest, self._waiting, self._task = self._waiting or [], None, None
            self._handle(rest)

    # --- packets ----------------------------------------------------------------------------------------

    def _dispatch(self, packet: Packet) -> str | None:
        """Handles a packet. Returns an address that has to be made before anything else is done."""
        if isinstance(packet, Publish):
            return self._publish(packet)
        if isinstance(packet, Ack):
            self._acknowledge(packet)
        elif isinstance(packet, Pingreq):
            self.write(PINGRESP_FRAME)
        elif isinstance(packet, Connect):
            self._connect(packet)
        elif isinstance(packet, Subscribe):
            subscribing.subscribe(self, packet)
        elif isinstance(packet, Unsubscribe):
            subscribing.unsubscribe(self, packet)
        elif isinstance(packet, Disconnect):
            self._disconnect(packet)
        elif isinstance(packet, Auth):
            self.refuse(mqtt.BAD_AUTHENTICATION_METHOD, "there is no such method of authentication")
        return None

    def _connect(self, packet: Connect) -> None:
        if self.session is not None:
            # [MQTT-3.1.0-2]
            self.refuse(mqtt.PROTOCOL_FAULT, "a second CONNECT")
            return
        self.version = packet.version
        if packet.properties.get(mqtt.AUTHENTICATION_METHOD) is not None:
            self.refuse(mqtt.BAD_AUTHENTICATION_METHOD, "there is no such method of authentication")
            return
        if not packet.client_id and self.version < mqtt.V5 and not packet.clean_start:
            # [MQTT-3.1.3-8] of 3.1.1
            self.refuse(
                mqtt.CLIENT_IDENTIFIER_NOT_VALID, "a session that is to last needs a client identifier"
            )
            return
        self.will = packet.will
        self.keep_alive_s = packet.keep_alive_s
        client_id = packet.client_id or self.door.new_client_id()
        session, present = self.door.take_session(self, client_id, packet)
        self.session = session
        session.window = packet.properties.get(mqtt.RECEIVE_MAXIMUM, self.door.limits.mqtt_in_flight_max)
        session.window = min(session.window, self.door.limits.mqtt_in_flight_max)
        session.packet_bytes_max = packet.properties.get(mqtt.MAXIMUM_PACKET_SIZE, 1 << 28)
        properties: dict[int, Any] = {}
        if self.version == mqtt.V5:
            properties = self.door.offer(packet, client_id)
        self.write(encode_connack(self.version, present, 0, properties or None))
        session.attach(self)
        if present:
            session.resume()

    def _publish(self, packet: Publish) -> str | None:
        address = packet.topic
        if packet.properties is not None and mqtt.TOPIC_ALIAS in packet.properties:
            resolved = self._resolve_alias(packet)
            if resolved is None:
                return None
            address = packet.topic = resolved
        if packet.qos == 2:
            assert self.session is not None
            if packet.packet_id in self.session.received:
                # [MQTT-4.3.3-10]: it was stored already, and is answered again.
                self._answer(encode_ack(mqtt.PUBREC, packet.packet_id, self.version))
                return None
            if any(message.packet_id == packet.packet_id for message in self._unstored or ()):
                return None
        if address.startswith("$"):
            self._not_published(
                packet, mqtt.TOPIC_NAME_INVALID, "addresses that begin with $ are the broker's"
            )
            return None
        target = self.door.router.target(address)
        if target is None:
            self._waiting_packet = packet
            return address
        self._store(packet, address, target)
        return None

    def _resolve_alias(self, packet: Publish) -> str | None:
        assert packet.properties is not None
        alias = packet.properties.pop(mqtt.TOPIC_ALIAS)
        if not 1 <= alias <= self.door.limits.mqtt_topic_aliases_max:
            self.refuse(
                mqtt.TOPIC_ALIAS_INVALID,
                f"topic aliases go from 1 to {self.door.limits.mqtt_topic_aliases_max}",
            )
            return None
        if self._aliases is None:
            self._aliases = {}
        if packet.topic:
            self._aliases[alias] = packet.topic
        elif alias not in self._aliases:
            self.refuse(mqtt.PROTOCOL_FAULT, f"nothing is known by the topic alias {alias}")
            return None
        return self._aliases[alias]

    def _store(self, packet: Publish, address: str, target: "Target") -> None:
        now = 0
        expires = 0
        if packet.properties:
            now = now_ms()
            expires = expiry_of(packet, now)
            headers = headers_of(packet, expires)
        else:
            headers = plain_headers(packet.qos, packet.retain)
        if packet.qos == 2 and self.session is not None and self.session.expiry_s:
            headers = with_sender(headers, self.session.client_id, packet.packet_id)
        message = Message(
            address,
            target.key,
            packet.payload,
            headers,
            self,
            packet.qos,
            packet.packet_id,
            packet.retain,
            expires,
        )
        if packet.qos:
            if self._unstored is None:
                self._unstored, self._stored, self._acks = deque(), {}, []
            self._unstored.append(message)
        if packet.retain:
            self.door.retained.put(message)
        try:
            target.partition.publish(message)
        except LogError as error:
            self.stored(message, error)
        self.door.received += 1

    def stored(self, message: Message, error: LogError | None) -> None:
        """The log has a message of ours, or will not have it."""
        if not message.qos:
            return
        code = 0 if error is None else mqtt.UNSPECIFIED_ERROR
        unstored, kept = self._unstored, self._stored
        assert unstored is not None
        assert kept is not None
        if unstored and unstored[0] is message and not kept:
            unstored.popleft()
            self._acknowledge_publish(message, code)
            return
        kept[message] = code
        while unstored and unstored[0] in kept:
            first = unstored.popleft()
            self._acknowledge_publish(first, kept.pop(first))

    def _acknowledge_publish(self, message: Message, code: int) -> None:
        if code and self.version < mqtt.V5:
            # 3.1.1 cannot say no: a client that is cut off sends again later.
            self.close()
            return
        if message.qos == 2 and not code and self.session is not None:
            self.session.received[message.packet_id] = None
            self.session.accounted[message.stored_in] = message.offset
            self.door.keeper.mark(self.session)
        kind = mqtt.PUBACK if message.qos == 1 else mqtt.PUBREC
        self._answer(encode_ack(kind, message.packet_id, self.version, code))

    def _not_published(self, packet: Publish, code: int, text: str) -> None:
        if packet.qos == 0 or self.version < mqtt.V5:
            if self.version < mqtt.V5 and packet.qos:
                self.close()
            return
        kind = mqtt.PUBACK if packet.qos == 1 else mqtt.PUBREC
        self._answer(encode_ack(kind, packet.packet_id, self.version, code, {mqtt.REASON_STRING: text}))

    def _answer(self, frame: bytes) -> None:
        """Sends an acknowledgement with all others of this turn."""
        if self._acks is None:
            self._acks = []
        self._acks.append(frame)
        if not self._flushing:
            self._flushing = True
            self.door.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        acks, self._acks = self._acks or [], []
        self.write(b"".join(acks))

    def _acknowledge(self, packet: Ack) -> None:
        session = self.session
        assert session is not None
        if packet.kind == mqtt.PUBREL:
            known = packet.packet_id in session.received
            session.received.pop(packet.packet_id, None)
            code = 0 if known else mqtt.PACKET_IDENTIFIER_NOT_FOUND
            answer = encode_ack(mqtt.PUBCOMP, packet.packet_id, self.version, code)
            self.door.keeper.save_now(session, lambda: self._answer(answer))
        elif packet.kind == mqtt.PUBREC:
            flight = session.flights.get(packet.packet_id)
            if flight is not None and packet.reason_code < 0x80:
                flight.released = True
                release = encode_ack(mqtt.PUBREL, packet.packet_id, self.version)
                self.door.keeper.save_now(session, lambda: self._answer(release))
            elif flight is not None:
                session.acknowledged(packet.packet_id)
            else:
                code = mqtt.PACKET_IDENTIFIER_NOT_FOUND
                self._answer(encode_ack(mqtt.PUBREL, packet.packet_id, self.version, code))
        else:
            session.acknowledged(packet.packet_id)

    def _disconnect(self, packet: Disconnect) -> None:
        assert self.session is not None
        if packet.reason_code != mqtt.DISCONNECT_WITH_WILL:
            # [MQTT-3.14.4-3]
            self.will = None
        expiry = packet.properties.get(mqtt.SESSION_EXPIRY_INTERVAL)
        if expiry is not None:
            if expiry and not self.session.expiry_s:
                # [MQTT-3.14.2.2.2]
                self.refuse(
                    mqtt.PROTOCOL_FAULT, "a session that was to end with its connection cannot be kept"
                )
                return
            self.session.expiry_s = expiry
        self.close()

    # --- the end ----------------------------------------------------------------------------------------

    def refuse(self, code: int, text: str) -> None:
        """Tells the client why, in its version's words, and closes."""
        logger.info("mqtt: %s is cut off: %s", self.session.client_id if self.session else "a client", text)
        if self.session is None:
            version = self.version or self.decoder.version or mqtt.V311
            if version < mqtt.V5:
                self.write(encode_connack(version, False, mqtt.RETURN_CODES.get(code, 5)))
            else:
                self.write(encode_connack(version, False, code, {mqtt.REASON_STRING: text}))
        elif self.version == mqtt.V5:
            self.write(encode_disconnect(self.version, code, {mqtt.REASON_STRING: text}))
        self.close()

    def close(self) -> None:
        self.fd = -1
        if self.transport is not None:
            self.transport.close()
