"""A partition on a real file system, driven by a real committer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fanlog.config import Log, Settings
from fanlog.log.commit import Committer
from fanlog.log.disk import Disk
from fanlog.log.errors import LogError
from fanlog.log.partition import Partition, unpack
from fanlog.log.topic_config import TopicConfig
from fanlog.testing import FaultyDisk
from fanlog.wire import records


class Bench:
    """A partition and all that it needs; `reopen` opens the same directory as after a crash."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.directory = directory
        self.disk = disk
        self.committer = Committer(Log(checkpoint_bytes=1 << 30))
        self.now = 1_700_000_000_000
        self.committer.clock_ms = lambda: self.now

    def open(self, **config: str) -> Partition:
        overrides = {name.replace("_", "."): value for name, value in config.items()}
        overrides.setdefault("fanlog.durability", "disk")
        return Partition(
            "topic", 0, self.directory, TopicConfig(overrides, Settings()), self.disk, self.committer, 4096
        )

    def offer(
        self,
        partition: Partition,
        *values: bytes,
        key: bytes | None = None,
        producer: tuple[int, int, int] = (-1, -1, -1),
    ) -> "asyncio.Future[LogError | None]":
        """Appends one batch; the future tells what became of it."""
        entries = [records.Record(n, self.now, key, value, ()) for n, value in enumerate(values)]
        batch = records.encode_batch(
            records.encode_records(entries, 0, self.now),
            len(values),
            len(values) - 1,
            self.now,
            self.now,
            0,
            0,
            0,
            *producer,
        )
        future: asyncio.Future[LogError | None] = asyncio.get_running_loop().create_future()
        partition.append(batch, records.check_header(batch), self.now, future.set_result)
        return future

    async def append(self, partition: Partition, *values: bytes, **how: Any) -> None:
        error = await self.offer(partition, *values, **how)
        if error is not None:
            raise error


def all_records(
    partition: Partition, start: int | None = None, bytes_max: int = 1 << 20
) -> list[records.Record]:
    """Everything that a reader sees, fetched piece by piece as a reader does."""
    offset = partition.log_start if start is None else start
    found: list[records.Record] = []
    while True:
        data = bytes(partition.read(offset, bytes_max, wait=True))
        if not data:
            return found
        at = 0
        while at + records.HEADER_BYTES <= len(data):
            header = records.read_header(data, at)
            if at + header.size > len(data):
                break
            batch = data[at : at + header.size]
            assert records.checksum(batch) == header.crc
            found += [record for record in unpack(batch, header) if record.offset >= offset]
            at += header.size
            offset = header.last_offset + 1


@contextlib.asynccontextmanager
async def bench_at(directory: Path, disk: Disk | None = None) -> AsyncIterator[Bench]:
    bench = Bench(directory, disk or FaultyDisk())
    try:
        yield bench
    finally:
        await asyncio.wait_for(bench.committer.close(), 10)
