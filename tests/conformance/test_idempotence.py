"""Idempotent producers: what is sent twice is stored once."""

import struct

import crc32c
import pytest

from conftest import StartBroker
from support.process import BrokerProcess

from . import raw
from .clients import Client, ConfluentClient, Message

OUT_OF_ORDER_SEQUENCE_NUMBER = 45


def numbered(count: int, first: int = 0) -> list[Message]:
    return [Message(b"%d" % n, b"k") for n in range(first, first + count)]


def with_sequence(batch: raw.Batch, sequence: int) -> bytes:
    """The batch with another base sequence, and the checksum to go with it."""
    content = bytearray(batch.content)
    struct.pack_into(">i", content, 53, sequence)
    struct.pack_into(">I", content, 17, crc32c.crc32c(bytes(content[21:])))
    return bytes(content)


def test_an_idempotent_producer_numbers_its_batches(
    client: Client, topic: str, broker: BrokerProcess
) -> None:
    client.produce(topic, numbered(100), idempotent=True)

    assert [record.value for record in client.read(topic, 100)] == [b"%d" % n for n in range(100)]
    batches = raw.fetch(broker.kafka, topic)
    assert all(batch.producer_id >= 0 and batch.producer_epoch >= 0 for batch in batches)
    assert len({batch.producer_id for batch in batches}) == 1
    assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches]


def test_every_idempotent_producer_has_an_id_of_its_own(
    client: Client, topic: str, broker: BrokerProcess
) -> None:
    for _ in range(2):
        client.produce(topic, numbered(1), idempotent=True)

    assert len({batch.producer_id for batch in raw.fetch(broker.kafka, topic)}) == 2


def test_a_batch_that_is_sent_again_is_acknowledged_and_not_stored_again(
    confluent: Client, topic: str, broker: BrokerProcess
) -> None:
    confluent.produce(topic, numbered(10), idempotent=True)
    [*_, last] = raw.fetch(broker.kafka, topic)

    assert raw.produce(broker.kafka, topic, last.content) == (0, last.base_offset)

    assert sum(batch.count for batch in raw.fetch(broker.kafka, topic)) == 10


def test_a_batch_after_a_gap_is_refused(confluent: Client, topic: str, broker: BrokerProcess) -> None:
    confluent.produce(topic, numbered(10), idempotent=True)
    [*_, last] = raw.fetch(broker.kafka, topic)

    error, _ = raw.produce(broker.kafka, topic, with_sequence(last, 50))
    assert error == OUT_OF_ORDER_SEQUENCE_NUMBER
    error, offset = raw.produce(broker.kafka, topic, with_sequence(last, 10))
    assert (error, offset) == (0, 10)


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_what_a_producer_sent_is_known_after_a_restart(start_broker: StartBroker, ending: str) -> None:
    broker = start_broker()
    client = ConfluentClient(broker.kafka)
    client.produce("restarted", numbered(10), idempotent=True)
    [*_, last] = raw.fetch(broker.kafka, "restarted")

    getattr(broker, ending)()
    broker.start()

    assert raw.produce(broker.kafka, "restarted", last.content) == (0, last.base_offset)
    error, _ = raw.produce(broker.kafka, "restarted", with_sequence(last, 50))
    assert error == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [record.value for record in client.read("restarted", 10)] == [b"%d" % n for n in range(10)]
    client.produce("restarted", numbered(5, first=10), idempotent=True)
    assert len(client.read("restarted", 15)) == 15
