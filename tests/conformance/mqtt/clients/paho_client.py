"""Eclipse Paho for Python."""

import queue
import socket
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from .base import PATIENCE_SECONDS, Connection, Message, Properties


def to_paho(properties: Properties | None) -> PahoProperties | None:
    if properties is None:
        return None
    said = PahoProperties(PacketTypes.PUBLISH)
    if properties.user:
        said.UserProperty = list(properties.user)
    if properties.content_type is not None:
        said.ContentType = properties.content_type
    if properties.response_topic is not None:
        said.ResponseTopic = properties.response_topic
    if properties.correlation_data is not None:
        said.CorrelationData = properties.correlation_data
    return said


def from_paho(message: Any) -> Message:
    said = getattr(message, "properties", None)
    found = Properties(
        tuple(getattr(said, "UserProperty", ())),
        getattr(said, "ContentType", None),
        getattr(said, "ResponseTopic", None),
        getattr(said, "CorrelationData", None),
    )
    return Message(str(message.topic), message.payload, message.qos, bool(message.retain), found)


class PahoConnection(Connection):
    name = "paho-mqtt"

    def open(self) -> None:
        options: dict[str, Any] = {"clean_session": self.clean} if self.version == 4 else {}
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            self.client_id,
            protocol=self.version,
            reconnect_on_failure=False,
            **options,
        )
        answers: queue.Queue[Any] = queue.Queue()
        self.subscribed: queue.Queue[Any] = queue.Queue()
        self.unsubscribed: queue.Queue[Any] = queue.Queue()
        self.client.on_connect = lambda _c, _u, flags, code, _p: answers.put((flags, code))
        self.client.on_message = lambda _c, _u, message: self.arrived.put(from_paho(message))
        self.client.on_subscribe = lambda _c, _u, _id, codes, _p: self.subscribed.put(codes)
        self.client.on_unsubscribe = lambda _c, _u, _id, _codes, _p: self.unsubscribed.put(None)
        if self.will is not None:
            self.client.will_set(self.will.topic, self.will.payload, self.will.qos, self.will.retain)
        said = None
        if self.version == 5 and not self.clean:
            said = PahoProperties(PacketTypes.CONNECT)
            said.SessionExpiryInterval = 60
        start: dict[str, Any] = {"clean_start": self.clean, "properties": said} if self.version == 5 else {}
        self.client.connect(self.host, self.port, 30, **start)
        self.client.loop_start()
        flags, code = answers.get(timeout=PATIENCE_SECONDS)
        assert not code.is_failure, code
        self.session_present = flags.session_present

    def subscribe(self, filter: str, qos: int) -> None:
        self.client.subscribe(filter, qos)
        assert [code.value for code in self.subscribed.get(timeout=PATIENCE_SECONDS)] == [qos]

    def unsubscribe(self, filter: str) -> None:
        self.client.unsubscribe(filter)
        self.unsubscribed.get(timeout=PATIENCE_SECONDS)

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        said = to_paho(properties) if self.version == 5 else None
        self.client.publish(topic, payload, qos, retain, said).wait_for_publish(PATIENCE_SECONDS)

    def disconnect(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def cut(self) -> None:
        self.client.socket().shutdown(socket.SHUT_RDWR)
        self.client.loop_stop()
