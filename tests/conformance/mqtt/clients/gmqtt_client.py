"""gmqtt."""

import asyncio
from typing import Any

import gmqtt
from gmqtt.mqtt.constants import MQTTv50, MQTTv311

from .base import PATIENCE_SECONDS, Connection, Message, Properties, loop_thread


def _from_gmqtt(topic: str, payload: Any, qos: int, said: dict[str, Any]) -> Message:
    def first(name: str) -> Any:
        return (said.get(name) or [None])[0]

    found = Properties(
        tuple(said.get("user_property", ())),
        first("content_type"),
        first("response_topic"),
        first("correlation_data"),
    )
    raw = payload.encode() if isinstance(payload, str) else bytes(payload)
    return Message(topic, raw, qos, bool(said["retain"]), found)


class GmqttConnection(Connection):
    name = "gmqtt"

    def open(self) -> None:
        loop_thread().run(self._open())

    async def _open(self) -> None:
        options: dict[str, Any] = {}
        if self.will is not None:
            will = self.will
            options["will_message"] = gmqtt.Message(will.topic, will.payload, will.qos, will.retain)
        if self.version == 5 and not self.clean:
            options["session_expiry_interval"] = 60
        self.client = gmqtt.Client(self.client_id, clean_session=self.clean, **options)
        self.client.set_config({"reconnect_retries": 0})
        connected = asyncio.get_running_loop().create_future()
        self.granted: asyncio.Queue[Any] = asyncio.Queue()
        self.given_back: asyncio.Queue[Any] = asyncio.Queue()

        def arrived(_client: Any, topic: str, payload: Any, qos: int, said: dict[str, Any]) -> int:
            self.arrived.put(_from_gmqtt(topic, payload, qos, said))
            return 0

        def on_connect(_client: Any, _flags: int, _code: int, _said: Any) -> None:
            if not connected.done():
                connected.set_result(None)

        self.client.on_message = arrived
        self.client.on_connect = on_connect
        self.client.on_subscribe = lambda _c, _id, codes, _p: self.granted.put_nowait(list(codes))
        self.client.on_unsubscribe = lambda _c, _id, _p: self.given_back.put_nowait(None)
        version = MQTTv50 if self.version == 5 else MQTTv311
        await self.client.connect(self.host, self.port, keepalive=30, version=version)
        await asyncio.wait_for(connected, PATIENCE_SECONDS)

    def subscribe(self, filter: str, qos: int) -> None:
        async def subscribe() -> list[int]:
            self.client.subscribe(filter, qos=qos)
            return await self.granted.get()

        assert loop_thread().run(subscribe()) == [qos]

    def unsubscribe(self, filter: str) -> None:
        async def unsubscribe() -> None:
            self.client.unsubscribe(filter)
            await self.given_back.get()

        loop_thread().run(unsubscribe())

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        async def publish() -> None:
            said: dict[str, Any] = {}
            if properties is not None and self.version == 5:
                said = {
                    "user_property": list(properties.user),
                    "content_type": properties.content_type,
                    "response_topic": properties.response_topic,
                    "correlation_data": properties.correlation_data,
                }
                said = {name: value for name, value in said.items() if value}
            self.client.publish(topic, payload, qos=qos, retain=retain, **said)
            # It has no way to wait for an acknowledgement but to look at what it still stores.
            while not self.client._persistent_storage.is_empty:
                await asyncio.sleep(0.001)

        loop_thread().run(publish())

    def disconnect(self) -> None:
        loop_thread().run(self.client.disconnect())

    def cut(self) -> None:
        loop_thread().loop.call_soon_threadsafe(self.client._connection._transport.abort)
