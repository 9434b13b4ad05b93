"""Retention, compaction and the start of the log."""

import random
from pathlib import Path

import pytest

from fanlog.config import Log
from fanlog.log import compaction
from fanlog.log.errors import OffsetOutOfRange
from fanlog.log.partition import Partition
from fanlog.log.upkeep import Upkeep
from log.bench import Bench, all_records, bench_at
from support.loop import in_loop


def upkeep(bench: Bench, partition: Partition) -> Upkeep:
    return Upkeep(lambda: [partition], bench.committer, Log(), lambda now: None)


async def filled(bench: Bench, partition: Partition, count: int, step_ms: int = 0) -> None:
    for number in range(count):
        await bench.append(partition, b"%04d" % number * 25)
        bench.now += step_ms


@in_loop
async def test_old_records_go_when_their_time_is_over(tmp_path: Path) -> None:
    config = {"segment_bytes": "1024", "retention_ms": "10000"}
    async with bench_at(tmp_path) as bench:
        partition = bench.open(**config)
        await filled(bench, partition, 50, step_ms=1000)
        await upkeep(bench, partition)._tend(partition)
        kept = [record.offset for record in all_records(partition)]
        assert kept[-1] == 49
        assert 30 < kept[0] <= 40
        with pytest.raises(OffsetOutOfRange):
            partition.read(0, 100)
        again = bench.open(**config)
        assert [record.offset for record in all_records(again)] == kept


@in_loop
async def test_an_idle_topic_empties_too(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = bench.open(retention_ms="10000")
        await filled(bench, partition, 5)
        bench.now += 60_000
        await upkeep(bench, partition)._tend(partition)
        assert all_records(partition) == []
        assert partition.log_start == partition.next_offset == 5
        await bench.append(partition, b"new")
        assert [record.offset for record in all_records(bench.open(retention_ms="10000"))] == [5]


@in_loop
async def test_a_partition_is_kept_to_its_size(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = bench.open(segment_bytes="1024", retention_bytes="5000", retention_ms="-1")
        await filled(bench, partition, 100)
        await upkeep(bench, partition)._tend(partition)
        assert 5000 <= partition.size <= 5000 + 1024 + 200
        assert all_records(partition)[-1].offset == 99


@in_loop
async def test_the_start_can_be_moved_and_stays_moved(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = bench.open(segment_bytes="1024")
        await filled(bench, partition, 50)
        await upkeep(bench, partition).move_start(partition, 33)
        assert all_records(partition)[0].offset == 33
        assert all_records(bench.open(segment_bytes="1024"))[0].offset == 33
        with pytest.raises(OffsetOutOfRange):
            await upkeep(bench, partition).move_start(partition, 51)


COMPACT = {
    "cleanup_policy": "compact",
    "segment_bytes": "2048",
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "10000",
}


@in_loop
async def test_compaction_keeps_the_newest_of_every_key(tmp_path: Path) -> None:
    chance = random.Random(3)
    async with bench_at(tmp_path) as bench:
        partition = bench.open(**COMPACT)
        newest: dict[bytes, tuple[int, bytes | None]] = {}
        for round in range(4):
            for number in range(150):
                key = b"key-%d" % chance.randrange(20)
                value = None if chance.random() < 0.2 else b"%d/%d" % (round, number) * 5
                newest[key] = (partition.next_offset, value)
                await bench.append(partition, value, key=key)  # type: ignore[arg-type]
            before = len(all_records(partition))
            await upkeep(bench, partition)._tend(partition)
            found = all_records(partition)
            assert len(found) < before
            seen = {record.key: (record.offset, record.value) for record in found}
            assert seen == newest
            offsets = [record.offset for record in found]
            assert offsets == sorted(set(offsets))
            assert [(r.offset, r.value) for r in all_records(bench.open(**COMPACT))] == [
                (r.offset, r.value) for r in found
            ]
        # What is not in the segment that is being written has been compacted to one record a key.
        sealed = [record.key for record in found if record.offset < partition.active.base_offset]
        assert len(sealed) == len(set(sealed))
        assert len(partition.segments) <= 4


@in_loop
async def test_marks_of_removed_keys_go_in_their_turn(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = bench.open(**COMPACT)
        await bench.append(partition, b"value", key=b"gone")
        await bench.append(partition, None, key=b"gone")  # type: ignore[arg-type]
        for number in range(40):
            await bench.append(partition, b"x" * 100, key=b"k%d" % number)
        await upkeep(bench, partition)._tend(partition)
        assert [record.value for record in all_records(partition) if record.key == b"gone"] == [None]
        bench.now += 60_000
        for number in range(40):
            await bench.append(partition, b"x" * 100, key=b"k%d" % number)
        await upkeep(bench, partition)._tend(partition)
        assert [record for record in all_records(partition) if record.key == b"gone"] == []


@in_loop
async def test_an_interrupted_compaction_is_tidied_up(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = bench.open(**COMPACT)
        for number in range(100):
            await bench.append(partition, b"x" * 60, key=b"k%d" % (number % 7))
        order = compaction.plan(partition, bench.now)
        assert order is not None
        files = compaction.carry_out(order, bench.disk)
        assert bench.open(**COMPACT).next_offset == 100
        assert not list(tmp_path.glob("*.cleaned"))
        # The first file is in place, the segments that it replaces are still there.
        files = compaction.carry_out(order, bench.disk)
        second = partition.segments[1].path
        kept = second.read_bytes()
        compaction.put_in_place(partition, files)
        second.write_bytes(kept)
        again = bench.open(**COMPACT)
        found = [record.offset for record in all_records(again)]
        assert found == sorted(set(found))
        assert not second.exists()
