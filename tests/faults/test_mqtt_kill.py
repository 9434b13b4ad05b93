"""kill -9 of the broker amid MQTT traffic: QoS 1 loses nothing, QoS 2 neither loses nor repeats."""

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from confluent_kafka import Consumer, TopicPartition

from faults import SEED
from support.process import BrokerProcess, wait_for

ROUNDS = 20
# Publishes of one client that wait for their acknowledgement.
OUTSTANDING = 20


class Client:
    """A stock client with a session that lasts.

    It comes back when it is told that the broker is there: paho forgets, with every attempt that fails, that
    a message of QoS 2 was received already, and would publish it again from the start.
    """

    def __init__(self, name: str, port: int) -> None:
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id=name, clean_session=False, reconnect_on_failure=False
        )
        self.name = name
        self.paho.max_inflight_messages_set(OUTSTANDING)
        self.paho.connect("127.0.0.1", port, keepalive=10)
        self._run()

    def _run(self) -> None:
        self.paho.loop_start()
        wait_for(f"{self.name} to connect", self.paho.is_connected)

    def come_back(self) -> None:
        self.paho.loop_stop()
        self.paho.reconnect()
        self._run()

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


class Publisher(Client):
    """Publishes numbers, one after the other, for as long as it is told to."""

    def __init__(self, name: str, port: int, address: str, qos: int) -> None:
        self.acknowledged: set[int] = set()
        self.address, self.qos = address, qos
        self.published = 0
        self._lock = threading.Lock()
        self._ids: dict[int, int] = {}
        self._early: set[int] = set()
        self._room = threading.Semaphore(OUTSTANDING)
        self._stopping = threading.Event()
        super().__init__(name, port)
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self.paho.on_publish = self._on_publish

    def _on_publish(self, client: object, data: object, mid: int, reason: object, properties: object) -> None:
        with self._lock:
            number = self._ids.pop(mid, None)
            if number is None:
                # Faster than `publish` returned.
                self._early.add(mid)
            else:
                self._done(number)

    def _done(self, number: int) -> None:
        self.acknowledged.add(number)
        self._room.release()

    def _publish(self) -> None:
        while not self._stopping.is_set():
            if self._room.acquire(timeout=0.1):
                number, self.published = self.published, self.published + 1
                mid = self.paho.publish(self.address, b"%d" % number, qos=self.qos).mid
                with self._lock:
                    if mid in self._early:
                        self._early.remove(mid)
                        self._done(number)
                    else:
                        self._ids[mid] = number

    def start(self) -> None:
        self._thread.start()

    def wait_for_more(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        wait_for(f"{self.address} to go on", lambda: len(self.acknowledged) >= wanted, 30)

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join()
        everything = range(self.published)
        wait_for(
            f"all publishes to {self.address} to be acknowledged",
            lambda: self.acknowledged.issuperset(everything),
            30,
        )


class Subscriber(Client):
    def __init__(self, name: str, port: int, address: str, qos: int) -> None:
        self.received: list[int] = []
        super().__init__(name, port)
        self.paho.on_message = lambda client, data, message: self.received.append(int(message.payload))
        granted = threading.Event()
        self.paho.on_subscribe = lambda *_: granted.set()
        self.paho.subscribe(address, qos)
        assert granted.wait(10)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[BrokerProcess, int]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = BrokerProcess(tmp_path, [f"--mqtt=127.0.0.1:{port}"])
    yield process.start(), port
    process.close()


def records_of(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes]]:
    """Everything in a topic of one partition, as a Kafka client sees it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes | None, bytes]] = []
    while len(found) < end:
        found += [(one.key(), one.value()) for one in consumer.consume(10_000, timeout=1)]
    consumer.close()
    return found


def test_persistent_sessions_live_through_twenty_kills(broker: tuple[BrokerProcess, int]) -> None:
    process, port = broker
    chance = random.Random(SEED)
    subscribers = {qos: Subscriber(f"subscriber-{qos}", port, f"kill/qos{qos}", qos) for qos in (1, 2)}
    publishers = {qos: Publisher(f"publisher-{qos}", port, f"kill/qos{qos}", qos) for qos in (1, 2)}
    for publisher in publishers.values():
        publisher.start()
    for _ in range(ROUNDS):
        for publisher in publishers.values():
            publisher.wait_for_more(5)
        time.sleep(chance.random() * 0.3)
        process.kill()
        process.start()
        for client in [*subscribers.values(), *publishers.values()]:
            client.come_back()
    for publisher in publishers.values():
        publisher.finish()
    for qos, subscriber in subscribers.items():
        wait_for(
            f"all of QoS {qos} to be delivered",
            lambda qos=qos, subscriber=subscriber: set(subscriber.received) >= publishers[qos].acknowledged,
            30,
        )
    stored = [int(value) for key, value in records_of(process.kafka, "kill") if key == b"qos2"]
    assert not {number for number, times in Counter(stored).items() if times > 1}, "stored twice"
    once = subscribers[2].received
    repeated = {number: times for number, times in Counter(once).items() if times > 1}
    assert not repeated
    assert once == sorted(once)
    assert set(once) == publishers[2].acknowledged
    # What QoS 1 repeats, it repeats; but the first of each comes in order.
    firsts = list(dict.fromkeys(subscribers[1].received))
    assert firsts == sorted(firsts)
    for client in [*publishers.values(), *subscribers.values()]:
        client.close()
