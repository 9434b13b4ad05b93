"""A partition takes batches, commits them at its level, and gives them back."""

import asyncio
import errno
from pathlib import Path

import pytest

from fanlog.log.disk import Disk
from fanlog.log.errors import Closed, OffsetOutOfRange, OutOfOrderSequence, StaleEpoch, StorageError
from fanlog.log.partition import Partition
from fanlog.testing import FaultyDisk
from fanlog.wire import records
from log.bench import all_records, bench_at
from support.loop import in_loop


def values(partition: Partition, **how: int) -> list[bytes | None]:
    return [record.value for record in all_records(partition, **how)]


@in_loop
async def test_what_was_appended_is_read_back_in_order(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = bench.open()
        for number in range(50):
            await bench.append(partition, b"%d" % number, b"%d+" % number)
        found = all_records(partition)
        assert [record.offset for record in found] == list(range(100))
        assert found[7].value == b"3+"
        assert values(partition, start=97) == [b"48+", b"49", b"49+"]
        assert values(partition, bytes_max=1) == [record.value for record in found]


@in_loop
async def test_one_turn_of_the_loop_is_one_sync(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with bench_at(tmp_path, disk) as bench:
        partition = bench.open()
        before = disk.syncs
        await asyncio.gather(*[bench.append(partition, b"x") for _ in range(100)])
        assert disk.syncs - before <= 2
        assert len(all_records(partition)) == 100


@pytest.mark.parametrize(("level", "syncs"), [("memory", 0), ("os", 0), ("disk", 1)])
@in_loop
async def test_each_level_does_what_it_promises_and_no_more(tmp_path: Path, level: str, syncs: int) -> None:
    disk = FaultyDisk()
    async with bench_at(tmp_path, disk) as bench:
        partition = bench.open(fanlog_durability=level)
        before = disk.syncs
        await bench.append(partition, b"x")
        assert disk.syncs - before == syncs
        assert partition.active.size > 0 or level == "memory"


@in_loop
async def test_nothing_is_visible_before_it_is_committed(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = bench.open()
        waiting = bench.offer(partition, b"x")
        assert partition.next_offset == 1
        assert partition.high_watermark == 0
        assert all_records(partition) == []
        with pytest.raises(OffsetOutOfRange):
            partition.read(1, 100)
        assert await waiting is None
        assert partition.high_watermark == 1


@in_loop
async def test_level_memory_is_read_before_it_is_written(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = bench.open(fanlog_durability="memory")
        for number in range(5):
            await bench.append(partition, b"%d" % number)
        assert partition.stored_offset == 0
        assert values(partition) == [b"0", b"1", b"2", b"3", b"4"]
        assert values(partition, start=3) == [b"3", b"4"]
        assert partition.available(3) > 0
        assert partition.find_time(bench.now) == (0, bench.now)
        assert partition.find_latest_time() == (0, bench.now)
        await bench.committer.drain()
        assert partition.stored_offset == 5
        assert values(partition) == [b"0", b"1", b"2", b"3", b"4"]


@in_loop
async def test_level_memory_tells_of_every_batch_once_and_in_order(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = bench.open(fanlog_durability="memory")
        told: list[int] = []
        partition.listener = lambda _, entries: told.extend(entry.base_offset for entry in entries)
        await bench.append(partition, b"0")
        # Not written yet, and another comes: the first is not told again.
        await bench.append(partition, b"1")
        assert told == [0, 1]
        third = bench.offer(partition, b"2")
        # It goes to the disk before its turn has come, and the next must not overtake it.
        round = partition.take()
        fourth = bench.offer(partition, b"3")
        partition.commit_early()
        assert partition.high_watermark == 2
        partition.store(round, False)
        partition.settle(round, bench.now)
        assert await third is None
        assert await fourth is None
        assert told == [0, 1, 2, 3]


@in_loop
async def test_level_memory_keeps_what_it_promised_while_the_disk_is_full(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with bench_at(tmp_path, disk) as bench:
        partition = bench.open(fanlog_durability="memory")
        disk.fill_up()
        await bench.append(partition, b"promised")
        while partition.stalled is None:
            await asyncio.sleep(0.005)
        with pytest.raises(StorageError):
            bench.offer(partition, b"refused")
        assert values(partition) == [b"promised"]
        disk.write_error = 0
        while partition.stalled is not None:
            await asyncio.sleep(0.005)
        await bench.append(partition, b"later")
        await bench.committer.drain()
        assert values(partition) == [b"promised", b"later"]
        assert [record.value for record in all_records(bench.open())] == [b"promised", b"later"]


@in_loop
async def test_a_full_disk_refuses_and_is_forgiven(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with bench_at(tmp_path, disk) as bench:
        partition = bench.open()
        await bench.append(partition, b"before")
        disk.fill_up()
        disk.write_error_after_bytes = 30
        refused = [bench.offer(partition, b"no"), bench.offer(partition, b"no")]
        assert [type(await one) for one in refused] == [StorageError, StorageError]
        assert values(partition) == [b"before"]
        disk.write_error = 0
        await bench.append(partition, b"after")
        assert [(record.offset, record.value) for record in all_records(partition)] == [
            (0, b"before"),
            (1, b"after"),
        ]
        assert values(bench.open()) == [b"before", b"after"]


@in_loop
async def test_after_a_failed_sync_nothing_is_acknowledged_any_more(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with bench_at(tmp_path, disk) as bench:
        partition = bench.open()
        await bench.append(partition, b"before")
        disk.sync_error = errno.EIO
        assert isinstance(await bench.offer(partition, b"lost"), StorageError)
        disk.sync_error = 0
        with pytest.raises(StorageError, match="until the broker restarts"):
            bench.offer(partition, b"never")
        assert values(partition) == [b"before"]
        await bench.append(bench.open(), b"again")


@in_loop
async def test_a_sync_that_fails_under_a_checkpoint_stops_level_os_too(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with bench_at(tmp_path, disk) as bench:
        partition = bench.open(fanlog_durability="os")
        await bench.append(partition, b"before")
        disk.sync_error = errno.EIO
        await asyncio.wait([bench.committer.checkpoint(partition)])
        await asyncio.sleep(0)
        disk.sync_error = 0
        with pytest.raises(StorageError):
            bench.offer(partition, b"never")
        assert values(partition) == [b"before"]


@in_loop
async def test_a_torn_write_that_cannot_be_undone_closes_the_partition(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with bench_at(tmp_path, disk) as bench:
        partition = bench.open(fanlog_durability="os")
        await bench.append(partition, b"before")
        disk.write_error, disk.write_error_after_bytes, disk.truncate_error = errno.EIO, 20, errno.EIO
        assert isinstance(await bench.offer(partition, b"torn"), StorageError)
        disk.write_error = disk.truncate_error = 0
        with pytest.raises(StorageError):
            bench.offer(partition, b"never")
        assert values(bench.open()) == [b"before"]


@in_loop
async def test_a_batch_sent_again_keeps_its_offset(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = bench.open()
        first = bench.offer(partition, b"a", b"b", producer=(7, 0, 0))
        again = bench.offer(partition, b"a", b"b", producer=(7, 0, 0))
        assert [await first, await again] == [None, None]
        await bench.append(partition, b"c", producer=(7, 0, 2))
        await bench.append(partition, b"a", b"b", producer=(7, 0, 0))
        assert values(partition) == [b"a", b"b", b"c"]
        with pytest.raises(OutOfOrderSequence):
            bench.offer(partition, b"gap", producer=(7, 0, 9))
        await bench.append(partition, b"new epoch", producer=(7, 1, 0))
        with pytest.raises(StaleEpoch):
            bench.offer(partition, b"old epoch", producer=(7, 0, 3))


@in_loop
async def test_a_refused_batch_may_be_sent_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with bench_at(tmp_path, disk) as bench:
        partition = bench.open()
        await bench.append(partition, b"a", producer=(7, 0, 0))
        disk.fill_up()
        assert await bench.offer(partition, b"b", producer=(7, 0, 1)) is not None
        disk.write_error = 0
        await bench.append(partition, b"b", producer=(7, 0, 1))
        assert values(partition) == [b"a", b"b"]


@in_loop
async def test_segments_follow_each_other_without_a_seam(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = bench.open(segment_bytes="1024")
        for number in range(60):
            await bench.append(partition, b"%03d" % number * 30)
        assert len(partition.segments) > 5
        assert values(partition) == [b"%03d" % number * 30 for number in range(60)]
        for offset in range(60):
            assert all_records(partition, start=offset)[0].offset == offset


@in_loop
async def test_a_reader_gets_whole_batches_and_no_more_than_it_asked_for(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = bench.open()
        for number in range(300):
            await bench.append(partition, b"x" * (number % 97))
        for bytes_max in (1, 200, 1000, 5000, 20_000, 1 << 20):
            for offset in range(0, 300, 7):
                data = bytes(partition.read(offset, bytes_max))
                first = records.read_header(data)
                assert first.base_offset == offset
                assert len(data) <= max(bytes_max, first.size)
                assert records.last_boundary(data, 0, len(data)) == len(data)
                left = partition.active.size - partition.active.index.position_of(offset)
                following = (
                    records.read_header(bytes(partition.read(offset + 1, 1))) if offset < 299 else None
                )
                if following is not None and following.size + first.size <= bytes_max <= left:
                    assert len(data) > first.size


@in_loop
async def test_a_record_is_found_by_its_time(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = bench.open(segment_bytes="1024")
        start = bench.now
        for number in range(100):
            bench.now = start + number * 1000
            await bench.append(partition, b"x" * 50, b"y" * 50)
        for number in range(100):
            assert partition.find_time(start + number * 1000 - 1) == (number * 2, start + number * 1000)
        assert partition.find_time(start + 99_001) is None
        assert partition.find_latest_time() == (198, start + 99_000)


@in_loop
async def test_a_closed_partition_refuses_everybody(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = bench.open()
        await bench.append(partition, b"x")
        waiting = bench.offer(partition, b"y")
        partition.close("the topic was removed")
        assert isinstance(await waiting, Closed)
        with pytest.raises(Closed):
            partition.read(0, 100)


def test_a_large_write_in_many_parts_arrives_whole(tmp_path: Path) -> None:
    disk = Disk()
    fd = disk.open(tmp_path / "file", create=True)
    parts = [b"%05d" % number * 20 for number in range(3000)]
    disk.write(fd, parts, 0)
    disk.close(fd)
    assert (tmp_path / "file").read_bytes() == b"".join(parts)
