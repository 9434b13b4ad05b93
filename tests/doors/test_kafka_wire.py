"""The Kafka door on the wire: hand-made encodings agree with the schemas, broken peers are cut off alone."""

import contextlib
import random
import socket
import struct
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from fanlog.doors.kafka.apis import fetch
from fanlog.doors.kafka.layouts import request_layout, response_layout
from fanlog.doors.kafka.registry import apis
from fanlog.testing import RunningBroker, running_broker
from fanlog.wire import messages, records


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(limits_frame_bytes_max=1 << 20, limits_frame_seconds_max=1) as running:
        yield running


class Peer:
    """A client that says exactly what it is told to."""

    def __init__(self, broker: RunningBroker) -> None:
        host, port = broker.kafka.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.number = 0

    def send(self, key: int, version: int, values: dict[str, Any]) -> None:
        layout = request_layout(key, version)
        self.number += 1
        frame = bytearray(struct.pack(">hhih", key, version, self.number, 4) + b"peer")
        if layout.flexible:
            frame.append(0)
        messages.encode(frame, values, layout)
        self.raw(len(frame).to_bytes(4, "big") + frame)

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionResetError("closed by the broker")
            data += piece
        return data

    def call(self, key: int, version: int, values: dict[str, Any]) -> Any:
        self.send(key, version, values)
        return self.answer(key, version)

    def answer(self, key: int, version: int) -> Any:
        data = self.frame()
        layout = response_layout(key, version)
        return messages.decode(data, 5 if layout.flexible and key != 18 else 4, layout)

    def is_cut_off(self) -> bool:
        with contextlib.suppress(ConnectionError):
            return self.socket.recv(1) == b""
        return True


@pytest.fixture
def peer(broker: RunningBroker) -> Iterator[Peer]:
    peer = Peer(broker)
    yield peer
    peer.socket.close()


def batch(*values: bytes) -> bytes:
    return records.batch_of([(None, value, ()) for value in values], int(time.time() * 1000))


def publish(peer: Peer, topic: str, data: bytes, version: int = 9, acks: int = -1) -> Any:
    peer.call(3, 12, {"topics": [{"name": topic}], "allow_auto_topic_creation": True})
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": data}]}]
    answer = peer.call(0, version, {"acks": acks, "timeout": 1000, "topic_data": topics})
    return answer.responses[0].partition_responses[0]


def wanted(topic: str, offset: int, **how: int) -> dict[str, Any]:
    item = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return {
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": [{"topic": topic, "partitions": [item]}],
        **how,
    }


