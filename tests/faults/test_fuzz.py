"""Malformed, oversized, truncated and slow frames cost their own connection at most.

A broker is shot at with 100,000 spoiled requests, made from a fixed seed, while a healthy producer and a
healthy consumer go on. Afterwards it is the same process, has not grown, has logged no traceback, and both
the healthy topic and the one that the nonsense was aimed at can be read by a stock client from end to end.
"""

import io
import itertools
import random
import selectors
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, TopicPartition
from kio.schema.api_versions.v0.response import ApiVersionsResponse
from kio.serial import entity_reader

from faults import SEED, frames, load
from faults.frames import Shot
from faults.gunner import Gunner
from faults.load import PATIENT, Publisher
from support.process import BrokerProcess

FRAMES = 100_000
StartBroker = Callable[..., BrokerProcess]


def address(broker: BrokerProcess) -> tuple[str, int]:
    host, port = broker.kafka.rsplit(":", 1)
    return host, int(port)


def rss_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def ask_versions(connection: socket.socket) -> dict[int, tuple[int, int]]:
    connection.sendall(frames.ping(7))
    (size,) = struct.unpack(">i", receive(connection, 4))
    body = receive(connection, size)
    answer, _ = entity_reader(ApiVersionsResponse)(body, 4)
    return {int(api.api_key): (int(api.min_version), int(api.max_version)) for api in answer.api_keys}


def receive(connection: socket.socket, size: int) -> bytes:
    buffer = io.BytesIO()
    while buffer.tell() < size:
        data = connection.recv(size - buffer.tell())
        assert data, "the broker closed the connection"
        buffer.write(data)
    return buffer.getvalue()


def shots(broker: BrokerProcess, seed: int) -> Iterator[Shot]:
    with socket.create_connection(address(broker), timeout=10) as connection:
        apis = ask_versions(connection)
    assert len(apis) > 10
    chance = random.Random(seed)
    requests = frames.pool(apis, ["garbage"], chance)
    # Produce is where nonsense could stay: it gets a third of the fire.
    produce = [request for request in requests if request.api_key == frames.PRODUCE]
    while True:
        request = chance.choice(produce if chance.random() < 0.33 else requests)
        if request.api_key == frames.PRODUCE and chance.random() < 0.5:
            shot = frames.whole(request.frame)  # the frame is fine; the batch in it may not be
        else:
            shot = frames.spoil(request, requests, chance)
        # Spoiling can turn one valid request into another; the topic that is read at the end must stay.
        if not (b"garbage" in shot.data and frames.api_key(shot) in frames.CHANGES_TOPICS):
            yield shot


