"""Consumers of a stock client stay what they are while the broker is killed and comes back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.process import BrokerProcess, wait_for

PARTITIONS = 4
PATIENCE_SECONDS = 30.0


class Reader:
    """A member of the group, and all that was assigned to it, taken from it and read by it."""

    def __init__(self, kafka: str, name: str, **config: object) -> None:
        self.assigned: list[list[int]] = []
        self.revoked: list[list[int]] = []
        self.values: list[bytes] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "readers",
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 20_000,
                "heartbeat.interval.ms": 200,
                "reconnect.backoff.max.ms": 200,
                **config,
            }
        )
        self.consumer.subscribe(["orders"], on_assign=self._assign, on_revoke=self._revoke)

    def _assign(self, _: Any, places: list[TopicPartition]) -> None:
        self.assigned.append(sorted(place.partition for place in places))

    def _revoke(self, _: Any, places: list[TopicPartition]) -> None:
        self.revoked.append(sorted(place.partition for place in places))

    def poll(self) -> None:
        message = self.consumer.poll(0.01)
        if message is not None and message.error() is None:
            self.values.append(message.value() or b"")


@contextmanager
def two_readers(kafka: str) -> Iterator[tuple[Reader, Reader]]:
    readers = Reader(kafka, "first"), Reader(kafka, "second")
    try:
        yield readers
    finally:
        for reader in readers:
            reader.consumer.close()


def produce(kafka: str, count: int, word: str) -> set[bytes]:
    producer = Producer({"bootstrap.servers": kafka})
    values = {f"{word} {number}".encode() for number in range(count)}
    for number, value in enumerate(sorted(values)):
        producer.produce("orders", value, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return values


def read_all(readers: tuple[Reader, ...], wanted: set[bytes]) -> None:
    def complete() -> bool:
        for reader in readers:
            reader.poll()
        return wanted <= {value for reader in readers for value in reader.values}

    wait_for(f"{len(wanted)} records", complete, PATIENCE_SECONDS)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_broker_that_comes_back_forces_no_rebalance(start_broker: Any, how: str) -> None:
    broker: BrokerProcess = start_broker()
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(PATIENCE_SECONDS)
    with two_readers(broker.kafka) as readers:

        def shared() -> bool:
            for reader in readers:
                reader.poll()
            return all(reader.assigned and len(reader.assigned[-1]) == 2 for reader in readers)

        wait_for("both to have their part", shared, PATIENCE_SECONDS)
        before = produce(broker.kafka, 40, "before")
        read_all(readers, before)
        for reader in readers:
            reader.consumer.commit(asynchronous=False)
        known = [(list(reader.assigned), list(reader.revoked)) for reader in readers]

        getattr(broker, how)()
        broker.start()
        after = produce(broker.kafka, 40, "after")
        read_all(readers, after)
        for reader in readers:
            reader.consumer.commit(asynchronous=False)

        assert [(reader.assigned, reader.revoked) for reader in readers] == known
        places = [TopicPartition("orders", number) for number in range(PARTITIONS)]
        committed = readers[0].consumer.committed(places, PATIENCE_SECONDS)
        assert [place.offset for place in committed] == [20] * PARTITIONS
        assert len(readers[0].values + readers[1].values) == len(before | after)
