"""What the demo is made of: a broker in its own process, devices that publish, members that read.

The broker is the real command, started as a user would, on free ports; after a crash it gets the same port
again, so that the clients find it by themselves. The clients are plain confluent-kafka. Only their reconnect
delay is shorter than its default, for a demo should not spend its time waiting.
"""

import json
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fanlog.cli import connection, moments
from fanlog.cli.output import Trouble

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

START_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 15.0
Reading = tuple[str, int]


class BrokerProcess:
    """`fanlog serve` on free ports; its log is in the home directory beside its data."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.kafka = "127.0.0.1:0"
        self.process: subprocess.Popen[str] | None = None
        home.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    def start(self) -> float:
        """Seconds until it was ready."""
        begin = time.monotonic()
        doors = ["--kafka", self.kafka, "--http", "127.0.0.1:0", "--mqtt", "none", "--grpc", "none"]
        command = [sys.executable, "-m", "fanlog", "serve", "--data", str(self.home / "data"), *doors]
        with (self.home / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--lbroker", "none"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        line = self._first_line(begin + START_SECONDS_MAX)
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if not line.startswith("ready") or "kafka" not in words:
            self.kill()
            log_end = (self.home / "broker.log").read_text(errors="replace")[-2000:]
            raise Trouble(f"the broker did not start; its log ends:\n{log_end}")
        self.kafka = words["kafka"]
        return time.monotonic() - begin

    def _first_line(self, deadline: float) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
        return self.process.stdout.readline() if ready else ""

    def kill(self) -> int:
        """SIGKILL: no chance to flush or say goodbye."""
        return self._end(signal.SIGKILL)[0]

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM)[1]

    def _end(self, how: signal.Signals) -> tuple[int, int]:
        process, self.process = self.process, None
        if process is None:
            return 0, 0
        process.send_signal(how)
        try:
            code = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if process.stdout:
            process.stdout.close()
        return process.pid, code


class Fleet:
    """Devices that publish readings; `receipts` has the place that each acknowledged one was given."""

    def __init__(self, broker: str, topic: str, devices: int, total: int) -> None:
        from confluent_kafka import Producer

        self.topic = topic
        self.devices = [f"site{1 + number % 3}/dev{number:02d}/temperature" for number in range(devices)]
        self.total = total
        self.sent = 0
        self.refused = 0
        self.receipts: dict[Reading, tuple[int, int]] = {}
        self.producer = Producer(
            connection.properties(broker, client_id="devices", enable_idempotence=True, linger_ms=2)
        )

    @property
    def acknowledged(self) -> int:
        return len(self.receipts)

    @property
    def in_flight(self) -> int:
        return self.sent - self.acknowledged - self.refused

    def publish(self, until: int) -> None:
        """The next readings, a few per device at a time, as devices do."""
        for _ in range(min(len(self.devices) * 5, max(until - self.sent, 0))):
            self._publish_one()
        self.producer.poll(0.005)

    def publish_more(self, count: int) -> None:
        """Readings handed to the client without a look at what is acknowledged."""
        for _ in range(min(count, self.total - self.sent)):
            self._publish_one()

    def _publish_one(self) -> None:
        device = self.devices[self.sent % len(self.devices)]
        sequence = self.sent // len(self.devices)
        value = json.dumps({"sequence": sequence, "celsius": round(20 + (sequence * 7 % 50) / 10, 1)})
        self.producer.produce(self.topic, value, device, on_delivery=self._delivered)
        self.sent += 1

    def _delivered(self, error: "KafkaError | None", message: "Message") -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            self.refused += 1
        else:
            self.receipts[reading_of(message)] = (partition, offset)


def reading_of(message: "Message") -> Reading:
    key, value = message.key() or b"", message.value() or b"{}"
    device = key.decode() if isinstance(key, bytes) else key
    return device, json.loads(value)["sequence"]


class Member:
    """One member of the group, in a thread of its own."""

    def __init__(self, broker: str, topic: str, group: str, name: str) -> None:
        from confluent_kafka import Consumer

        self.name = name
        self.topic = topic
        self.count = 0
        self.seen: frozenset[Reading] = frozenset()
        self.partitions: list[int] = []
        self.failure: BaseException | None = None
        self._ending = threading.Event()
        self.consumer: Consumer = Consumer(
            connection.properties(
                broker,
                client_id=name,
                group_id=group,
                auto_offset_reset="earliest",
                auto_commit_interval_ms=500,
                session_timeout_ms=6000,
                heartbeat_interval_ms=500,
            )
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.consumer.subscribe([self.topic], on_assign=self._assigned, on_revoke=self._revoked)
            while not self._ending.is_set():
                messages = [each for each in self.consumer.consume(500, timeout=0.05) if each.error() is None]
                if messages:
                    self.seen |= {reading_of(each) for each in messages}
                    self.count += len(messages)
            self.consumer.close()
        except Exception as error:
            self.failure = error

    def _assigned(self, _: "Consumer", partitions: "list[TopicPartition]") -> None:
        self.partitions = [each.partition for each in partitions]

    def _revoked(self, _: "Consumer", __: "list[TopicPartition]") -> None:
        self.partitions = []

    def check(self) -> None:
        if self.failure is not None:
            raise Trouble(f"{self.name} failed: {self.failure}")

    def stop(self) -> None:
        """Leaves the group, with what was read committed."""
        self._ending.set()
        self._thread.join(STOP_SECONDS_MAX)


def create_topic(broker: str, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import NewTopic

    client = connection.admin(broker)
    wish = NewTopic(
        topic, num_partitions=partitions, replication_factor=1, config={"fanlog.durability": "disk"}
    )
    connection.wait(client.create_topics([wish]), f"could not create {topic}")


def read_all(broker: str, topic: str, partitions: int) -> dict[int, list[tuple[int, Reading]]]:
    """Every record of the topic with its offset, in order, per partition, by a client that knows nothing."""
    from confluent_kafka import Consumer, TopicPartition

    places = [TopicPartition(topic, number) for number in range(partitions)]
    ends = moments.offsets(connection.admin(broker), places, moments.Place("latest"))
    held: dict[int, list[tuple[int, Reading]]] = {number: [] for number in range(partitions)}
    properties = connection.properties(broker, group_id="fanlog-demo-audit", enable_auto_commit=False)
    consumer = Consumer(properties)
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        deadline = time.monotonic() + START_SECONDS_MAX
        while any(not _complete(held[number], ends[topic, number]) for number in held):
            if time.monotonic() > deadline:
                raise Trouble("the topic could not be read to its end")
            for message in consumer.consume(1000, timeout=0.1):
                if message.error() is None:
                    held[message.partition() or 0].append((message.offset() or 0, reading_of(message)))
    finally:
        consumer.close()
    return held


def _complete(held: list[tuple[int, Reading]], end: int) -> bool:
    return end == 0 or (bool(held) and held[-1][0] >= end - 1)


def lag(broker: str, group: str) -> int:
    from fanlog.cli.groups import progress

    found: list[Any] = progress(connection.admin(broker), group, {})
    return sum(each.end if each.lag is None else each.lag for each in found)
