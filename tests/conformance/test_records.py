"""Records go in and come out as they were, whatever the client."""

import time
from collections.abc import Sequence

import pytest

from support.process import BrokerProcess

from . import raw
from .clients import Client, Message, Record, TooLarge
from .conftest import CLIENTS, MakeClient, MakeTopic

TOO_LARGE = b"x" * 1_200_000


def text_records(count: int, partition: int = 0) -> list[Message]:
    return [
        Message(f"value {n} of {partition}".encode(), f"key {n}".encode(), partition) for n in range(count)
    ]


def of_partition(records: Sequence[Record], partition: int) -> list[Record]:
    return [record for record in records if record.partition == partition]


def test_what_is_produced_is_consumed_from_the_earliest_on_in_order(client: Client, topic: str) -> None:
    messages = text_records(200)
    before = time.time() * 1000
    client.produce(topic, messages)

    records = client.read(topic, 200)

    assert [(record.key, record.value) for record in records] == [(m.key, m.value) for m in messages]
    assert [record.offset for record in records] == list(range(200))
    assert all(before - 1000 < record.timestamp < time.time() * 1000 + 1000 for record in records)


def test_each_partition_keeps_its_own_order(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    client.produce(topic, [message for n in range(3) for message in text_records(20, partition=n)])

    records = client.read(topic, 60, partitions=(0, 1, 2))

    for partition in range(3):
        expected = [message.value for message in text_records(20, partition)]
        assert [record.value for record in of_partition(records, partition)] == expected


def test_a_record_of_900_kilobytes_passes(client: Client, topic: str) -> None:
    large = b"0123456789" * 90_000
    client.produce(topic, [Message(large, b"large"), Message(b"small", b"after it")])

    assert [record.value for record in client.read(topic, 2)] == [large, b"small"]


def test_a_record_above_the_limit_of_its_topic_is_refused_as_too_large(client: Client, topic: str) -> None:
    with pytest.raises(TooLarge):
        client.produce(topic, [Message(TOO_LARGE, b"key")])
    client.produce(topic, [Message(b"the next one", b"key")])

    assert [record.value for record in client.read(topic, 1)] == [b"the next one"]


def test_the_limit_of_a_topic_can_be_raised(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(config={"max.message.bytes": "2000000"})
    client.produce(topic, [Message(TOO_LARGE, b"key")])

    assert [record.value for record in client.read(topic, 1)] == [TOO_LARGE]


@pytest.mark.parametrize("writer", [name for name in CLIENTS if name != "kcat"])
def test_nulls_empties_headers_and_times_arrive_as_they_were(
    writer: str, make_client: MakeClient, clients: list[Client], topic: str
) -> None:
    now = int(time.time() * 1000)
    messages = [
        Message(b"no key", None, timestamp=now - 5000),
        Message(None, b"tombstone", timestamp=now - 4000),
        Message(b"", b"empty value", timestamp=now - 3000),
        Message(b"empty key", b"", timestamp=now - 2000),
        Message(bytes(range(256)), b"any bytes \x00\xff", timestamp=now - 1000),
        Message(b"headers", b"h", timestamp=now, headers=(("a", b"1"), ("b", b""), ("a", b"\x00\xff"))),
    ]
    make_client(writer).produce(topic, messages)

    for reader in clients:
        records = reader.read(topic, len(messages))
        if reader.carries_anything:
            found = [Message(r.value, r.key, r.partition, r.timestamp, r.headers) for r in records]
            assert found == messages, reader.name
        else:
            assert [record.timestamp for record in records] == [m.timestamp for m in messages], reader.name
            assert [record.value is None for record in records] == [m.value is None for m in messages], (
                reader.name
            )


def test_headers_and_nulls_of_kcat_arrive(make_client: MakeClient, confluent: Client, topic: str) -> None:
    kcat = make_client("kcat")
    kcat.produce(topic, [Message(None, b"tombstone"), Message(b"no key", None)])
    kcat.produce(topic, [Message(b"v", b"k", headers=(("name", b"content"),))])

    for records in (kcat.read(topic, 3), confluent.read(topic, 3)):
        assert [(record.key, record.value) for record in records] == [
            (b"tombstone", None),
            (None, b"no key"),
            (b"k", b"v"),
        ]
        assert records[2].headers == (("name", b"content"),)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_kept_as_they_came_and_every_client_reads_them(
    compression: str, clients: list[Client], make_topic: MakeTopic, broker: BrokerProcess
) -> None:
    topic = make_topic(partitions=len(clients))
    for partition, client in enumerate(clients):
        client.produce(topic, text_records(100, partition), compression=compression)

    for partition, client in enumerate(clients):
        stored = raw.fetch(broker.kafka, topic, partition)
        assert {batch.compression for batch in stored} == {compression}, client.name
        assert sum(batch.count for batch in stored) == 100
    for reader in clients:
        records = reader.read(topic, 100 * len(clients), range(len(clients)))
        for partition, writer in enumerate(clients):
            values = [record.value for record in of_partition(records, partition)]
            expected = [message.value for message in text_records(100, partition)]
            assert values == expected, f"{reader.name} reads {writer.name}"
