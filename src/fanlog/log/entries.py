"""Batches on their way to the disk: what they are, who waits for them, and the rounds in which they go."""

from collections.abc import Callable

from fanlog.log.errors import LogError
from fanlog.log.segment import Segment
from fanlog.wire.records import Header, Message

# Called once, when what was appended is committed (None) or refused.
Done = Callable[[LogError | None], None]


class Entry:
    """A batch on its way to the disk, and who waits for it."""

    __slots__ = ("base_offset", "body", "done", "last_offset", "max_timestamp", "messages", "prefix", "size")

    def __init__(
        self, prefix: bytes, batch: bytes, header: Header, base_offset: int, done: Done | None
    ) -> None:
        self.prefix = prefix
        self.body = memoryview(batch)[len(prefix) :]
        self.base_offset = base_offset
        self.last_offset = base_offset + header.last_offset_delta
        self.max_timestamp = header.max_timestamp
        self.size = header.size
        self.done = done
        # What the batch was made of, if it was published singly.
        self.messages: list[Message] | None = None


class Round:
    """What one trip to the disk takes along, and what it brings back."""

    __slots__ = ("entries", "error", "fatal", "first_offset", "position", "rolled", "segment", "sync")

    def __init__(self, entries: list[Entry], first_offset: int, segment: Segment, sync: bool) -> None:
        self.entries = entries
        self.first_offset = first_offset
        self.segment = segment
        self.position = segment.size
        self.sync = sync
        self.rolled: Segment | None = None
        self.error: OSError | None = None
        self.fatal = False

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)
