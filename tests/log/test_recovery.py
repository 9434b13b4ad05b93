"""However a partition was left: what was acknowledged is there, and nothing half-written is."""

import asyncio
import random
from pathlib import Path

import pytest

from fanlog.log import checkpoint
from fanlog.log.partition import Partition
from fanlog.log.segment import log_path
from log.bench import Bench, all_records, bench_at
from support.loop import in_loop


async def filled(bench: Bench, batches: int, **config: str) -> Partition:
    partition = bench.open(**config)
    for number in range(batches):
        await bench.append(partition, b"%04d" % number * 10, producer=(5, 0, number))
    return partition


async def checkpointed(bench: Bench, partition: Partition) -> None:
    await asyncio.wait([bench.committer.checkpoint(partition)])


def offsets(partition: Partition) -> list[int]:
    return [record.offset for record in all_records(partition)]


@pytest.mark.parametrize("config", [{}, {"segment_bytes": "2048"}], ids=["one segment", "many segments"])
@in_loop
async def test_a_log_opens_as_it_was_without_any_checkpoint(tmp_path: Path, config: dict[str, str]) -> None:
    async with bench_at(tmp_path) as bench:
        await filled(bench, 100, **config)
        (tmp_path / checkpoint.NAME).unlink(missing_ok=True)
        again = bench.open(**config)
        assert offsets(again) == list(range(100))
        # The producer is remembered from the log alone.
        await bench.append(again, b"0099" * 10, producer=(5, 0, 99))
        assert again.next_offset == 100


@in_loop
async def test_a_checkpoint_saves_reading(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = await filled(bench, 100)
        assert bench.open().recovered_bytes == partition.size
        await checkpointed(bench, partition)
        assert bench.open().recovered_bytes == 0
        await bench.append(partition, b"one more", producer=(5, 0, 100))
        again = bench.open()
        assert 0 < again.recovered_bytes < 200
        assert offsets(again) == list(range(101))
        await bench.append(again, b"one more", producer=(5, 0, 100))
        assert again.next_offset == 101


@in_loop
async def test_a_torn_tail_is_cut_wherever_it_was_torn(tmp_path: Path) -> None:
    chance = random.Random(4)
    async with bench_at(tmp_path / "whole") as bench:
        partition = await filled(bench, 20)
        whole = partition.active.path.read_bytes()
        ends = [partition.active.size * number // 20 for number in range(21)]
    for cut in [*range(0, len(whole), 37), *ends]:
        directory = tmp_path / str(cut)
        directory.mkdir(exist_ok=True)
        tail = chance.choice([b"", bytes(50), chance.randbytes(200)])
        log_path(directory, 0).write_bytes(whole[:cut] + tail)
        async with bench_at(directory) as bench:
            again = bench.open()
            expected = sum(end <= cut for end in ends[1:])
            assert offsets(again) == list(range(expected))
            await bench.append(again, b"goes on")
            assert offsets(bench.open()) == list(range(expected + 1))


@in_loop
async def test_any_damaged_byte_in_the_tail_ends_the_log_there(tmp_path: Path) -> None:
    async with bench_at(tmp_path / "whole") as bench:
        partition = await filled(bench, 10)
        whole = partition.active.path.read_bytes()
    size = len(whole) // 10
    for place in range(0, len(whole), 11):
        directory = tmp_path / str(place)
        directory.mkdir()
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        log_path(directory, 0).write_bytes(damaged)
        async with bench_at(directory) as bench:
            found = offsets(bench.open())
            inside = place % size
            # The leader's epoch is outside the checksum, and says nothing yet.
            assert found == list(range(10 if 12 <= inside < 16 else place // size))


@pytest.mark.parametrize("damage", [b"", b"junk", bytes(48)], ids=["empty", "junk", "zeroes"])
@in_loop
async def test_a_damaged_index_is_built_anew(tmp_path: Path, damage: bytes) -> None:
    async with bench_at(tmp_path) as bench:
        partition = await filled(bench, 100, segment_bytes="2048")
        await checkpointed(bench, partition)
        for path in tmp_path.glob("*.index"):
            path.write_bytes(damage)
        again = bench.open(segment_bytes="2048")
        assert offsets(again) == list(range(100))
        await checkpointed(bench, again)
        assert bench.open(segment_bytes="2048").recovered_bytes == 0


@in_loop
async def test_a_damaged_checkpoint_only_costs_reading(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = await filled(bench, 30)
        await checkpointed(bench, partition)
        (tmp_path / checkpoint.NAME).write_bytes(b"\x00\x01\x02\x03nonsense")
        assert offsets(bench.open()) == list(range(30))


@in_loop
async def test_damage_in_a_sealed_segment_hides_no_other(tmp_path: Path) -> None:
    async with bench_at(tmp_path) as bench:
        partition = await filled(bench, 60, segment_bytes="2048")
        second = partition.segments[1]
        data = bytearray(second.path.read_bytes())
        data[100] ^= 1
        second.path.write_bytes(data)
        (tmp_path / checkpoint.NAME).unlink()
        found = offsets(bench.open(segment_bytes="2048"))
        missing = set(range(60)) - set(found)
        assert missing == set(range(second.base_offset, partition.segments[2].base_offset))


@in_loop
async def test_random_crashes_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Many lives: appends, rolls, checkpoints, and now and then a torn end."""
    chance = random.Random(11)
    acknowledged = 0
    for _ in range(40):
        async with bench_at(tmp_path) as bench:
            partition = bench.open(segment_bytes="4096")
            assert offsets(partition) == list(range(acknowledged))
            for _ in range(chance.randrange(30)):
                await bench.append(partition, b"v" * chance.randrange(200), producer=(9, 0, acknowledged))
                acknowledged += 1
                if chance.random() < 0.1:
                    await checkpointed(bench, partition)
            await bench.committer.drain()
            torn = partition.active.path
        if chance.random() < 0.6:
            with torn.open("ab") as file:
                file.write(chance.randbytes(chance.randrange(1, 300)))
