"""One file of a partition's log, and the index beside it.

`size` is how much of the file counts: what lies behind it is being written, or was never acknowledged.
Files are opened when they are first read and closed when nobody holds the segment any more, so a reader
may go on with one that retention has removed.
"""

import contextlib
import os
from pathlib import Path

from fanlog.log.disk import Disk
from fanlog.log.errors import StorageError, WouldBlock
from fanlog.log.index import Index
from fanlog.wire import records
from fanlog.wire.records import HEADER_BYTES, Header

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
# Read at once when looking for a batch whose place is not known exactly.
_SCAN_BYTES = 65_536


class Segment:
    __slots__ = ("__weakref__", "_fd", "base_offset", "disk", "index", "indexed", "path", "size")

    def __init__(self, path: Path, base_offset: int, disk: Disk, index: Index, size: int = 0) -> None:
        self.path = path
        self.base_offset = base_offset
        self.disk = disk
        self.index = index
        self.size = size
        # Entries of the index that are in its file.
        self.indexed = 0
        self._fd = -1

    @classmethod
    def create(cls, directory: Path, base_offset: int, disk: Disk, interval: int) -> "Segment":
        segment = cls(log_path(directory, base_offset), base_offset, disk, Index(interval))
        segment._fd = disk.open(segment.path, create=True)
        try:
            disk.sync_directory(directory)
        except OSError:
            # A later sync would say nothing about this name: the next attempt has to make it anew.
            segment.close()
            disk.remove(segment.path)
            raise
        return segment

    @property
    def fd(self) -> int:
        if self._fd < 0:
            self._fd = self.disk.open(self.path)
        return self._fd

    @property
    def index_path(self) -> Path:
        return self.path.with_suffix(INDEX_SUFFIX)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1

    def pread(self, size: int, at: int, wait: bool) -> bytes:
        size = min(size, self.size - at)
        try:
            data = self.disk.read(self.fd, size, at) if wait else self.disk.read_cached(self.fd, size, at)
        except OSError as error:
            raise StorageError(f"{self.path.name} cannot be read: {error.strerror}") from error
        if data is None or (len(data) < size and not wait):
            raise WouldBlock
        if len(data) < size:
            raise StorageError(f"{self.path.name} ends {size - len(data)} bytes before it should")
        return data

    def read(self, offset: int, bytes_max: int, wait: bool) -> memoryview | None:
        """Batches from the one that holds `offset` on, the first of them whole; None if none is here."""
        at = self.index.position_of(offset)
        span = bytes_max
        while at < self.size:
            data = self.pread(max(span, HEADER_BYTES), at, wait)
            found = records.find_batch(data, offset)
            if found < 0:
                at = self._next_batch(data, at)
                span = _SCAN_BYTES
                continue
            size = int.from_bytes(data[found + 8 : found + 12], "big") + records.OVERHEAD_BYTES
            if found + size > len(data):
                data, at, found = self.pread(max(size, bytes_max), at + found, wait), at + found, 0
            end = min(found + max(size, bytes_max), len(data))
            if at + end < self.size:
                # A batch that is cut short is of no use to the reader, who would ask for it again.
                known = max(self.index.position_before(at + end) - at, found)
                end = records.last_boundary(data, known, end)
            return memoryview(data)[found:end]
        return None

    def _next_batch(self, data: bytes, at: int) -> int:
        """The place of the first batch whose header is not whole in `data`, which was read at `at`."""
        passed = 0
        while passed + HEADER_BYTES <= len(data):
            passed += int.from_bytes(data[passed + 8 : passed + 12], "big") + records.OVERHEAD_BYTES
        if passed == 0:
            raise StorageError(f"{self.path.name} is damaged at {at}")
        return at + passed

    def headers(self, at: int, wait: bool = True) -> "HeaderWalk":
        return HeaderWalk(self, at, wait)

    def batch(self, position: int, header: Header) -> bytes:
        return self.pread(header.size, position, True)


class HeaderWalk:
    """Iterates over `(position, header)` from a batch's place on, reading ahead but not the records."""

    def __init__(self, segment: Segment, at: int, wait: bool) -> None:
        self.segment = segment
        self.at = at
        self.wait = wait
        self._data = b""
        self._from = at

    def __iter__(self) -> "HeaderWalk":
        return self

    def __next__(self) -> tuple[int, Header]:
        if self.at >= self.segment.size:
            raise StopIteration
        inside = self.at - self._from
        if inside + HEADER_BYTES > len(self._data):
            self._data, self._from = self.segment.pread(_SCAN_BYTES, self.at, self.wait), self.at
            inside = 0
            if len(self._data) < HEADER_BYTES:
                raise StorageError(f"{self.segment.path.name} is damaged at {self.at}")
        header = records.read_header(self._data, inside)
        if header.magic != 2 or header.size < HEADER_BYTES:
            raise StorageError(f"{self.segment.path.name} is damaged at {self.at}")
        position, self.at = self.at, self.at + header.size
        return position, header


def log_path(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020d}{LOG_SUFFIX}"
