"""The calls that the log makes to the file system, in one place.

The log knows nothing of files beyond these. Tests hand it a disk that fails, fills up or forgets; what
survives a loss of power is exactly what `sync` and `sync_directory` have been asked for.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

# The kernel takes no more parts than this in one call (IOV_MAX).
_PARTS_MAX = 1024
# Below this, joining the parts costs less than handing each to the kernel.
_JOIN_BYTES = 65_536
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)

Part = bytes | memoryview


class Disk:
    def open(self, path: Path, *, create: bool = False) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write(self, fd: int, parts: Sequence[Part], at: int) -> None:
        """Writes all of `parts` at position `at`, or raises."""
        total = sum(map(len, parts))
        if total <= _JOIN_BYTES:
            parts = (b"".join(parts),)
        for first in range(0, len(parts), _PARTS_MAX):
            at = self._write_all(fd, parts[first : first + _PARTS_MAX], at)

    def _write_all(self, fd: int, parts: Sequence[Part], at: int) -> int:
        left = sum(map(len, parts))
        while True:
            written = os.pwritev(fd, parts, at)
            at += written
            left -= written
            if not left:
                return at
            if not written:
                raise OSError(errno.EIO, "the disk took no more bytes")
            parts = _behind(parts, written)

    def read(self, fd: int, size: int, at: int) -> bytes:
        return os.pread(fd, size, at)

    def read_cached(self, fd: int, size: int, at: int) -> bytes | None:
        """What the page cache has of it without waiting for the disk; None if that is nothing."""
        if not _NOWAIT:
            return os.pread(fd, size, at)
        buffer = bytearray(size)
        try:
            count = os.preadv(fd, [buffer], at, _NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            # Not every file system can tell (EOPNOTSUPP); those that cannot are mostly memory.
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return os.pread(fd, size, at)
            raise
        return bytes(buffer) if count == size else bytes(memoryview(buffer)[:count])

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, path: Path, content: bytes) -> None:
        """Puts `content` at `path`, whole or not at all, and durable when this returns."""
        beside = path.with_name(path.name + ".tmp")
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            self.write(fd, (content,), 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(beside, path)
        self.sync_directory(path.parent)

    def rename(self, path: Path, to: Path) -> None:
        os.replace(path, to)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)


def _behind(parts: Sequence[Part], written: int) -> list[Part]:
    left: list[Part] = []
    for part in parts:
        if written >= len(part):
            written -= len(part)
        else:
            left.append(memoryview(part)[written:])
            written = 0
    return left
