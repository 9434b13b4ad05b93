"""Opens a partition as it was left, however it was left.

What the checkpoint covers is taken as it stands. From there to the end every batch is checked: its CRC, its
length, and that its offset follows the one before. The first that fails ends the log, and the rest is cut: it
was being written when the broker stopped, and was never acknowledged, because an acknowledgement at level
`disk` means that everything before it had been synced.

The tail that was checked is then written again in place and synced. After a failed fsync the page cache
may hold, marked clean, what the disk does not; writing the same bytes makes the kernel store them for good
before anybody builds on them.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from fanlog.log import checkpoint as checkpoints
from fanlog.log.checkpoint import Checkpoint
from fanlog.log.disk import Disk
from fanlog.log.index import ENTRY_BYTES, Index
from fanlog.log.producers import Producers
from fanlog.log.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment
from fanlog.wire import records
from fanlog.wire.records import HEADER_BYTES

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 4 << 20
# A batch claims no more than this, or it is no batch.
_BATCH_BYTES_MAX = 1 << 30
CLEANED_SUFFIX = ".cleaned"


@dataclass(slots=True)
class Recovered:
    segments: list[Segment]
    log_start: int
    next_offset: int
    producers: Producers
    # Bytes that were read and checked, and bytes that were cut.
    checked_bytes: int = 0
    cut_bytes: int = 0
    # The disk would not take the tail again: what there is can be read, and nothing be added.
    failure: OSError | None = None


def recover(directory: Path, disk: Disk, interval: int) -> Recovered:
    directory.mkdir(parents=True, exist_ok=True)
    _finish_compaction(directory, disk)
    saved = checkpoints.load(directory)
    paths = sorted(directory.glob(f"*{LOG_SUFFIX}"))
    if not paths:
        start = saved.log_start if saved else 0
        segment = Segment.create(directory, start, disk, interval)
        disk.sync_directory(directory.parent)
        return Recovered([segment], start, start, Producers())
    found = Recovered([], saved.log_start if saved else int(paths[0].stem), 0, Producers())
    if saved is not None:
        found.producers = Producers.load(saved.producers)
    for path in paths[:-1]:
        if int(path.stem) < found.next_offset:
            # Its records are in the file before it: compaction was interrupted before this one was removed.
            disk.remove(path)
            disk.remove(path.with_suffix(INDEX_SUFFIX))
        else:
            _open_sealed(found, path, disk, interval, saved)
    _open_active(found, paths[-1], disk, interval, saved)
    found.log_start = max(found.log_start, found.segments[0].base_offset)
    found.next_offset = max(found.next_offset, found.log_start)
    return found


def _finish_compaction(directory: Path, disk: Disk) -> None:
    """Removes what an interrupted write or compaction left; a compacted file counts once it is renamed."""
    for path in [*directory.glob("*.tmp"), *directory.glob(f"*{CLEANED_SUFFIX}")]:
        disk.remove(path)


def _open_sealed(found: Recovered, path: Path, disk: Disk, interval: int, saved: Checkpoint | None) -> None:
    base = int(path.stem)
    if saved is not None and base < saved.segment:
        index = _load_index(path.with_suffix(INDEX_SUFFIX), interval)
        if index is not None and index.positions[-1] == path.stat().st_size:
            segment = Segment(path, base, disk, index, index.positions[-1])
            segment.indexed = len(index)
            found.segments.append(segment)
            found.next_offset = index.offsets[-1]
            return
        logger.info("%s: its index is missing or does not fit: building it anew", path)
    segment = Segment(path, base, disk, Index(interval))
    next_offset = _scan(
        found, segment, 0, base, contiguous=False, note_from=saved.next_offset if saved else 0
    )
    if segment.size < disk.size(segment.fd):
        # Sealed files were synced before the next one was begun: this is damage, and nothing is thrown away.
        logger.error("%s: damaged at byte %d; what is behind it cannot be read", path, segment.size)
    segment.index.put(next_offset, segment.size)
    disk.replace(segment.index_path, segment.index.to_bytes())
    segment.indexed = len(segment.index)
    found.segments.append(segment)
    found.next_offset = next_offset


def _load_index(path: Path, interval: int, entries: int | None = None) -> Index | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if entries is not None:
        if len(data) < entries * ENTRY_BYTES:
            return None
        data = data[: entries * ENTRY_BYTES]
    return Index.from_bytes(data, interval)


def _open_active(found: Recovered, path: Path, disk: Disk, interval: int, saved: Checkpoint | None) -> None:
    base = int(path.stem)
    index: Index | None = None
    position, next_offset = 0, base
    segment = Segment(path, base, disk, Index(interval))
    length = disk.size(segment.fd)
    if saved is not None and saved.segment == base and saved.position <= length:
        index = _load_index(segment.index_path, interval, saved.index_entries)
        if index is not None or saved.position == 0:
            segment.index = index or segment.index
            segment.index.max_timestamp = saved.max_timestamp
            segment.indexed = len(segment.index)
            position, next_offset = saved.position, saved.next_offset
    if saved is not None and saved.segment == base and saved.position > length:
        logger.error("%s: %d bytes that were durable are gone", path, saved.position - length)
    segment.size = position
    found.next_offset = _scan(
        found, segment, position, next_offset, contiguous=True, note_from=saved.next_offset if saved else 0
    )
    found.cut_bytes = length - segment.size
    found.segments.append(segment)
    try:
        if found.cut_bytes:
            logger.info("%s: cut %d bytes that were never acknowledged", path, found.cut_bytes)
            disk.truncate(segment.fd, segment.size)
        _store_again(segment, position)
    except OSError as error:
        found.failure = error


def _scan(
    found: Recovered, segment: Segment, at: int, next_offset: int, *, contiguous: bool, note_from: int
) -> int:
    """Checks batches from `at` on, takes them into the index, and returns the offset behind the last."""
    data, start = b"", at
    while True:
        inside = at - start
        if inside + HEADER_BYTES > len(data):
            data, start, inside = segment.disk.read(segment.fd, _CHUNK_BYTES, at), at, 0
            if len(data) < HEADER_BYTES:
                break
        header = records.read_header(data, inside)
        size = header.size
        if header.magic != 2 or not HEADER_BYTES <= size <= _BATCH_BYTES_MAX:
            break
        follows = header.base_offset == next_offset if contiguous else header.base_offset >= next_offset
        if not follows or header.last_offset_delta < 0:
            break
        if inside + size > len(data):
            data, start, inside = segment.disk.read(segment.fd, max(size, _CHUNK_BYTES), at), at, 0
            if size > len(data):
                break
        if records.checksum(memoryview(data)[inside : inside + size]) != header.crc:
            break
        segment.index.note(header.base_offset, at, size, header.max_timestamp)
        if header.producer_id >= 0 and header.base_offset >= note_from:
            found.producers.note(header, header.base_offset, header.max_timestamp)
        at += size
        next_offset = header.last_offset + 1
        found.checked_bytes += size
    segment.size = at
    return next_offset


def _store_again(segment: Segment, position: int) -> None:
    while position < segment.size:
        chunk = segment.disk.read(segment.fd, min(_CHUNK_BYTES, segment.size - position), position)
        segment.disk.write(segment.fd, (chunk,), position)
        position += len(chunk)
    segment.disk.sync(segment.fd)
