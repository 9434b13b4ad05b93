"""Compaction by key: of every key the newest record is kept, and what it replaced goes.

Works on sealed segments only. A first pass over what is new since the last time finds each key's newest
offset; a second copies the segments without the records that have been replaced, several small ones into
one file. Offsets stay as they are. A record without a value removes its key, and goes itself after
`delete.retention.ms`.

The copying runs in a process of its own (`python -m fanlog.log.compaction`, orders on standard input),
so it never holds up the loop. Its files count only once they are renamed into place, each over the
first segment that it replaces; a crash before the others are removed leaves segments that begin before
their predecessor ends, which recovery takes away.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import msgspec

from fanlog.log.disk import Disk
from fanlog.log.index import Index
from fanlog.log.partition import Partition, unpack
from fanlog.log.recovery import CLEANED_SUFFIX
from fanlog.log.segment import Segment, log_path
from fanlog.wire import compression, records
from fanlog.wire.records import Header, Record

# Copied to a file at once.
_CHUNK_BYTES = 1 << 20


class Source(msgspec.Struct):
    """A segment to be compacted, and the offset at which the next one begins."""

    path: str
    base_offset: int
    size: int
    next_offset: int


class Order(msgspec.Struct):
    directory: str
    sources: list[Source]
    # From here on records are new since the last compaction.
    dirty_from: int
    tombstones_before_ms: int
    segment_bytes: int
    index_interval: int


class Cleaned(msgspec.Struct):
    """A file that takes the place of the segments from `base_offset` to `next_offset`."""

    path: str
    base_offset: int
    next_offset: int
    size: int


def plan(partition: Partition, now_ms: int) -> Order | None:
    """What there is to compact; None if it is not worth it yet."""
    config = partition.config
    youngest = now_ms - config.compaction_lag_ms
    sealed = list(takewhile(lambda one: one.index.max_timestamp <= youngest, partition.segments[:-1]))
    dirty = sum(segment.size for segment in sealed if segment.base_offset >= partition.cleaned_until)
    if not dirty or dirty < config.dirty_ratio_min * sum(segment.size for segment in sealed):
        return None
    sources = [
        Source(str(segment.path), segment.base_offset, segment.size, following.base_offset)
        for segment, following in zip(sealed, partition.segments[1:], strict=False)
    ]
    return Order(
        directory=str(partition.directory),
        sources=sources,
        dirty_from=partition.cleaned_until,
        tombstones_before_ms=now_ms - config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        index_interval=partition.index_interval,
    )


async def in_process(order: Order) -> list[Cleaned]:
    """Has `order` carried out by another process; ends it if the waiting is cancelled."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fanlog.log.compaction",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        output, _ = await process.communicate(msgspec.json.encode(order))
    except asyncio.CancelledError:
        process.kill()
        raise
    if process.returncode != 0:
        raise OSError(f"compaction of {order.directory} failed")
    return msgspec.json.decode(output, type=list[Cleaned])


def put_in_place(partition: Partition, files: list[Cleaned]) -> None:
    """Renames finished files over the segments that they replace, and removes the others."""
    for cleaned in files:
        target = log_path(partition.directory, cleaned.base_offset)
        fresh = Path(cleaned.path)
        for segment in partition.segments:
            if cleaned.base_offset <= segment.base_offset < cleaned.next_offset:
                # A crash from here on finds a segment without its index, and builds that anew.
                partition.disk.remove(segment.index_path)
        partition.disk.rename(fresh, target)
        partition.disk.rename(_index_of(fresh), target.with_suffix(".index"))
        partition.disk.sync_directory(partition.directory)
        for segment in partition.segments:
            if cleaned.base_offset < segment.base_offset < cleaned.next_offset:
                partition.disk.remove(segment.path)


def adopt(partition: Partition, files: list[Cleaned]) -> None:
    """Makes the partition read the files that are in place now."""
    if not files:
        return
    end = files[-1].next_offset
    fresh = []
    for cleaned in files:
        path = log_path(partition.directory, cleaned.base_offset)
        index = Index.from_bytes(path.with_suffix(".index").read_bytes(), partition.index_interval)
        assert index is not None
        segment = Segment(path, cleaned.base_offset, partition.disk, index, cleaned.size)
        segment.indexed = len(index)
        fresh.append(segment)
    partition.segments = fresh + [segment for segment in partition.segments if segment.base_offset >= end]
    partition.cleaned_until = end