@pytest.mark.parametrize("version", range(4, 13))
def test_the_fetch_answer_is_what_its_schema_says(version: int) -> None:
    chance = random.Random(version)
    topics, plain = [], []
    for name in ("a", "topic-ä"):
        items, answers = [], []
        for number in range(3):
            data = chance.randbytes(chance.choice([0, 10, 300]))
            ends = SimpleNamespace(high_watermark=chance.randrange(1 << 40), log_start=chance.randrange(99))
            partition = None if number == 2 else ends
            item = SimpleNamespace(number=number, error=chance.choice([0, 1]), partition=partition, data=data)
            items.append(item)
            end, start = (partition.high_watermark, partition.log_start) if partition else (-1, -1)
            answers.append(
                {
                    "partition_index": number,
                    "error_code": item.error,
                    "high_watermark": end,
                    "last_stable_offset": end,
                    "log_start_offset": start,
                    "aborted_transactions": [],
                    "records": data,
                }
            )
        topics.append((name, items))
        plain.append({"topic": name, "partitions": answers})
    expected = bytearray()
    messages.encode(expected, {"responses": plain}, response_layout(1, version))
    assert b"".join(fetch.encode(topics, version)) == bytes(expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", range(3, 10))
def test_each_version_of_produce_and_fetch_carries_a_record(peer: Peer, version: int) -> None:
    topic = f"versions-{version}"
    answer = publish(peer, topic, batch(b"one", b"two"), version)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    found = peer.call(1, version + 3, wanted(topic, 0)).responses[0].partitions[0]
    assert found.high_watermark == 2
    header = records.check_header(found.records)
    values = [record.value for record in records.decode_records(found.records, 61, header)]
    assert values == [b"one", b"two"]


def test_answers_come_in_the_order_of_the_requests(peer: Peer) -> None:
    publish(peer, "order", batch(b"x"))
    for number in range(30):
        # A fetch that waits stands before requests that could be answered at once.
        if number % 10 == 0:
            peer.send(1, 12, wanted("order", 1, max_wait=50))
        else:
            peer.send(12, 4, {"group_id": "g", "member_id": "m"})
    seen = [int.from_bytes(peer.frame()[:4], "big") for _ in range(30)]
    assert seen == sorted(seen)


def test_a_parked_reader_is_woken_by_the_record_it_waits_for(broker: RunningBroker, peer: Peer) -> None:
    publish(peer, "parked", batch(b"x"))
    other = Peer(broker)
    began = time.monotonic()
    other.send(1, 12, wanted("parked", 1, max_wait=10_000))
    publish(peer, "parked", batch(b"y"))
    found = other.answer(1, 12).responses[0].partitions[0]
    assert records.read_header(found.records).base_offset == 1
    assert time.monotonic() - began < 5
    other.socket.close()


def test_a_reader_waits_for_as_many_bytes_as_it_asked_for(broker: RunningBroker, peer: Peer) -> None:
    publish(peer, "enough", batch(b"x" * 100))
    other = Peer(broker)
    other.send(1, 12, wanted("enough", 0, max_wait=10_000, min_bytes=600))
    for _ in range(3):
        publish(peer, "enough", batch(b"x" * 100))
    found = other.answer(1, 12).responses[0].partitions[0]
    assert len(found.records) >= 600
    other.socket.close()


def test_an_unknown_version_of_apiversions_is_answered_in_the_oldest_layout(peer: Peer) -> None:
    peer.raw(struct.pack(">ihhih", 10, 18, 99, 5, -1))
    data = peer.frame()
    assert data[:4] == (5).to_bytes(4, "big")
    answer = messages.decode(data, 4, response_layout(18, 0))
    assert answer.error_code == 35
    assert [(key.api_key, key.min_version, key.max_version) for key in answer.api_keys] == [(18, 0, 4)]


def test_apiversions_lists_what_is_registered(peer: Peer) -> None:
    answer = peer.call(18, 3, {"client_software_name": "peer", "client_software_version": "1.0"})
    listed = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
    assert listed == {entry.key: (entry.oldest, entry.newest) for entry in apis().values()}
    # librdkafka before 2.11 looks for these: compression, and groups at all.
    assert listed[0][0] == 0
    assert listed[11][0] == 0
    refused = peer.call(18, 3, {"client_software_name": "-peer", "client_software_version": "1.0"})
    assert refused.error_code == 42


def test_records_that_do_not_fit_are_refused_each_with_its_code(peer: Peer) -> None:
    good = batch(b"x")
    damaged = good[:-1] + bytes([good[-1] ^ 1])
    hollow = records.encode_batch(b"\x00" * 8, 1, 0, 1, 1)
    control = records.encode_batch(good[61:], 1, 0, 1, 1, attributes=0x20)
    packed = records.encode_batch(b"junk", 1, 0, 1, 1, attributes=4)
    old = good[:16] + b"\x01" + good[17:]
    for data, code in (
        (damaged, 2),
        (hollow, 87),
        (control, 87),
        (packed, 87),
        (old, 87),
        (good + good, 87),
        (b"", 87),
        (b"x" * 30, 87),
        (batch(b"x" * (1 << 19), b"x" * (1 << 19) + b"y" * 200)[: (1 << 20) - 100], 87),
    ):
        answer = publish(peer, "misfits", data)
        assert (answer.error_code, answer.base_offset) == (code, -1)
        assert answer.error_message
    assert publish(peer, "misfits", good).base_offset == 0
    assert publish(peer, "misfits", good, acks=5).error_code == 21


@pytest.mark.parametrize("version", range(3))
def test_message_formats_of_old_are_refused_in_words_they_know(peer: Peer, version: int) -> None:
    answer = publish(peer, "old", b"whatever they sent then", version)
    assert (answer.error_code, answer.base_offset) == (43, -1)


def test_a_batch_at_its_limit_is_taken_and_one_byte_more_is_not(peer: Peer) -> None:
    topic = {"name": "limit", "num_partitions": 1, "replication_factor": 1}
    topic["configs"] = [{"name": "max.message.bytes", "value": "1000"}]
    assert peer.call(19, 7, {"topics": [topic], "timeout": 1000}).topics[0].error_code == 0
    empty = len(batch(b"x" * 500)) - 500
    assert publish(peer, "limit", batch(b"x" * (1000 - empty))).error_code == 0
    assert publish(peer, "limit", batch(b"x" * (1001 - empty))).error_code == 10


def test_the_broker_keeps_its_own_topics_to_itself(peer: Peer) -> None:
    assert publish(peer, "__groups", batch(b"x")).error_code == 17
    topic = {"name": "__mine", "num_partitions": 1, "replication_factor": 1}
    assert peer.call(19, 7, {"topics": [topic], "timeout": 1000}).topics[0].error_code == 17


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", (1 << 20) + 1),
        struct.pack(">ihhih", 10, 9999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 12, 1, 500),
        struct.pack(">ihhih", 14, 3, 12, 1, -1) + b"\xff\xff\xff\xff",
    ],
    ids=["negative", "too short", "too long", "no such call", "name past the end", "junk"],
)
def test_a_broken_frame_costs_its_own_connection(broker: RunningBroker, peer: Peer, data: bytes) -> None:
    other = Peer(broker)
    other.raw(data)
    assert other.is_cut_off()
    assert peer.call(12, 4, {"group_id": "g", "member_id": "m"}).error_code == 25


def test_a_frame_that_trickles_in_is_cut_off_in_time(peer: Peer) -> None:
    peer.raw(struct.pack(">i", 1000) + b"only this much")
    began = time.monotonic()
    assert peer.is_cut_off()
    assert 0.5 < time.monotonic() - began < 5


def test_connections_beyond_the_limit_are_refused() -> None:
    with running_broker(limits_connections_max=3) as broker:
        peers = [Peer(broker) for _ in range(3)]
        for peer in peers:
            assert peer.call(12, 4, {"group_id": "g", "member_id": "m"}).error_code == 25
        extra = Peer(broker)
        assert extra.is_cut_off()
        assert peers[0].call(12, 4, {"group_id": "g", "member_id": "m"}).error_code == 25
        for peer in [*peers, extra]:
            peer.socket.close()
