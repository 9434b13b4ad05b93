"""kafka-python 3: pure Python, its own protocol schemas."""

import time
from collections.abc import Sequence

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import MessageSizeTooLargeError

from .base import PATIENCE_SECONDS, Client, Member, Membership, Message, Record, ThreadMember, TooLarge


def _record(received: ConsumerRecord) -> Record:
    return Record(
        received.partition,
        received.offset,
        received.timestamp,
        received.key,
        received.value,
        tuple(received.headers),
    )


class KafkaPythonClient(Client):
    name = "kafka-python"

    def produce(
        self, topic: str, messages: Sequence[Message], *, compression: str = "none", idempotent: bool = False
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks="all",
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=10_000_000,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    message.value,
                    message.key,
                    list(message.headers),
                    message.partition,
                    message.timestamp,
                )
                for message in messages
            ]
            producer.flush(PATIENCE_SECONDS)
            for future in futures:
                future.get(PATIENCE_SECONDS)
        except MessageSizeTooLargeError as error:
            raise TooLarge(error) from error
        finally:
            producer.close(PATIENCE_SECONDS)

    def _consumer(self, **options: object) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            **options,
        )

    def read(
        self, topic: str, count: int, partitions: Sequence[int] = (0,), *, from_time: int | None = None
    ) -> list[Record]:
        consumer = self._consumer()
        try:
            consumer.assign([TopicPartition(topic, partition) for partition in partitions])
            if from_time is not None:
                asked = {TopicPartition(topic, partition): from_time for partition in partitions}
                for partition, found in consumer.offsets_for_times(asked).items():
                    consumer.seek(partition, found.offset)
            records: list[Record] = []
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(records) < count and time.monotonic() < deadline:
                for received in consumer.poll(timeout_ms=100).values():
                    records += map(_record, received)
            return records
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, partition: int, time: int) -> int | None:
        consumer = self._consumer()
        try:
            asked = TopicPartition(topic, partition)
            found = consumer.offsets_for_times({asked: time})[asked]
            return None if found is None else int(found.offset)
        finally:
            consumer.close()

    def join(self, membership: Membership) -> Member:
        consumer = self._consumer(
            group_id=membership.group,
            group_instance_id=membership.instance_id,
            session_timeout_ms=membership.session_timeout_ms,
            heartbeat_interval_ms=100,
            fetch_max_wait_ms=membership.fetch_wait_ms,
            partition_assignment_strategy=[
                CooperativeStickyAssignor if membership.cooperative else RangePartitionAssignor
            ],
        )
        return _KafkaPythonMember(membership.name, consumer, membership.topic)


class _KafkaPythonMember(ThreadMember, ConsumerRebalanceListener):
    def __init__(self, name: str, consumer: KafkaConsumer, topic: str) -> None:
        self.consumer = consumer
        self.topic = topic
        self.changed = False
        super().__init__(name)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.revoked({item.partition for item in revoked})

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.changed = True

    def work(self) -> None:
        self.consumer.subscribe([self.topic], listener=self)
        while not self.stopping.is_set():
            polled = self.consumer.poll(timeout_ms=50)
            if self.changed:
                self.changed = False
                self.assigned({item.partition for item in self.consumer.assignment()})
            if polled:
                self.records += [_record(item) for items in polled.values() for item in items]
                self.consumer.commit()
                self.committed = len(self.records)
        self.consumer.close()
