"""Producers that go on through the broker's deaths, and what must be in the log afterwards.

A `Publisher` is a thread with a confluent-kafka producer. It numbers its records, keeps a bounded number of
them on the way, and remembers every acknowledgement with its partition and offset. `read_all` reads a topic
from its beginning to its end. The checks compare the two.
"""

import itertools
import random
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

KEYS = [f"key-{number}".encode() for number in range(11)]
# Clients look for a broker that comes back quickly, and give up only after the test would.
PATIENT: dict[str, Any] = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "socket.timeout.ms": 10_000,
    "log_level": 0,
}


def create_topic(bootstrap: str, topic: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **PATIENT})
    named = {name.replace("_", "."): value for name, value in config.items()}
    made = admin.create_topics([NewTopic(topic, partitions, 1, config=named)], request_timeout=10)
    for future in made.values():
        future.result(10)


class Client(threading.Thread):
    """A thread that ends with its test, also when that fails: one left behind can abort the whole run."""

    living: ClassVar[set["Client"]] = set()

    def __init__(self, name: str) -> None:
        super().__init__(daemon=True, name=name)
        self._ended = threading.Event()
        self.living.add(self)

    def end(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join(10)
        self.living.discard(self)


class Publisher(Client):
    """Publishes records `NAME NUMBER PADDING` until told to stop."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        name: str,
        *,
        idempotent: bool,
        on_the_way_max: int = 300,
        **config: Any,
    ) -> None:
        super().__init__(name)
        self.topic = topic
        self.idempotent = idempotent
        self.sent = 0
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.refused: dict[int, int] = {}
        self.keys: dict[int, bytes] = {}
        self.fault: BaseException | None = None
        self._on_the_way_max = on_the_way_max
        self._chance = random.Random(name)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "max.in.flight.requests.per.connection": 5,
                "linger.ms": 1,
                "batch.num.messages": 40,  # many small batches, so that there is much to tear
                "message.timeout.ms": 120_000,
                "request.timeout.ms": 5_000,
                "error_cb": self._failed,
                **PATIENT,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                for _ in range(20):
                    self.publish()
                self._producer.poll(0.005)
                while len(self._producer) >= self._on_the_way_max and not self._ended.is_set():
                    self._producer.poll(0.02)
        except BaseException as fault:
            self.fault = fault

    def publish(self, partition: int = -1, key: bytes | None = None) -> None:
        number = self.sent
        self.sent += 1
        key = self.keys[number] = self._chance.choice(KEYS) if key is None else key
        padding = "." * self._chance.choice((0, 50, 300, 1500))
        self._producer.produce(
            self.topic,
            f"{self.name} {number} {padding}".encode(),
            key,
            partition,
            on_delivery=lambda error, message: self._delivered(number, error, message),
        )

    def finish(self, seconds: float = 60.0) -> None:
        """No more records; returns when all those that are on the way have their answer."""
        self.end()
        if self.fault:
            raise self.fault
        assert self._producer.flush(seconds) == 0, f"{self.name}: no answer within {seconds} s"

    def wait_for_more(self, count: int, seconds: float = 30.0) -> None:
        """Returns when `count` more records have been acknowledged than now."""
        goal, deadline = len(self.acknowledged) + count, time.monotonic() + seconds
        while len(self.acknowledged) < goal:
            if self.fault:
                raise self.fault
            assert time.monotonic() < deadline, (
                f"{self.name}: {len(self.acknowledged)} of {goal} acknowledged"
            )
            self._ended.wait(0.005)

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged[number] = (message.partition(), message.offset())
        else:
            self.refused[number] = error.code()

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.fault = KafkaException(error)


Found = dict[tuple[int, int], bytes]  # (partition, offset) -> value


def read_all(bootstrap: str, topic: str, partitions: Iterable[int], seconds: float = 30.0) -> Found:
    """Every record of the topic, from the first to what is the end now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            **PATIENT,
        }
    )
    found: Found = {}
    left = set(partitions)
    deadline = time.monotonic() + seconds
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        while left:
            assert time.monotonic() < deadline, (
                f"{topic}: no end of {left} within {seconds} s, {len(found)} read"
            )
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    found[message.partition(), message.offset()] = message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                elif not error.retriable() and error.code() not in _AWAY:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found


