"""The MQTT door: listens, keeps the sessions, and ends what is over."""

import asyncio
import logging
import ssl
import uuid
from typing import TYPE_CHECKING, Any

from fanlog.cluster.catalog import CatalogError, Topic
from fanlog.doors.listening import Listeners
from fanlog.doors.mqtt import subscribing
from fanlog.doors.mqtt.connection import MqttConnection
from fanlog.doors.mqtt.keeping import Keeper
from fanlog.doors.mqtt.session import NEVER, Session
from fanlog.doors.mqtt.sharing import ShareGroup
from fanlog.doors.mqtt.translate import expiry_of, headers_of
from fanlog.doors.mqtt.websocket import WebSocketConnection
from fanlog.log.commit import now_ms
from fanlog.log.errors import LogError
from fanlog.router.addresses import AddressError, level_name
from fanlog.wire import mqtt_tables as mqtt
from fanlog.wire.mqtt import Connect, Will
from fanlog.wire.records import Message

if TYPE_CHECKING:
    from fanlog.broker import Broker

logger = logging.getLogger(__name__)

_SWEEP_SECONDS = 0.5
# Time for a CONNECT to arrive.
_CONNECT_SECONDS = 10.0


class MqttDoor:
    def __init__(self, broker: "Broker") -> None:
        self.broker = broker
        self.router = broker.router
        self.retained = broker.retained
        self.limits = broker.settings.limits
        self.loop = asyncio.get_running_loop()
        self.connections: set[MqttConnection] = set()
        self.sessions: dict[str, Session] = {}
        # The groups of shared subscriptions, by their whole filter.
        self.shares: dict[str, ShareGroup] = {}
        self.router.on_topic.append(self._topic_changed)
        # Publishes, packets of any kind, and bytes.
        self.received = 0
        self.received_packets = 0
        self.received_bytes = 0
        self.connections_opened = 0
        self.connections_most = 0
        self._listeners = Listeners(lambda: MqttConnection(self))
        self._sweeper: asyncio.TimerHandle | None = None
        self._expiring: dict[str, asyncio.TimerHandle] = {}
        self._wills: dict[str, tuple[asyncio.TimerHandle, Will]] = {}
        self.keeper = Keeper(self, broker.session_store)

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        taken = await self._listeners.add(host, port, tls)
        self.start()
        return taken

    def start(self) -> None:
        """Begins to look after connections, also those that come by WebSocket only."""
        if self._sweeper is None:
            self._sweep()

    def upgraded(
        self, transport: asyncio.Transport, path: str, headers: list[tuple[str, str]], rest: bytes
    ) -> None:
        """Takes over a connection of the HTTP door that wants to go on as a WebSocket."""
        self.start()
        WebSocketConnection(self, transport).open(path, headers, rest)

    def _topic_changed(self, topic: Topic) -> None:
        """Who takes packet identifiers from the offsets may not do so any more, or may now."""
        level = level_name(topic.name)
        for session in self.sessions.values():
            if session.alone == level:
                subscribing.settle(session)

    # --- connections ------------------------------------------------------------------------------------

    def opened(self, connection: MqttConnection) -> None:
        self.connections.add(connection)
        self.connections_opened += 1
        self.connections_most = max(self.connections_most, len(self.connections))
        if len(self.connections) > self.limits.connections_max:
            connection.close()

    def closed(self, connection: MqttConnection) -> None:
        self.connections.discard(connection)
        session = connection.session
        if session is None or session.connection is not connection:
            return
        session.detach()
        self._lay_will(connection, session)
        if session.expiry_s == 0:
            self._end(session)
        else:
            self.keeper.save_now(session, lambda: None)
            self.expire_later(session, now_ms())

    def new_client_id(self) -> str:
        return f"auto-{uuid.uuid4().hex}"

    def _sweep(self) -> None:
        now = self.loop.time()
        for connection in tuple(self.connections):
            if connection.session is None:
                if now - connection.active_at > _CONNECT_SECONDS:
                    connection.close()
            elif connection.keep_alive_s and now - connection.active_at > connection.keep_alive_s * 1.5:
                # [MQTT-3.1.2-22]
                connection.refuse(mqtt.KEEP_ALIVE_TIMEOUT, "nothing was heard for one and a half keep alives")
        self._sweeper = self.loop.call_later(_SWEEP_SECONDS, self._sweep)

    # --- sessions ---------------------------------------------------------------------------------------

    def take_session(
        self, connection: MqttConnection, client_id: str, packet: Connect
    ) -> tuple[Session, bool]:
        """The session for a CONNECT, and whether it was there before."""
        session = self.sessions.get(client_id)
        if session is not None and session.connection is not None:
            # [MQTT-3.1.4-3]
            old = session.connection
            old.refuse(mqtt.SESSION_TAKEN_OVER, "another connection has taken the session")
            if session.connection is old:
                self.closed(old)
            if session.expiry_s == 0:
                session = None
        expiring = self._expiring.pop(client_id, None)
        if expiring is not None:
            expiring.cancel()
        if session is not None and packet.clean_start:
            # [MQTT-3.1.2-4]
            self._end(session)
            session = None
        will = self._wills.pop(client_id, None)
        if will is not None:
            will[0].cancel()
        present = session is not None
        if session is None:
            session = self.sessions[client_id] = Session(self, client_id)
        session.expiry_s = self._expiry(packet)
        return session, present

    def expire_later(self, session: Session, since_ms: int) -> None:
        """Ends a session in its time, if its client does not come back."""
        seconds = min(session.expiry_s, self.limits.session_expiry_s_max) - (now_ms() - since_ms) / 1000
        self._expiring[session.client_id] = self.loop.call_later(max(seconds, 0), self._end, session)

    def _expiry(self, packet: Connect) -> int:
        if packet.version < mqtt.V5:
            return 0 if packet.clean_start else NEVER
        return int(packet.properties.get(mqtt.SESSION_EXPIRY_INTERVAL, 0))

    def offer(self, packet: Connect, client_id: str) -> dict[int, Any]:
        """What an MQTT 5 client is told of this broker."""
        limits = self.limits
        offered: dict[int, Any] = {
            mqtt.RECEIVE_MAXIMUM: min(limits.mqtt_in_flight_max, 65_535),
            mqtt.TOPIC_ALIAS_MAXIMUM: limits.mqtt_topic_aliases_max,
            mqtt.MAXIMUM_PACKET_SIZE: limits.mqtt_packet_bytes_max,
        }
        if not packet.client_id:
            # [MQTT-3.1.3-7]
            offered[mqtt.ASSIGNED_CLIENT_IDENTIFIER] = client_id
        if self._expiry(packet) > limits.session_expiry_s_max:
            # [3.2.2.3.2]
            offered[mqtt.SESSION_EXPIRY_INTERVAL] = limits.session_expiry_s_max
        return offered

    def _end(self, session: Session) -> None:
        expiring = self._expiring.pop(session.client_id, None)
        if expiring is not None:
            expiring.cancel()
        if self.sessions.get(session.client_id) is session:
            del self.sessions[session.client_id]
        session.end()
        self.keeper.forget(session)
        will = self._wills.pop(session.client_id, None)
        if will is not None:
            # [MQTT-3.1.3-9]: with the end of the session at the latest.
            will[0].cancel()
            self._publish_will(will[1])

    # --- wills ------------------------------------------------------------------------------------------

    def _lay_will(self, connection: MqttConnection, session: Session) -> None:
        will, connection.will = connection.will, None
        if will is None:
            return
        delay = int(will.properties.get(mqtt.WILL_DELAY_INTERVAL, 0))
        if not delay or not session.expiry_s:
            self._publish_will(will)
            return

        def publish() -> None:
            self._wills.pop(session.client_id, None)
            self._publish_will(will)

        self._wills[session.client_id] = (self.loop.call_later(delay, publish), will)

    def _publish_will(self, will: Will) -> None:
        self.loop.create_task(self._publish(will))

    async def _publish(self, will: Will) -> None:
        now = now_ms()
        try:
            if will.topic.startswith("$"):
                raise AddressError(f"{will.topic!r} is the broker's")
            target = await self.router.make_target(will.topic)
            expires = expiry_of(will, now)
            message = Message(
                will.topic,
                target.key,
                will.payload,
                headers_of(will, expires),
                self,
                will.qos,
                0,
                will.retain,
                expires,
            )
            target.partition.publish(message)
            if will.retain:
                self.retained.store(message)
        except (LogError, CatalogError, AddressError, OSError) as error:
            logger.error("mqtt: a will could not be published: %s", error)

    def stored(self, message: Message, error: LogError | None) -> None:
        """What became of a will."""
        if error is not None:
            logger.error("mqtt: a will could not be published: %s", error)
        elif message.retain:
            self.retained.show(message)

    # --- the end ----------------------------------------------------------------------------------------

    def stop_listening(self) -> None:
        self._listeners.close()

    async def close(self) -> None:
        self.stop_listening()
        await self.keeper.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in tuple(self.connections):
            connection.will = None
            if connection.session is not None:
                connection.refuse(mqtt.SERVER_SHUTTING_DOWN, "the broker is stopping")
            else:
                connection.close()