class Traffic:
    """A healthy producer and a healthy consumer; the time from publish to receipt of every record."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.publisher = Publisher(bootstrap, topic, "healthy", idempotent=True)
        self.latencies: list[float] = []
        self._sent_at: dict[int, float] = {}
        self._received = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": uuid.uuid4().hex,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                **PATIENT,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def turn(self) -> None:
        """Publish one record, and receive what is there."""
        self._sent_at[self.publisher.sent] = time.monotonic()
        self.publisher.publish(0)
        self.publisher._producer.poll(0)
        self._receive(0)

    def _receive(self, seconds: float) -> None:
        for message in self._consumer.consume(100, seconds):
            assert message.error() is None, message.error()
            number = int(message.value().split(b" ")[1])
            self.latencies.append(time.monotonic() - self._sent_at.pop(number))

    def finish(self) -> None:
        self.publisher.finish(10)
        deadline = time.monotonic() + 10
        while self._sent_at:
            assert time.monotonic() < deadline, f"{len(self._sent_at)} healthy records were not delivered"
            self._receive(0.1)
        self._consumer.close()


def fuzz(broker: BrokerProcess, count: int, seconds: float) -> None:
    pid = broker.pid
    load.create_topic(broker.kafka, "garbage", 3)
    load.create_topic(broker.kafka, "healthy", 1)
    traffic = Traffic(broker.kafka, "healthy")
    gunner = Gunner(address(broker), shots(broker, SEED))
    turn_at = itertools.count(time.monotonic(), 0.02)
    next_turn = next(turn_at)

    def alive() -> bool:
        nonlocal next_turn
        if time.monotonic() >= next_turn:
            next_turn = next(turn_at)
            traffic.turn()
        return broker.running

    gunner.fire(count // 2, seconds, alive)
    half_way = rss_bytes(pid)
    gunner.fire(count - count // 2, seconds, alive)
    grown = rss_bytes(pid) - half_way
    traffic.finish()

    tally = gunner.tally
    assert tally.sent == count == tally.answered + tally.closed + tally.given_up
    assert tally.given_up < count / 100
    assert tally.answered > count / 5  # most of the nonsense is turned away at once, but not all of it
    assert broker.running
    assert broker.pid == pid
    assert grown < 100 << 20, f"memory grew by {grown >> 20} MB"
    assert "Traceback" not in broker.stderr, broker.stderr[-6000:]
    assert max(traffic.latencies) < 5
    assert sorted(traffic.latencies)[len(traffic.latencies) // 2] < 0.5
    healthy = load.read_all(broker.kafka, "healthy", [0])
    load.check_offsets_are_contiguous(healthy)
    load.check_acknowledged_are_there(traffic.publisher, healthy)
    load.check_in_order_and_once(traffic.publisher, healthy)
    garbage = load.read_all(broker.kafka, "garbage", range(3))
    load.check_offsets_are_contiguous(garbage)
    assert {value for value in garbage.values() if value != b"value"} == set()


def test_a_hundred_thousand_spoiled_frames_disturb_nobody(start_broker: StartBroker) -> None:
    broker = start_broker(
        "--topics-auto-create=false",
        "--limits-partitions-per-topic-max=8",
        "--limits-partitions-max=200",
        "--log-level=error",
    )
    fuzz(broker, FRAMES, 150)


def test_spoiled_frames_that_create_topics_disturb_nobody(start_broker: StartBroker) -> None:
    broker = start_broker(
        "--topics-auto-create=true", "--limits-partitions-per-topic-max=8", "--limits-partitions-max=60"
    )
    fuzz(broker, 5_000, 60)


def test_requests_with_very_many_items_hold_nobody_up(start_broker: StartBroker) -> None:
    broker = start_broker("--topics-auto-create=false", "--limits-partitions-max=60")
    load.create_topic(broker.kafka, "garbage", 3)
    waits = {}
    with socket.create_connection(address(broker), timeout=30) as other:
        for request in frames.wide(ask_versions(other), "garbage", 8_000, random.Random(SEED)):
            with socket.create_connection(address(broker), timeout=30) as connection:
                connection.sendall(frames.whole(request.frame).data)
                asked = time.monotonic()
                ask_versions(other)
                ask_versions(other)  # twice: the first may have come before the request was looked at
                waits[request.api_key] = time.monotonic() - asked
    slow = {key: round(wait, 1) for key, wait in waits.items() if wait > 2}
    assert not slow
    assert "Traceback" not in broker.stderr, broker.stderr[-6000:]


def until_closed(connections: list[socket.socket], seconds: float) -> list[float]:
    """Sends a byte on each connection now and then; the times at which the broker closed them."""
    selector = selectors.DefaultSelector()
    for connection in connections:
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ)
    begun = time.monotonic()
    closed: list[float] = []
    while selector.get_map():
        assert time.monotonic() - begun < seconds, f"{len(selector.get_map())} connections are still open"
        for key, _ in selector.select(0.05):
            try:
                gone = not key.fileobj.recv(1000)  # type: ignore[union-attr]
            except OSError:
                gone = True
            if gone:
                closed.append(time.monotonic() - begun)
                selector.unregister(key.fileobj)
        for key in list(selector.get_map().values()):
            try:
                key.fileobj.send(b"\1")  # type: ignore[union-attr]
            except OSError:
                continue
    return closed


def test_frames_that_come_byte_by_byte_are_cut_and_delay_nobody(start_broker: StartBroker) -> None:
    broker = start_broker("--limits-frame-seconds-max=1")
    slow = [socket.create_connection(address(broker)) for _ in range(60)]
    begun = itertools.cycle((b"\0", struct.pack(">i", 1000), struct.pack(">ihhih", 5000, 18, 0, 1, -1)))
    for connection in slow:
        connection.sendall(next(begun))
    with socket.create_connection(address(broker), timeout=10) as quick:
        asked = time.monotonic()
        ask_versions(quick)
        assert time.monotonic() - asked < 1
        closed = until_closed(slow, 10)
        assert len(closed) == len(slow)
        assert min(closed) > 0.5
        ask_versions(quick)  # the time-out is for frames that were begun, not for idle connections
    for connection in slow:
        connection.close()


def test_announcing_large_frames_costs_the_broker_no_memory(start_broker: StartBroker) -> None:
    broker = start_broker()
    connections = [socket.create_connection(address(broker), timeout=10) for _ in range(200)]
    ask_versions(connections[0])
    before = rss_bytes(broker.pid)
    for connection in connections:
        connection.sendall(struct.pack(">i", 100 << 20) + b"\0" * 100)
    with socket.create_connection(address(broker), timeout=10) as other:
        ask_versions(other)
    assert rss_bytes(broker.pid) - before < 50 << 20
    for connection in connections:
        connection.close()


def test_a_frame_that_announces_an_impossible_size_is_refused_at_once(start_broker: StartBroker) -> None:
    broker = start_broker()
    for size in ((100 << 20) + 1, (1 << 31) - 1, -1, -(1 << 31)):
        with socket.create_connection(address(broker), timeout=10) as connection:
            connection.sendall(struct.pack(">i", size))
            assert connection.recv(1) == b"", size
