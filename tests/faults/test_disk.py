"""A full or failing disk: publishes are refused, reads go on, nothing is acknowledged that could be lost."""

import errno
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from faults import SEED, load
from faults.disk import UnreliableDisk
from faults.load import Publisher
from support.process import BrokerProcess, wait_for

FLAGS = ["--topics-segment-bytes=200000", "--log-checkpoint-bytes=70000", "--topics-auto-create=false"]


@pytest.fixture
def broker(tmp_path: Path, disk: UnreliableDisk) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path, FLAGS, disk.power_on())
    broker.start()
    yield broker
    broker.close()


@pytest.fixture
def disk(shim: Path, tmp_path: Path) -> UnreliableDisk:
    return UnreliableDisk(shim, tmp_path / "disk", tmp_path / "data")


def publish(broker: BrokerProcess, name: str, count: int, *partitions: int, **config: object) -> Publisher:
    """One attempt for each of `count` records; returns when each is acknowledged or refused."""
    publisher = Publisher(broker.kafka, "topic", name, idempotent=False, retries=0, **config)
    for number in range(count):
        publisher.publish(partitions[number % len(partitions)])
    publisher.finish(30)
    return publisher


def all_acknowledged(publisher: Publisher) -> bool:
    return len(publisher.acknowledged) == publisher.sent


def all_refused(publisher: Publisher) -> bool:
    return list(publisher.refused.values()) == [KafkaError.KAFKA_STORAGE_ERROR] * publisher.sent


def directory_of(broker: BrokerProcess, partition: int) -> str:
    """The directory of a partition of "topic", below the data directory; found by what is in its files."""
    mark = publish(broker, f"mark-of-{partition}", 1, partition)
    assert all_acknowledged(mark)
    holds = [
        path for path in broker.data.rglob("*.log") if f"mark-of-{partition} ".encode() in path.read_bytes()
    ]
    assert len(holds) == 1
    return os.path.relpath(holds[0].parent, broker.data) + "/"


@pytest.mark.parametrize(
    ("error", "room_bytes"),
    [(errno.ENOSPC, 0), (errno.ENOSPC, 37), (errno.EIO, 0)],
    ids=["full", "full in the middle of a write", "broken"],
)
def test_while_writes_fail_publishes_are_refused_and_reads_go_on(
    broker: BrokerProcess, disk: UnreliableDisk, error: int, room_bytes: int
) -> None:
    load.create_topic(broker.kafka, "topic", 2)
    before = publish(broker, "before", 50, 0, 1)
    assert all_acknowledged(before)

    disk.fail_writes(error, room_bytes=room_bytes)
    during = publish(broker, "during", 20, 0, 1)
    assert all_refused(during), during.refused
    assert disk.failed_writes
    found = load.read_all(broker.kafka, "topic", range(2))
    assert len(found) == 50
    load.check_acknowledged_are_there(before, found)
    assert broker.running

    disk.clear()
    after = publish(broker, "after", 20, 0, 1)
    assert all_acknowledged(after), after.refused
    for _ in range(2):
        found = load.read_all(broker.kafka, "topic", range(2))
        assert len(found) == 70
        load.check_offsets_are_contiguous(found)
        load.check_acknowledged_are_there(before, found)
        load.check_acknowledged_are_there(after, found)
        load.check_refused_are_not_there(during, found)
        broker.restart()


def test_what_was_refused_does_not_come_back_after_a_kill(
    broker: BrokerProcess, disk: UnreliableDisk
) -> None:
    load.create_topic(broker.kafka, "topic", 1)
    published = []
    for turn in range(4):
        # Batches of one record, several of which are written at once: the disk takes some, and part of one.
        disk.fail_writes(errno.ENOSPC, room_bytes=4000 + turn * 1111)
        published.append(publish(broker, f"turn{turn}", 60, 0, batch_num_messages=1, linger_ms=0))
        assert published[-1].refused
        broker.kill()
        disk.clear()
        disk.restart()
        broker.start()
    found = load.read_all(broker.kafka, "topic", [0])
    load.check_offsets_are_contiguous(found)
    for publisher in published:
        load.check_acknowledged_are_there(publisher, found)
        load.check_refused_are_not_there(publisher, found)


