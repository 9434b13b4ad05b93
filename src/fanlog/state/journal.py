"""Internal compacted topics: where the broker writes what it must remember, and reads it back at the start.

All records of one owner (a group, a session, an address) go to one partition, so their order is the order in
which things were decided. The newest record of a key counts; one without a value removes it.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable, Iterator

from fanlog.cluster.catalog import Catalog, Topic
from fanlog.log.entries import Done
from fanlog.log.errors import LogError
from fanlog.log.partition import Partition, unpack
from fanlog.wire import records
from fanlog.wire.records import Record

logger = logging.getLogger(__name__)

# Small, because what is being written to is not compacted.
SEGMENT_BYTES = 16 << 20
_READ_BYTES = 1 << 20

Entry = tuple[bytes, bytes | None]


class Journal:
    def __init__(self, catalog: Catalog, name: str, partitions: int, clock_ms: Callable[[], int]) -> None:
        self.catalog = catalog
        self.name = name
        self.count = partitions
        self.clock_ms = clock_ms
        self._topic: Topic | None = None

    async def open(self) -> None:
        config = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
        self._topic = await self.catalog.ensure(self.name, self.count, config)

    async def replay(self, apply: Callable[[Record], None]) -> None:
        """Gives every record, oldest first within its owner, to `apply`, in another thread."""
        assert self._topic is not None
        for partition in self._topic.partitions:
            await asyncio.to_thread(_replay, partition, apply)

    def append(self, owner: str, entries: list[Entry], done: Done | None) -> None:
        """Writes records of an owner as one batch. `done` is called later, never from within."""
        now = self.clock_ms()
        self.append_batch(owner, records.batch_of([(key, value, ()) for key, value in entries], now), done)

    def append_batch(self, owner: str, batch: bytes, done: Done | None) -> None:
        assert self._topic is not None
        partitions = self._topic.partitions
        partition = partitions[zlib.crc32(owner.encode()) % len(partitions)]
        now = self.clock_ms()
        try:
            partition.append(batch, records.read_header(batch), now, done)
        except LogError as error:
            if done is not None:
                asyncio.get_running_loop().call_soon(done, error)


def _replay(partition: Partition, apply: Callable[[Record], None]) -> None:
    offset = partition.log_start
    while offset < partition.high_watermark:
        data = bytes(partition.read(offset, _READ_BYTES, wait=True))
        before = offset
        for header, batch in _batches(data):
            for record in unpack(batch, header):
                if record.offset >= offset:
                    apply(record)
            offset = header.last_offset + 1
        if offset == before:
            raise LogError(f"{partition.topic}-{partition.number} cannot be read at {offset}")


def _batches(data: bytes) -> Iterator[tuple[records.Header, bytes]]:
    """The batches that are there whole."""
    at = 0
    while at + records.HEADER_BYTES <= len(data):
        header = records.read_header(data, at)
        end = at + header.size
        if end > len(data):
            return
        yield header, data[at:end]
        at = end
