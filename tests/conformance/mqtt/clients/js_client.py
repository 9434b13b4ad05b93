"""mqtt.js, through the small driver program in ../js. One Node process serves the whole test session."""

import base64
import itertools
import json
import os
import queue
import subprocess
import threading
from pathlib import Path
from typing import Any

from .base import PATIENCE_SECONDS, Connection, Message, Properties

DRIVER = Path(__file__).parents[1] / "js" / "driver.js"


class JsDriver:
    def __init__(self, modules: Path) -> None:
        self._ids = itertools.count(1)
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self.connections: dict[str, JsConnection] = {}
        self.process = subprocess.Popen(
            ["node", str(DRIVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NODE_PATH": str(modules)},
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            if said["event"] == "answer":
                self._answers[said["id"]].put(said)
            else:
                self.connections[said["client"]].take(said)

    def ask(self, verb: str, **request: Any) -> Any:
        number = next(self._ids)
        answer: queue.Queue[dict[str, Any]] = queue.Queue()
        self._answers[number] = answer
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"id": number, "verb": verb, **request}) + "\n")
        self.process.stdin.flush()
        said = answer.get(timeout=PATIENCE_SECONDS)
        assert said["error"] is None, said["error"]
        return said["result"]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class JsConnection(Connection):
    name = "mqtt.js"
    driver: JsDriver
    _numbers = itertools.count(1)

    def open(self) -> None:
        self.key = f"{self.client_id}-{next(self._numbers)}"
        self.driver.connections[self.key] = self
        options: dict[str, Any] = {
            "clientId": self.client_id,
            "protocolVersion": self.version,
            "clean": self.clean,
        }
        if self.version == 5 and not self.clean:
            options["properties"] = {"sessionExpiryInterval": 60}
        if self.will is not None:
            will = self.will
            payload = base64.b64encode(will.payload).decode()
            options["will"] = {
                "topic": will.topic,
                "payload": payload,
                "qos": will.qos,
                "retain": will.retain,
            }
        url = f"mqtt://{self.host}:{self.port}"
        self._ask("connect", url=url, options=options)

    def _ask(self, verb: str, **request: Any) -> Any:
        return self.driver.ask(verb, client=self.key, **request)

    def take(self, said: dict[str, Any]) -> None:
        given = said["properties"]
        user = [
            (name, value)
            for name, values in (given.get("userProperties") or {}).items()
            for value in (values if isinstance(values, list) else [values])
        ]
        correlation = given.get("correlationData")
        found = Properties(
            tuple(user),
            given.get("contentType"),
            given.get("responseTopic"),
            None if correlation is None else base64.b64decode(correlation),
        )
        payload = base64.b64decode(said["payload"])
        self.arrived.put(Message(said["topic"], payload, said["qos"], said["retain"], found))

    def subscribe(self, filter: str, qos: int) -> None:
        assert self._ask("subscribe", filter=filter, options={"qos": qos})["granted"] == [qos]

    def unsubscribe(self, filter: str) -> None:
        self._ask("unsubscribe", filter=filter)

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        said: dict[str, Any] = {}
        if properties is not None and self.version == 5:
            said["userProperties"] = dict(properties.user)
            said["contentType"] = properties.content_type
            said["responseTopic"] = properties.response_topic
            if properties.correlation_data is not None:
                said["correlationData"] = base64.b64encode(properties.correlation_data).decode()
        said = {name: value for name, value in said.items() if value}
        options = {"qos": qos, "retain": retain, "properties": said}
        encoded = base64.b64encode(payload).decode()
        self._ask("publish", topic=topic, payload=encoded, options=options)

    def disconnect(self) -> None:
        self._ask("disconnect")

    def cut(self) -> None:
        self._ask("cut")