def test_idempotent_producers_get_through_a_disk_that_fills_up_again_and_again(
    broker: BrokerProcess, disk: UnreliableDisk
) -> None:
    chance = random.Random(SEED)
    load.create_topic(broker.kafka, "topic", 3)
    publisher = Publisher(broker.kafka, "topic", "steady", idempotent=True)
    publisher.start()
    for _ in range(10):
        publisher.wait_for_more(50)
        disk.fail_writes(errno.ENOSPC, passes=chance.randrange(30), room_bytes=chance.choice((0, 1, 70, 500)))
        wait_for("a write to fail", lambda: disk.failed_writes)
        disk.clear()
    publisher.wait_for_more(50)
    publisher.finish()
    found = load.read_all(broker.kafka, "topic", range(3))
    assert all_acknowledged(publisher), publisher.refused
    assert len(found) == publisher.sent
    load.check_offsets_are_contiguous(found)
    load.check_acknowledged_are_there(publisher, found)
    load.check_in_order_and_once(publisher, found)


@pytest.mark.parametrize("restarts_before_power_loss", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_after_a_failed_sync_nothing_is_acknowledged_on_the_strength_of_a_later_one(
    broker: BrokerProcess, disk: UnreliableDisk, seed: int, restarts_before_power_loss: bool
) -> None:
    load.create_topic(broker.kafka, "topic", 2)
    published = [publish(broker, "before", 50, 0, 1)]
    failing = directory_of(broker, 0)

    disk.fail_syncs(errno.EIO, match=failing, once=True)
    waiting = publish(broker, "waiting", 1, 0)
    assert all_refused(waiting), waiting.refused
    assert disk.failed_syncs == 1
    refused = publish(broker, "refused", 20, 0)
    assert all_refused(refused), refused.refused
    published.append(publish(broker, "beside", 20, 1))
    assert all(all_acknowledged(publisher) for publisher in published)
    found = load.read_all(broker.kafka, "topic", range(2))
    for publisher in published:
        load.check_acknowledged_are_there(publisher, found)
    assert broker.running

    broker.kill()
    if restarts_before_power_loss:
        # What the failed sync was to store is still in memory, marked clean: nothing may be built on it.
        disk.restart()
        broker.start()
        published.append(publish(broker, "between", 20, 0, 1))
        assert all_acknowledged(published[-1]), published[-1].refused
        broker.kill()
    disk.lose_power(SEED * 1000 + seed)
    disk.power_on()
    broker.start()
    published.append(publish(broker, "after", 20, 0, 1))
    assert all_acknowledged(published[-1]), published[-1].refused
    found = load.read_all(broker.kafka, "topic", range(2))
    load.check_offsets_are_contiguous(found)
    for publisher in published:
        load.check_acknowledged_are_there(publisher, found)


def test_whatever_call_fails_before_the_power_does_nothing_acknowledged_is_lost(
    broker: BrokerProcess, disk: UnreliableDisk
) -> None:
    chance = random.Random(SEED)
    load.create_topic(broker.kafka, "topic", 3)
    publisher = Publisher(broker.kafka, "topic", "steady", idempotent=True)
    publisher.start()
    for turn in range(10):
        publisher.wait_for_more(100)
        disk.delay_syncs(0.002)
        if turn % 2:
            disk.fail_syncs(errno.EIO, passes=chance.randrange(150), once=True)
            wait_for("a sync to fail", lambda: disk.failed_syncs)
        else:
            short = chance.choice((0, 20, 500))
            disk.fail_writes(errno.EIO, passes=chance.randrange(150), room_bytes=short, once=True)
            wait_for("a write to fail", lambda: disk.failed_writes)
        time.sleep(chance.uniform(0, 0.2))  # what was going to be acknowledged after the failure, is
        broker.kill()
        disk.clear()
        disk.lose_power(SEED * 1000 + turn)
        disk.power_on()
        broker.start()
    publisher.wait_for_more(100)
    publisher.finish()
    found = load.read_all(broker.kafka, "topic", range(3))
    assert all_acknowledged(publisher), publisher.refused
    assert len(found) == publisher.sent
    load.check_offsets_are_contiguous(found)
    load.check_acknowledged_are_there(publisher, found)
    load.check_in_order_and_once(publisher, found)
