"""kill -9 at random moments under load: what was acknowledged is there, in order, and nothing twice."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults import SEED, load
from faults.disk import UnreliableDisk
from faults.load import Publisher, Watcher
from support.process import BrokerFailed, BrokerProcess, wait_for

PARTITIONS = 3
KILL_ROUNDS = 15
POWER_ROUNDS = 12


@pytest.fixture
def broker_home(tmp_path: Path) -> Iterator[BrokerProcess]:
    # Small segments, so that the kills also hit the moments when one is closed and the next begun.
    flags = ["--topics-segment-bytes=400000", "--log-checkpoint-bytes=150000", "--topics-auto-create=false"]
    broker = BrokerProcess(tmp_path, flags)
    yield broker
    broker.close()


class Load:
    """Three kinds of producers and a reader, who live through everything that happens to the broker."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.steady = Publisher(bootstrap, topic, "steady", idempotent=True)
        self.plain = Publisher(bootstrap, topic, "plain", idempotent=False, compression_type="lz4")
        self.newcomers: list[Publisher] = []
        self.watcher = Watcher(bootstrap, topic, PARTITIONS)
        for thread in (self.steady, self.plain, self.watcher):
            thread.start()

    def begin(self, turn: int) -> None:
        """Returns when the broker has acknowledged something to everybody since it was started."""
        for publisher in self.newcomers:
            publisher.finish()
        if turn % 3 == 0:
            # An idempotent producer of its own: its producer id must not be one that was given before.
            self.newcomers.append(Publisher(self.bootstrap, self.topic, f"newcomer{turn}", idempotent=True))
            self.newcomers[-1].start()
            self.newcomers[-1].wait_for_more(1)
        self.steady.wait_for_more(1)
        self.plain.wait_for_more(1)

    def finish_and_check(self) -> None:
        publishers = [self.steady, self.plain, *self.newcomers]
        for publisher in publishers:
            publisher.finish()
        found = load.read_all(self.bootstrap, self.topic, range(PARTITIONS))
        self.watcher.finish()
        load.check_offsets_are_contiguous(found)
        for publisher in publishers:
            load.check_acknowledged_are_there(publisher, found)
            assert not publisher.refused
            if publisher.idempotent:
                load.check_in_order_and_once(publisher, found)
        load.check_seen_is_there(self.watcher.seen, found)
        assert not self.watcher.faults


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_kill_9_at_random_moments_loses_nothing_acknowledged(
    broker_home: BrokerProcess, durability: str
) -> None:
    chance = random.Random(f"{durability} {SEED}")
    broker = broker_home.start()
    load.create_topic(broker.kafka, "killed", PARTITIONS, fanlog_durability=durability)
    work = Load(broker.kafka, "killed")
    for turn in range(KILL_ROUNDS):
        work.begin(turn)
        time.sleep(chance.uniform(0, 0.4))  # the random moment
        broker.kill()
        if turn % 4 == 3:  # and once more, most likely while it recovers
            with contextlib.suppress(BrokerFailed):
                broker.start(seconds=chance.uniform(0.1, 0.6))
                broker.kill()
        broker.start()
    work.steady.wait_for_more(1)
    work.finish_and_check()


def test_power_loss_takes_nothing_that_was_acknowledged_at_level_disk(
    shim: Path, broker_home: BrokerProcess, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    broker = broker_home
    disk = UnreliableDisk(shim, tmp_path / "disk", broker.data)
    disk.delay_syncs(0.004)
    broker.environment.update(disk.power_on())
    broker.start()
    load.create_topic(broker.kafka, "dark", PARTITIONS, fanlog_durability="disk")
    work = Load(broker.kafka, "dark")
    for turn in range(POWER_ROUNDS):
        work.begin(turn)
        time.sleep(chance.uniform(0, 0.4))  # the random moment
        broker.kill()
        disk.lose_power(SEED * 1000 + turn)
        disk.power_on()
        broker.start()
    work.steady.wait_for_more(1)
    work.finish_and_check()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def kill_with_children(broker: BrokerProcess) -> None:
    """As a power loss does: also those whom the broker has set to work."""
    workers = children(broker.pid)
    broker.kill()
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
        wait_for("a worker to end", lambda worker=worker: not Path(f"/proc/{worker}").exists())


@pytest.mark.parametrize("power_is_lost", [False, True], ids=["kill -9", "power loss"])
def test_compaction_that_is_interrupted_keeps_the_newest_record_of_every_key(
    shim: Path, tmp_path: Path, power_is_lost: bool
) -> None:
    chance = random.Random(SEED)
    broker = BrokerProcess(tmp_path, ["--topics-segment-bytes=60000", "--log-cleanup-interval-ms=20"])
    disk = UnreliableDisk(shim, tmp_path / "disk", broker.data)
    if power_is_lost:
        broker.environment.update(disk.power_on())
    broker.start()
    try:
        settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
        load.create_topic(broker.kafka, "keyed", PARTITIONS, **settings)
        # Keys that are set once, and from then on live in compacted segments only.
        settled = Publisher(broker.kafka, "keyed", "settled", idempotent=True)
        for number in range(300):
            settled.publish(key=f"settled-{number}".encode())
        settled.finish()
        publisher = Publisher(broker.kafka, "keyed", "steady", idempotent=True)
        publisher.start()
        for turn in range(7):
            publisher.wait_for_more(500)
            (worker, *_) = wait_for("a compaction to begin", lambda: children(broker.pid))
            if turn % 2:
                wait_for("it to end", lambda worker=worker: worker not in children(broker.pid))
            time.sleep(chance.uniform(0, 0.3))  # the random moment
            if power_is_lost:
                kill_with_children(broker)
                disk.lose_power(SEED * 1000 + turn)
                disk.power_on()
            else:
                broker.kill()
            broker.start()
        publisher.wait_for_more(1)
        publisher.finish()
        found = load.read_all(broker.kafka, "keyed", range(PARTITIONS))
        assert len(found) < publisher.sent, "nothing was compacted"
        load.check_newest_of_every_key_is_there(publisher, found)
        load.check_acknowledged_are_there(settled, found)
        load.check_in_order_and_once(publisher, found)
    finally:
        broker.close()
