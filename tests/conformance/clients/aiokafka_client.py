"""aiokafka: asyncio, and the oldest protocol versions of all the clients here."""

import asyncio
import time
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.structs import ConsumerRecord

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


class AiokafkaClient(Client):
    name = "aiokafka"
    cooperates = False

    def produce(
        self, topic: str, messages: Sequence[Message], *, compression: str = "none", idempotent: bool = False
    ) -> None:
        asyncio.run(self._produce(topic, messages, compression, idempotent))

    async def _produce(
        self, topic: str, messages: Sequence[Message], compression: str, idempotent: bool
    ) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks="all",
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=10_000_000,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic,
                    message.value,
                    message.key,
                    message.partition,
                    message.timestamp,
                    list(message.headers),
                )
                for message in messages
            ]
            await asyncio.wait_for(asyncio.gather(*futures), PATIENCE_SECONDS)
        except MessageSizeTooLargeError as error:
            raise TooLarge(error) from error
        finally:
            await producer.stop()

    def read(
        self, topic: str, count: int, partitions: Sequence[int] = (0,), *, from_time: int | None = None
    ) -> list[Record]:
        return asyncio.run(self._read(topic, count, partitions, from_time))

    async def _read(
        self, topic: str, count: int, partitions: Sequence[int], from_time: int | None
    ) -> list[Record]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest")
        consumer.assign([TopicPartition(topic, partition) for partition in partitions])
        await consumer.start()
        try:
            if from_time is not None:
                asked = {TopicPartition(topic, partition): from_time for partition in partitions}
                for partition, found in (await consumer.offsets_for_times(asked)).items():
                    consumer.seek(partition, found.offset)
            records: list[Record] = []
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(records) < count and time.monotonic() < deadline:
                for received in (await consumer.getmany(timeout_ms=100)).values():
                    records += map(_record, received)
            return records
        finally:
            await consumer.stop()

    def offset_for_time(self, topic: str, partition: int, time: int) -> int | None:
        return asyncio.run(self._offset_for_time(TopicPartition(topic, partition), time))

    async def _offset_for_time(self, asked: TopicPartition, time: int) -> int | None:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap)
        consumer.assign([asked])
        await consumer.start()
        try:
            found = (await consumer.offsets_for_times({asked: time}))[asked]
            return None if found is None else int(found.offset)
        finally:
            await consumer.stop()

    def join(self, membership: Membership) -> Member:
        assert not membership.cooperative, "aiokafka has no cooperative assignor"
        options = {
            "bootstrap_servers": self.bootstrap,
            "group_id": membership.group,
            "group_instance_id": membership.instance_id,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": membership.session_timeout_ms,
            "heartbeat_interval_ms": 100,
            "fetch_max_wait_ms": membership.fetch_wait_ms,
        }
        return _AiokafkaMember(membership.name, membership.topic, options)


class _AiokafkaMember(ThreadMember, ConsumerRebalanceListener):
    def __init__(self, name: str, topic: str, options: dict[str, object]) -> None:
        self.topic = topic
        self.options = options
        super().__init__(name)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.revoked({item.partition for item in revoked})

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.assigned({item.partition for item in assigned})

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        consumer = AIOKafkaConsumer(**self.options)
        consumer.subscribe([self.topic], listener=self)
        await consumer.start()
        try:
            while not self.stopping.is_set():
                polled = await consumer.getmany(timeout_ms=50)
                if polled:
                    self.records += [_record(item) for items in polled.values() for item in items]
                    await consumer.commit()
                    self.committed = len(self.records)
        finally:
            await consumer.stop()
