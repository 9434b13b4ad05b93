"""aiomqtt."""

import asyncio
import socket
from typing import Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from .base import Connection, Properties, loop_thread
from .paho_client import from_paho, to_paho


class AiomqttConnection(Connection):
    name = "aiomqtt"

    def open(self) -> None:
        loop_thread().run(self._open())

    async def _open(self) -> None:
        options: dict[str, Any] = {"clean_session": self.clean}
        if self.version == 5:
            said = PahoProperties(PacketTypes.CONNECT)
            said.SessionExpiryInterval = 0 if self.clean else 60
            options = {"clean_start": self.clean, "properties": said}
        if self.will is not None:
            will = self.will
            options["will"] = aiomqtt.Will(will.topic, will.payload, will.qos, will.retain)
        self.client = aiomqtt.Client(
            self.host,
            self.port,
            identifier=self.client_id,
            protocol=aiomqtt.ProtocolVersion(self.version),
            **options,
        )
        await self.client.__aenter__()
        self.reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        async for message in self.client.messages:
            self.arrived.put(from_paho(message))

    def subscribe(self, filter: str, qos: int) -> None:
        granted: Any = loop_thread().run(self.client.subscribe(filter, qos))
        assert [getattr(code, "value", code) for code in granted] == [qos]

    def unsubscribe(self, filter: str) -> None:
        loop_thread().run(self.client.unsubscribe(filter))

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        said = to_paho(properties) if self.version == 5 else None
        loop_thread().run(self.client.publish(topic, payload, qos, retain, said))

    def disconnect(self) -> None:
        loop_thread().run(self._disconnect())

    async def _disconnect(self) -> None:
        self.reading.cancel()
        await self.client.__aexit__(None, None, None)

    def cut(self) -> None:
        self.client._client.socket().shutdown(socket.SHUT_RDWR)
