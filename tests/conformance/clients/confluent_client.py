"""confluent-kafka: librdkafka of today, from Python."""

import time
from collections.abc import Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import Message as Received

from .base import PATIENCE_SECONDS, Client, Member, Membership, Message, Record, ThreadMember, TooLarge


def _record(received: Received) -> Record:
    return Record(
        received.partition(),
        received.offset(),
        received.timestamp()[1],
        received.key(),
        received.value(),
        tuple(received.headers() or ()),
    )


def _checked(received: Received) -> Record:
    if received.error():
        raise KafkaException(received.error())
    return _record(received)


class ConfluentClient(Client):
    name = "confluent-kafka"

    def produce(
        self, topic: str, messages: Sequence[Message], *, compression: str = "none", idempotent: bool = False
    ) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": compression,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 5,
                "message.max.bytes": 10_000_000,
            }
        )
        errors: list[KafkaError] = []
        for message in messages:
            producer.produce(
                topic,
                message.value,
                message.key,
                message.partition,
                on_delivery=lambda error, _: errors.append(error) if error else None,
                timestamp=message.timestamp or 0,
                headers=list(message.headers),
            )
        assert producer.flush(PATIENCE_SECONDS) == 0, "not all was acknowledged in time"
        if errors and errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise TooLarge(errors[0])
        if errors:
            raise KafkaException(errors[0])

    def _consumer(self, **options: object) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "check.crcs": True,
                **options,
            }
        )

    def read(
        self, topic: str, count: int, partitions: Sequence[int] = (0,), *, from_time: int | None = None
    ) -> list[Record]:
        consumer = self._consumer()
        try:
            starts = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions]
            if from_time is not None:
                asked = [TopicPartition(topic, partition, from_time) for partition in partitions]
                starts = consumer.offsets_for_times(asked, timeout=PATIENCE_SECONDS)
            consumer.assign(starts)
            records: list[Record] = []
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(records) < count and time.monotonic() < deadline:
                records += map(_checked, consumer.consume(count - len(records), 0.1))
            return records
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, partition: int, time: int) -> int | None:
        consumer = self._consumer()
        try:
            asked = TopicPartition(topic, partition, time)
            [answer] = consumer.offsets_for_times([asked], timeout=PATIENCE_SECONDS)
            assert answer.error is None, answer.error
            return answer.offset if answer.offset >= 0 else None
        finally:
            consumer.close()

    def join(self, membership: Membership) -> Member:
        options: dict[str, object] = {
            "group.id": membership.group,
            "session.timeout.ms": membership.session_timeout_ms,
            "heartbeat.interval.ms": 100,
            "fetch.wait.max.ms": membership.fetch_wait_ms,
            "partition.assignment.strategy": "cooperative-sticky" if membership.cooperative else "range",
        }
        if membership.instance_id is not None:
            options["group.instance.id"] = membership.instance_id
        return _ConfluentMember(membership.name, self._consumer(**options), membership.topic)


class _ConfluentMember(ThreadMember):
    def __init__(self, name: str, consumer: Consumer, topic: str) -> None:
        self.consumer = consumer
        self.topic = topic
        super().__init__(name)

    def work(self) -> None:
        def on_change(consumer: Consumer, changed: list[TopicPartition]) -> None:
            self.changed = True

        def on_revoke(consumer: Consumer, revoked: list[TopicPartition]) -> None:
            self.revoked({item.partition for item in revoked})

        self.changed = False
        self.consumer.subscribe([self.topic], on_assign=on_change, on_revoke=on_revoke)
        while not self.stopping.is_set():
            records = [_checked(item) for item in self.consumer.consume(500, 0.05)]
            if self.changed:
                self.changed = False
                self.assigned({item.partition for item in self.consumer.assignment()})
            if records:
                self.records += records
                self.consumer.commit(asynchronous=False)
                self.committed = len(self.records)
        self.consumer.close()  # a static member stays in the group: that is what group.instance.id is for
