"""One MQTT client's connection: packets in, answers out.

Packets are handled in the order in which they come. One that has to wait (a topic must be made first) holds
up those behind it on the same connection and nobody else; what came before the client left is handled even if
it has left meanwhile. Acknowledgements of publishes leave in the order
of the publishes, [MQTT-4.6.0-2], once the log has them, all of a turn in one write.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, cast

from fanlog.cluster.catalog import CatalogError
from fanlog.doors.mqtt import connecting, subscribing
from fanlog.doors.mqtt.connecting import payload_fits
from fanlog.doors.mqtt.session import Session
from fanlog.doors.mqtt.translate import expiry_of, headers_of, plain_headers, with_client, with_sender
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
)
from fanlog.wire.mqtt_tables import ProtocolError
from fanlog.wire.records import Message

if TYPE_CHECKING:
    from fanlog.doors.mqtt.door import MqttDoor
    from fanlog.log.partition import Partition
    from fanlog.router.router import Target

logger = logging.getLogger(__name__)

# Time that a client gets to read the last words.
_LINGER_SECONDS = 2.0
# With more than this on its way to the log, or to the client, nothing more is read from the client.
_PENDING_BYTES_MAX = 32 << 20
_UNSTORED_MAX = 10_000
_ANSWERS_BYTES_MAX = 256 << 10
_PAUSE_SECONDS = 0.005


class MqttConnection(asyncio.Protocol):
    # There may be many thousands, most of them silent: each has what it needs, when it needs it.
    __slots__ = (
        "_acks",
        "_aliases",
        "_flushing",
        "_halves",
        "_stored",
        "_task",
        "_unstored",
        "_waiting",
        "active_at",
        "closing",
        "decoder",
        "door",
        "fd",
        "keep_alive_s",
        "paused",
        "problems",
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
        # Nothing is read from the client for a while.
        self.paused = False
        # Set when this side has decided to end it.
        self.closing = False
        # Whether the client wants to be told reasons in acknowledgements.
        self.problems = True
        # Retained messages of which one of two logs has taken its copy.
        self._halves: dict[Message, LogError | None] | None = None
        self.keep_alive_s = 0
        self.active_at = 0.0
        self._aliases: dict[int, str] | None = None
        # Publishes that wait for the log, in their order, and those of them that it has.
        self._unstored: deque[Message] | None = None
        self._stored: dict[Message, int] | None = None
        self._acks: list[bytes] | None = None
        self._flushing = False
        # A packet that takes time, and what came behind it.
        self._task: asyncio.Task[None] | None = None
        self._waiting: list[Packet | ProtocolError] | None = None

    # --- the transport's side ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        peer_socket = self.transport.get_extra_info("socket")
        if peer_socket is not None and self.transport.get_extra_info("sslcontext") is None:
            self.fd = peer_socket.fileno()
            # Whatever has to wait makes the connection one that is behind.
            self.transport.set_write_buffer_limits(high=0)
        else:
            # What is written waits for the end of the turn: for TLS, and for the frames of a WebSocket.
            self.transport.set_write_buffer_limits(high=self.door.limits.mqtt_write_buffer_bytes_max)
        self.active_at = self.door.loop.time()
        self.door.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.fd = -1
        if self._task is None:
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
            # A view: what waits for many connections is still the same bytes.
            if self.transport is not None:
                self.transport.write(memoryview(data)[sent:])
        elif self.transport is not None and not self.closing:
            self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        self.active_at = self.door.loop.time()
        self.door.received_bytes += len(data)
        session = self.session
        if session is not None and session.shared and self._task is None and self.decoder.between_packets():
            matched = session.match_acks(data)
            self.door.received_packets += matched >> 2
            if matched == len(data):
                return
            data = data[matched:]
        try:
            packets = self.decoder.feed(data)
        except ProtocolError as error:
            self._handle([*error.packets, error])
            return
        self.door.received_packets += len(packets)
        self._handle(packets)

    def _handle(self, packets: Sequence[Packet | ProtocolError]) -> None:
        if self._waiting is not None:
            self._waiting.extend(packets)
            return
        for number, packet in enumerate(packets):
            if self.closing:
                return
            if isinstance(packet, ProtocolError):
                self.refuse(packet.reason_code, packet.text)
                return
            wait = self._dispatch(packet)
            if wait is not None:
                self._waiting = list(packets[number + 1 :])
                if self.transport is not None:
                    self.transport.pause_reading()
                self._task = self.door.loop.create_task(self._hold(wait))
                return

    async def _hold(self, wait: Coroutine[Any, Any, None]) -> None:
        """Does what takes time; the packets behind it wait."""
        try:
            await wait
        except Exception:
            logger.exception("mqtt: a packet could not be handled")
            self.close()
        rest, self._waiting, self._task = self._waiting or [], None, None
        if self.transport is not None and not self.closing and not self.paused:
            self.transport.resume_reading()
        self._handle(rest)
        if self.transport is None and self._task is None:
            # It was lost meanwhile.
            self.door.closed(self)

    # --- packets ----------------------------------------------------------------------------------------

    def _dispatch(self, packet: Packet) -> Coroutine[Any, Any, None] | None:
        """Handles a packet. What it returns has to be waited for before anything else is done."""
        if isinstance(packet, Publish):
            return self._publish(packet)
        if isinstance(packet, Ack):
            self._acknowledge(packet)
        elif isinstance(packet, Pingreq):
            self.write(PINGRESP_FRAME)
        elif isinstance(packet, Connect):
            return connecting.connect(self, packet)
        elif isinstance(packet, Subscribe):
            return subscribing.subscribe(self, packet)
        elif isinstance(packet, Unsubscribe):
            subscribing.unsubscribe(self, packet)
        elif isinstance(packet, Disconnect):
            connecting.disconnect(self, packet)
        elif isinstance(packet, Auth):
            # [MQTT-4.12.0-6]: there was no method in the CONNECT, or it would have been refused.
            self.refuse(mqtt.PROTOCOL_FAULT, "an AUTH, but no method of authentication was agreed on")
        return None

    def _publish(self, packet: Publish) -> Coroutine[Any, Any, None] | None:
        address = packet.topic
        if packet.properties is not None:
            if mqtt.TOPIC_ALIAS in packet.properties:
                resolved = self._resolve_alias(packet)
                if resolved is None:
                    return None
                address = packet.topic = resolved
            if not payload_fits(packet.properties, packet.payload):
                self._not_published(packet, mqtt.PAYLOAD_FORMAT_INVALID, "the payload is not UTF-8")
                return None
        if packet.qos and not self._expected(packet):
            return None
        if address[0] == "$":
            self._not_published(
                packet, mqtt.TOPIC_NAME_INVALID, "addresses that begin with $ are the broker's"
            )
            return None
        try:
            target = self.door.router.target(address)
        except AddressError as error:
            self._not_published(packet, mqtt.TOPIC_NAME_INVALID, str(error))
            return None
        if target is None:
            return self._publish_to_new(packet, address)
        self._store(packet, address, target)
        return None

    def _expected(self, packet: Publish) -> bool:
        """Whether a message of QoS 1 or 2 is a new one, and the client may send it now."""
        session = self.session
        assert session is not None
        unstored = self._unstored or ()
        if packet.qos == 2:
            if packet.packet_id in session.received:
                # [MQTT-4.3.3-10]: it was stored already, and is answered again.
                self._answer(encode_ack(mqtt.PUBREC, packet.packet_id, self.version))
                return False
            if any(message.packet_id == packet.packet_id for message in unstored):
                return False
        most = self.door.limits.mqtt_in_flight_max
        if self.version == mqtt.V5 and len(unstored) + len(session.received) >= most:
            # [MQTT-3.3.4-8]
            self.refuse(
                mqtt.RECEIVE_MAXIMUM_EXCEEDED, f"more than {most} messages without an acknowledgement"
            )
            return False
        return True

    async def _publish_to_new(self, packet: Publish, address: str) -> None:
        """Publishes to an address whose topic has to be made first."""
        try:
            target = await self.door.router.make_target(address)
        except (CatalogError, AddressError, OSError) as error:
            self._not_published(packet, mqtt.TOPIC_NAME_INVALID, str(error))
        else:
            self._store(packet, address, target)

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
        elif self.session is not None and self.session.no_local:
            headers = with_client(headers, self.session.client_id)
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
                self._unstored, self._stored = deque(), {}
            self._unstored.append(message)
        try:
            target.partition.publish(message)
        except LogError as error:
            if packet.qos:
                self._settled(message, error)
            return
        if packet.retain:
            self.door.retained.store(message, lambda error: self._half_stored(message, error))
        self.door.received += 1
        if target.partition.pending_bytes > _PENDING_BYTES_MAX or (
            packet.qos and len(self._unstored or ()) > _UNSTORED_MAX
        ):
            self._pause(target.partition)

    # --- backpressure -----------------------------------------------------------------------------------

    def _pause(self, partition: "Partition | None") -> None:
        """Reads nothing more until the log, or the client, has taken what there is."""
        if not self.paused and self.transport is not None:
            self.paused = True
            if self._task is None:
                self.transport.pause_reading()
            self.door.loop.call_later(_PAUSE_SECONDS, self._look, partition)

    def _look(self, partition: "Partition | None") -> None:
        """Goes on reading, if there is room again."""
        transport = self.transport
        if transport is None or self.closing:
            return
        log_behind = partition is not None and partition.pending_bytes > _PENDING_BYTES_MAX // 2
        log_behind = log_behind or len(self._unstored or ()) > _UNSTORED_MAX // 2
        if log_behind:
            # The silence is not the client's.
            self.active_at = self.door.loop.time()
        if log_behind or transport.get_write_buffer_size() > _ANSWERS_BYTES_MAX:
            self.door.loop.call_later(_PAUSE_SECONDS, self._look, partition)
            return
        self.paused = False
        if self._task is None:
            transport.resume_reading()

    # --- what became of publishes -----------------------------------------------------------------------

    def stored(self, message: Message, error: LogError | None) -> None:
        """The log has a message of ours, or will not have it."""
        if message.retain:
            if error is None:
                self.door.retained.show(message)
            self._half_stored(message, error)
        elif message.qos:
            self._settled(message, error)

    def _half_stored(self, message: Message, error: LogError | None) -> None:
        """A retained message is in its topic, or among the retained; it is acknowledged when in both."""
        if not message.qos:
            return
        if self._halves is None:
            self._halves = {}
        if message not in self._halves:
            self._halves[message] = error
        else:
            self._settled(message, self._halves.pop(message) or error)

    def _settled(self, message: Message, error: LogError | None) -> None:
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
        """Says no to a message, as far as the client's version has a word for it."""
        if self.version == mqtt.V5:
            if packet.qos:
                kind = mqtt.PUBACK if packet.qos == 1 else mqtt.PUBREC
                self._answer(encode_ack(kind, packet.packet_id, self.version, code, self.reason(text)))
            elif code == mqtt.PAYLOAD_FORMAT_INVALID:
                self.refuse(code, text)
        elif packet.qos and packet.topic[0] == "$":
            # [v3.1.1 MQTT-3.3.5-2] leaves the choice between this and cutting off.
            kind = mqtt.PUBACK if packet.qos == 1 else mqtt.PUBREC
            self._answer(encode_ack(kind, packet.packet_id, self.version))
        elif packet.qos:
            self.close()

    def reason(self, text: str) -> dict[int, Any] | None:
        """The properties that say why; none where the client does not want them. [MQTT-3.1.2-29]"""
        return {mqtt.REASON_STRING: text} if self.version == mqtt.V5 and self.problems else None

    def send(self, frame: bytes) -> None:
        """Writes an answer, unless it is longer than the client takes. [MQTT-3.1.2-24]"""
        if frame and (self.session is None or len(frame) <= self.session.packet_bytes_max):
            self.write(frame)

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
        if self.writable or self.transport is None:
            return
        # A client that publishes and reads no acknowledgements must not fill our memory with them.
        if self.transport.get_write_buffer_size() > _ANSWERS_BYTES_MAX:
            self._pause(None)

    def _acknowledge(self, packet: Ack) -> None:
        session = self.session
        assert session is not None
        if packet.kind == mqtt.PUBREL:
            known = packet.packet_id in session.received
            session.received.pop(packet.packet_id, None)
            code = 0 if known else mqtt.PACKET_IDENTIFIER_NOT_FOUND
            answer = encode_ack(mqtt.PUBCOMP, packet.packet_id, self.version, code)
            self.door.keeper.save_now(session, lambda: self._answer(answer))
            return
        flight = session.flights.get(packet.packet_id)
        if flight is not None and (flight.qos == 2) != (packet.kind != mqtt.PUBACK):
            self.refuse(mqtt.PROTOCOL_FAULT, f"that is no answer to a message of QoS {flight.qos}")
        elif packet.kind == mqtt.PUBREC:
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

    # --- the end ----------------------------------------------------------------------------------------

    def refuse(self, code: int, text: str) -> None:
        """Tells the client why, in its version's words, and closes."""
        if self.closing:
            return
        logger.info("mqtt: %s is cut off: %s", self.session.client_id if self.session else "a client", text)
        self.send(connecting.last_words(self, code, text))
        transport = self.transport
        if transport is None or not self.writable or self.fd < 0 or code == mqtt.SERVER_SHUTTING_DOWN:
            self.close()
            return
        # What the client is still sending is read and dropped for a while: a socket that is closed before
        # that is reset, and the last words are lost with it.
        self.closing = True
        self.fd = -1
        transport.write_eof()
        if self.paused or self._task is not None:
            transport.resume_reading()
        self.door.loop.call_later(_LINGER_SECONDS, transport.abort)
        self.door.closed(self)

    def close(self) -> None:
        self.closing = True
        self.fd = -1
        transport = self.transport
        if transport is not None:
            transport.close()
            if not self.writable:
                # Who does not read does not keep us waiting.
                self.door.loop.call_later(_LINGER_SECONDS, transport.abort)