# --- in the process of its own --------------------------------------------------------------------------


def carry_out(order: Order, disk: Disk) -> list[Cleaned]:
    newest = _newest_offsets(order, disk)
    files: list[Cleaned] = []
    output: _Output | None = None
    for source in order.sources:
        if output is not None and output.size + source.size > order.segment_bytes:
            files.append(output.finish(source.base_offset))
            output = None
        if output is None:
            output = _Output(order, source.base_offset, disk)
        for batch, header in _batches(source, order, disk):
            kept = _kept(batch, header, newest, order)
            if kept is not None:
                output.put(kept)
    if output is not None:
        files.append(output.finish(order.sources[-1].next_offset))
    return files


def _batches(source: Source, order: Order, disk: Disk) -> Iterator[tuple[bytes, Header]]:
    segment = Segment(Path(source.path), source.base_offset, disk, Index(order.index_interval), source.size)
    for position, header in segment.headers(0):
        yield segment.batch(position, header), header


def _newest_offsets(order: Order, disk: Disk) -> dict[bytes, int]:
    newest: dict[bytes, int] = {}
    for source in order.sources:
        if source.base_offset < order.dirty_from:
            continue
        for batch, header in _batches(source, order, disk):
            for record in unpack(batch, header):
                if record.key is not None:
                    newest[record.key] = record.offset
    return newest


def _kept(batch: bytes, header: Header, newest: dict[bytes, int], order: Order) -> bytes | None:
    """The batch without the records that are gone; None if that is all of them."""
    before = unpack(batch, header)
    kept = [record for record in before if _stays(record, newest, order)]
    if not kept:
        return None
    if len(kept) == len(before):
        return batch
    body = records.encode_records(kept, header.base_offset, header.base_timestamp)
    return records.encode_batch(
        compression.compress(header.compression, body),
        len(kept),
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.base_offset,
        header.leader_epoch,
        header.attributes,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


def _stays(record: Record, newest: dict[bytes, int], order: Order) -> bool:
    if record.key is None:
        return True
    if record.offset < newest.get(record.key, -1):
        return False
    return record.value is not None or record.timestamp >= order.tombstones_before_ms


class _Output:
    """A compacted segment that is being written."""

    def __init__(self, order: Order, base_offset: int, disk: Disk) -> None:
        self.disk = disk
        self.base_offset = base_offset
        # A broker that is killed leaves this process at work; its successor's must not share files with it.
        suffix = f".log.{os.getpid()}{CLEANED_SUFFIX}"
        self.path = log_path(Path(order.directory), base_offset).with_suffix(suffix)
        self.index = Index(order.index_interval)
        self.size = 0
        self._fd = disk.open(self.path, create=True)
        disk.truncate(self._fd, 0)
        self._parts: list[bytes | memoryview] = []
        self._waiting = 0

    def put(self, batch: bytes) -> None:
        header = records.read_header(batch)
        self.index.note(header.base_offset, self.size, len(batch), header.max_timestamp)
        self._parts.append(batch)
        self._waiting += len(batch)
        self.size += len(batch)
        if self._waiting >= _CHUNK_BYTES:
            self._write()

    def _write(self) -> None:
        if self._parts:
            self.disk.write(self._fd, self._parts, self.size - self._waiting)
        self._parts, self._waiting = [], 0

    def finish(self, next_offset: int) -> Cleaned:
        self._write()
        self.disk.sync(self._fd)
        self.disk.close(self._fd)
        self.index.put(next_offset, self.size)
        self.disk.replace(_index_of(self.path), self.index.to_bytes())
        return Cleaned(str(self.path), self.base_offset, next_offset, self.size)


def _index_of(path: Path) -> Path:
    return path.with_name(path.name.replace(".log", ".index"))


def main() -> None:
    os.nice(10)
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    sys.stdout.buffer.write(msgspec.json.encode(carry_out(order, Disk())))


if __name__ == "__main__":
    main()
