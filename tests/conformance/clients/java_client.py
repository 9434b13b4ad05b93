"""The Java client of Apache Kafka, through a small driver program that lives in ../java.

One JVM serves the whole test session. Requests and answers are lines; java/.../Driver.java says how.
"""

import base64
import itertools
import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from .base import PATIENCE_SECONDS, Client, Member, Membership, Message, Record, TooLarge

Fields = list[str]


def _field(value: bytes | None) -> str:
    return "-" if value is None else base64.b64encode(value).decode()


def _bytes(field: str) -> bytes | None:
    return None if field == "-" else base64.b64decode(field)


def _record(fields: Fields) -> Record:
    partition, offset, timestamp, key, value, *flat = fields
    headers = tuple(
        ((_bytes(name) or b"").decode(), _bytes(content))
        for name, content in zip(flat[::2], flat[1::2], strict=True)
    )
    return Record(int(partition), int(offset), int(timestamp), _bytes(key), _bytes(value), headers)


class JavaError(Exception):
    """An exception in the Java client: its class and its message."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class JavaDriver:
    """The JVM with the driver program in it."""

    def __init__(self, built: Path, log: Path) -> None:
        classpath = f"{built}/classes:{built}/lib/*"
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        self._ids = map(str, itertools.count(1))
        self._listeners: dict[str, Callable[[Fields], None]] = {}
        self._lock = threading.Lock()
        with open(log, "wb") as errors:
            self.process = subprocess.Popen(
                ["java", *options, "-cp", classpath, "fanlog.conformance.Driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            identity, *fields = line.rstrip("\n").split("\t")
            self._listeners[identity](fields)

    def send(self, heard: Callable[[Fields], None], *fields: str) -> str:
        """Send a request; `heard` is called with the fields of each line of its answer."""
        assert self.process.stdin is not None
        with self._lock:
            identity = next(self._ids)
            self._listeners[identity] = heard
            self.process.stdin.write("\t".join((identity, *fields)) + "\n")
            self.process.stdin.flush()
        return identity

    def ask(self, *fields: str) -> tuple[Fields, list[Record]]:
        """Send a request and wait for its end; what came with it and the records that came before."""
        heard: queue.Queue[Fields] = queue.Queue()
        self.send(heard.put, *fields)
        records = []
        while True:
            kind, *rest = heard.get(timeout=2 * PATIENCE_SECONDS)
            if kind == "ok":
                return rest, records
            if kind == "error":
                raise JavaError(*rest)
            records.append(_record(rest))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE_SECONDS)
        finally:
            self.process.kill()


class JavaClient(Client):
    name = "java"

    def __init__(self, bootstrap: str, driver: JavaDriver) -> None:
        super().__init__(bootstrap)
        self.driver = driver

    def produce(
        self, topic: str, messages: Sequence[Message], *, compression: str = "none", idempotent: bool = False
    ) -> None:
        lines = []
        for message in messages:
            time = "-" if message.timestamp is None else str(message.timestamp)
            parts = [str(message.partition), time, _field(message.key), _field(message.value)]
            for name, value in message.headers:
                parts += [_field(name.encode()), _field(value)]
            lines.append(":".join(parts))
        try:
            self.driver.ask("produce", self.bootstrap, topic, compression, str(idempotent).lower(), *lines)
        except JavaError as error:
            if error.kind == "RecordTooLargeException":
                raise TooLarge(error) from error
            raise

    def read(
        self, topic: str, count: int, partitions: Sequence[int] = (0,), *, from_time: int | None = None
    ) -> list[Record]:
        time = "-" if from_time is None else str(from_time)
        _, records = self.driver.ask("read", self.bootstrap, topic, str(count), time, *map(str, partitions))
        return records

    def offset_for_time(self, topic: str, partition: int, time: int) -> int | None:
        [offset], _ = self.driver.ask("offset_for_time", self.bootstrap, topic, str(partition), str(time))
        return None if offset == "-" else int(offset)

    def join(self, membership: Membership) -> Member:
        options = [membership.instance_id or "-", str(membership.cooperative).lower()]
        options += [str(membership.fetch_wait_ms), str(membership.session_timeout_ms)]
        return _JavaMember(
            membership.name,
            self.driver,
            ["join", self.bootstrap, membership.group, membership.topic, *options],
        )


class _JavaMember(Member):
    def __init__(self, name: str, driver: JavaDriver, request: Fields) -> None:
        super().__init__(name)
        self.driver = driver
        self.identity = driver.send(self._heard, *request)

    def _heard(self, fields: Fields) -> None:
        kind, *rest = fields
        if kind == "record":
            self.records.append(_record(rest))
        elif kind == "assigned":
            self.assigned({int(number) for number in rest[0].split(",") if number})
        elif kind == "revoked":
            self.revoked({int(number) for number in rest[0].split(",") if number})
        elif kind == "error":
            self.failure = JavaError(*rest)

    def close(self) -> None:
        self.driver.ask("close", self.identity)
        self.check()

    def vanish(self) -> None:
        self.close()  # with group.instance.id, closing does not leave