_AWAY = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE}


class Watcher(Client):
    """Reads along while brokers come and go. What it has seen must not vanish."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__("watcher")
        self.seen: Found = {}
        self.faults: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": uuid.uuid4().hex,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                **PATIENT,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])

    def run(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(1000, 0.05):
                error = message.error()
                if error is None:
                    place = message.partition(), message.offset()
                    if self.seen.setdefault(place, message.value()) != message.value():
                        self.faults.append(f"{place} was read twice, and differs")
                elif error.code() not in _AWAY and not error.retriable():
                    self.faults.append(str(error))

    def finish(self) -> None:
        self.end()
        self._consumer.close()


def check_offsets_are_contiguous(found: Found) -> None:
    by_partition: dict[int, list[int]] = {}
    for partition, offset in found:
        by_partition.setdefault(partition, []).append(offset)
    for partition, offsets in by_partition.items():
        gaps = sorted(set(range(max(offsets) + 1)) - set(offsets))
        assert not gaps, f"partition {partition} ends at {max(offsets)} and lacks {len(gaps)}: {gaps[:20]}"


def check_acknowledged_are_there(publisher: Publisher, found: Found) -> None:
    """Every acknowledged record is there, at the place that the acknowledgement named."""
    numbers = {_number(value) for value in found.values() if value.startswith(publisher.name.encode() + b" ")}
    lost = sorted(set(publisher.acknowledged) - numbers)
    assert not lost, f"{publisher.name}: {len(lost)} acknowledged records are lost: {lost[:20]}"
    prefix = publisher.name.encode()
    moved = [
        (number, place)
        for number, place in publisher.acknowledged.items()
        if place[1] >= 0 and not found.get(place, b"").startswith(b"%s %d " % (prefix, number))
    ]
    assert not moved, f"{publisher.name}: {len(moved)} are not where it was said: {sorted(moved)[:20]}"


def check_newest_of_every_key_is_there(publisher: Publisher, found: Found) -> None:
    """In a compacted topic: of each key the newest acknowledged record, or an even newer one."""
    there: dict[bytes, int] = {}
    for place, value in found.items():
        if not value.startswith(publisher.name.encode() + b" "):
            continue
        number = _number(value)
        assert publisher.acknowledged.get(number, place) == place, f"{number} is at {place}"
        there[publisher.keys[number]] = max(number, there.get(publisher.keys[number], -1))
    for number in sorted(publisher.acknowledged):
        key = publisher.keys[number]
        assert there.get(key, -1) >= number, f"{key!r}: {number} was acknowledged, {there.get(key)} is there"


def check_in_order_and_once(publisher: Publisher, found: Found) -> None:
    by_partition: dict[int, list[int]] = {}
    for (partition, _), value in sorted(found.items()):
        if value.startswith(publisher.name.encode() + b" "):
            by_partition.setdefault(partition, []).append(_number(value))
    for partition, numbers in by_partition.items():
        for before, after in itertools.pairwise(numbers):
            assert before < after, f"{publisher.name}, partition {partition}: {after} comes after {before}"


def check_refused_are_not_there(publisher: Publisher, found: Found) -> None:
    numbers = {_number(value) for value in found.values() if value.startswith(publisher.name.encode() + b" ")}
    there = sorted(set(publisher.refused) & numbers)
    assert not there, f"{publisher.name}: {len(there)} refused records are there: {there[:20]}"


def check_seen_is_there(seen: Mapping[tuple[int, int], bytes], found: Found) -> None:
    vanished = sorted(place for place, value in seen.items() if found.get(place) != value)
    assert not vanished, f"{len(vanished)} records that were read have vanished: {vanished[:20]}"


def _number(value: bytes) -> int:
    return int(value.split(b" ")[1])
