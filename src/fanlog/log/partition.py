"""One partition: the unit of order. Takes batches, commits them, gives them back by offset and by time.

The life of a batch: `append` gives it its offset and puts it with those that arrived in the same turn of the
loop. The committer takes them together (`take`), has them written and, at level `disk`, synced (`store`,
the only part that runs off the loop's thread), and brings the result back (`settle`): the batches become
visible, their waiters are told, parked readers wake. Only one such round is on its way at a time;
what arrives meanwhile makes up the next. So the number of syncs follows the disk, not the publishers.

At level `memory` the batches become visible and are acknowledged before the round: `commit_early`. Until
they are stored, they are read from memory.

If storing fails, the batches of that round and all that came behind are refused, and it is as if they had
never come. After a failed sync the partition takes nothing more: the kernel has dropped the pages, and a
later sync that succeeds would say nothing about them. Reads go on.

All methods but `store` and `checkpoint_now` belong to the loop's thread.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

from fanlog.log import checkpoint as checkpoints
from fanlog.log.checkpoint import Checkpoint
from fanlog.log.disk import Disk, Part
from fanlog.log.entries import Done, Entry, Round
from fanlog.log.errors import Closed, LogError, OffsetOutOfRange, StorageError
from fanlog.log.index import ENTRY_BYTES
from fanlog.log.producers import Producers
from fanlog.log.recovery import recover
from fanlog.log.segment import Segment
from fanlog.log.topic_config import TopicConfig
from fanlog.wire import compression, records
from fanlog.wire.records import Header, Message

LEADER_EPOCH = 0
# A batch may hold this much once it is unpacked.
UNPACKED_BYTES_MAX = 256 << 20
# More than this is not gathered into one batch of single messages.
OPEN_BYTES_MAX = 512 << 10


class Reader(Protocol):
    """Somebody who has read to the end and waits for more."""

    def wake(self, partition: "Partition") -> None: ...


class Publisher(Protocol):
    """Who published single messages, and is told what became of each that asked for it."""

    def stored(self, message: Message, error: LogError | None) -> None: ...


# Told of entries as they become visible.
Listener = Callable[["Partition", list[Entry]], None]


class Scheduler(Protocol):
    """Who sees to it that what was appended gets committed."""

    def schedule(self, partition: "Partition") -> None: ...

    def clock_ms(self) -> int: ...


class Partition:
    def __init__(
        self,
        topic: str,
        number: int,
        directory: Path,
        config: TopicConfig,
        disk: Disk,
        scheduler: Scheduler,
        index_interval: int,
    ) -> None:
        self.topic = topic
        self.number = number
        self.directory = directory
        self.config = config
        self.disk = disk
        self.scheduler = scheduler
        self.index_interval = index_interval
        found = recover(directory, disk, index_interval)
        self.segments = found.segments
        self.producers: Producers = found.producers
        self.recovered_bytes = found.checked_bytes
        self.log_start = found.log_start
        # The offset that the next record gets; what is written; what readers may see.
        self.next_offset = self.stored_offset = self.high_watermark = found.next_offset
        self.pending: list[Entry] = []
        self.pending_bytes = 0
        # Messages that were published in this turn, and have no offset yet.
        self.open: list[Message] = []
        self.open_bytes = 0
        self.listener: Listener | None = None
        self.in_flight: Round | None = None
        self.readers: set[Reader] = set()
        # Why nothing more is taken; `stalled` passes when the disk takes what level `memory` has promised.
        self.closed = False
        self.failure: LogError | None = None
        self.stalled: LogError | None = None
        # Held by whoever syncs or replaces files, in whichever thread: the kernel reports a failed write-back
        # to one caller only, and the others must hear of it.
        self._files = threading.Lock()
        self._sync_error: OSError | None = None
        if found.failure is not None:
            self.failure = self._read_only(found.failure)
        self.bytes_since_checkpoint = found.checked_bytes
        # Every key occurs once below this offset (compaction).
        self.cleaned_until = 0
        # When the first record came to the segment that is being written.
        self.segment_since_ms = 0

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.number} {self.log_start}..{self.high_watermark}>"

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    # --- append -----------------------------------------------------------------------------------------

    def append(self, batch: bytes, header: Header, now_ms: int, done: Done | None = None) -> int:
        """Gives a checked batch its offset. `done` is called when it is committed, or refused.

        A batch that an idempotent producer sends again gets the offset it had, and waits with the first.
        """
        self._check_writable()
        if self.open:
            self.close_batch(now_ms)
        if header.producer_id >= 0 and header.base_sequence >= 0:
            repeated = self.producers.repeated(header)
            if repeated is not None:
                self._join(repeated.last_offset, done)
                return repeated.base_offset
        if self.config.append_time:
            batch = records.stamped(batch, header, now_ms)
            header = records.read_header(batch)
        base_offset = self._place(batch, header, done).base_offset
        if header.producer_id >= 0:
            self.producers.note(header, base_offset, now_ms)
        self.scheduler.schedule(self)
        return base_offset

    def _check_writable(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.stalled is not None:
            raise self.stalled

    def publish(self, message: Message) -> None:
        """Takes one message into the batch of this turn; its publisher is told when it is committed."""
        self._check_writable()
        if not self.open:
            self.scheduler.schedule(self)
        self.open.append(message)
        self.open_bytes += len(message.value or b"")
        if self.open_bytes > OPEN_BYTES_MAX:
            self.close_batch(self.scheduler.clock_ms())

    def close_batch(self, now_ms: int) -> None:
        """Makes a batch of what was published, and gives it its offsets."""
        messages, self.open, self.open_bytes = self.open, [], 0
        batch = records.batch_of_messages(messages, now_ms)
        header = records.read_header(batch)
        entry = self._place(batch, header, lambda error: tell(messages, error))
        entry.messages = messages
        for offset, message in enumerate(messages, entry.base_offset):
            if message.qos == 2:
                message.stored_in, message.offset = f"{self.topic}/{self.number}", offset

    def _place(self, batch: bytes, header: Header, done: Done | None) -> Entry:
        base_offset = self.next_offset
        prefix = records.placed(header, base_offset, LEADER_EPOCH)
        entry = Entry(prefix, batch, header, base_offset, done)
        self.pending.append(entry)
        self.pending_bytes += header.size
        self.next_offset = base_offset + header.last_offset_delta + 1
        return entry

    def _join(self, last_offset: int, done: Done | None) -> None:
        if done is None:
            return
        if last_offset < self.high_watermark:
            done(None)
            return
        entry = next(entry for entry in self._unsettled() if entry.last_offset == last_offset)
        first = entry.done

        def both(error: LogError | None) -> None:
            if first is not None:
                first(error)
            done(error)

        entry.done = both

    def _unsettled(self) -> list[Entry]:
        return [*self.in_flight.entries, *self.pending] if self.in_flight else self.pending

    # --- commit -----------------------------------------------------------------------------------------

    def take(self) -> Round:
        """Begins a round with all that is pending; with nothing, to roll the segment."""
        assert self.in_flight is None
        self.in_flight = Round(
            self.pending,
            self.stored_offset,
            self.active,
            bool(self.pending) and self.config.durability == "disk",
        )
        self.pending, self.pending_bytes = [], 0
        return self.in_flight

    def must_roll(self, size: int, now_ms: int) -> bool:
        """Whether `size` more bytes call for a new segment."""
        active = self.active
        if not active.size:
            return False
        if not self.segment_since_ms:
            self.segment_since_ms = now_ms
        return (
            active.size + size > self.config.segment_bytes
            or now_ms - self.segment_since_ms >= self.config.segment_ms
        )

    def store(self, round: Round, roll: bool) -> None:
        """Writes and, where asked for, syncs. Raises nothing: the round carries what went wrong."""
        try:
            if roll or round.sync:
                with self._files:
                    self._store(round, roll)
            else:
                self._store(round, roll)
        except OSError as error:
            round.error = error

    def _store(self, round: Round, roll: bool) -> None:
        segment = self._roll(round) if roll else round.segment
        if round.entries:
            parts: list[Part] = []
            for entry in round.entries:
                parts += (entry.prefix, entry.body)
            try:
                self.disk.write(segment.fd, parts, round.position)
            except OSError:
                # Part of it may be there; a later recovery must not find it in front of other data.
                round.fatal = True
                self.disk.truncate(segment.fd, round.position)
                round.fatal = False
                raise
        if round.sync:
            self._sync(segment, round)

    def _sync(self, segment: Segment, round: Round | None = None) -> None:
        try:
            if self._sync_error is not None:
                raise self._sync_error
            self.disk.sync(segment.fd)
        except OSError as error:
            self._sync_error = error
            if round is not None:
                round.fatal = True
            raise

    def _roll(self, round: Round) -> Segment:
        """Seals the segment and begins the next. What is sealed is durable, whatever the topic's level."""
        sealed = round.segment
        self._sync(sealed, round)
        sealed.index.put(round.first_offset, sealed.size)
        try:
            self.disk.replace(sealed.index_path, sealed.index.to_bytes())
            new = Segment.create(self.directory, round.first_offset, self.disk, self.index_interval)
        except OSError:
            sealed.index.pop()
            raise
        sealed.indexed = len(sealed.index)
        round.rolled = new
        round.position = 0
        return new

    def settle(self, round: Round, now_ms: int) -> None:
        """Takes account of what became of a round."""
        self.in_flight = None
        if round.rolled is not None:
            self.segments.append(round.rolled)
        if round.error is not None:
            self._refuse(round)
            return
        self.stalled = None
        if not round.entries:
            return
        segment = self.active
        if not segment.size:
            self.segment_since_ms = now_ms
        position = round.position
        note = segment.index.note
        for entry in round.entries:
            note(entry.base_offset, position, entry.size, entry.max_timestamp)
            position += entry.size
        self.bytes_since_checkpoint += position - segment.size
        segment.size = position
        self.stored_offset = round.entries[-1].last_offset + 1
        self._commit(round.entries)

    def commit_early(self) -> None:
        """Acknowledges what is pending before it is stored: level `memory`."""
        flying = self.in_flight
        if flying is not None and flying.entries and flying.entries[-1].last_offset >= self.high_watermark:
            # What comes before was too much to be promised ahead of the disk, and this must not overtake it.
            return
        self._commit(self.pending)

    def _commit(self, entries: list[Entry]) -> None:
        """Makes entries visible, tells their waiters and wakes the parked readers."""
        # At level `memory` some of them may have been seen, and wait for their trip to the disk only.
        entries = [entry for entry in entries if entry.last_offset >= self.high_watermark]
        if not entries:
            return
        self.high_watermark = entries[-1].last_offset + 1
        for entry in entries:
            if entry.done is not None:
                done, entry.done = entry.done, None
                done(None)
        if self.listener is not None:
            self.listener(self, entries)
        if self.readers:
            for reader in tuple(self.readers):
                reader.wake(self)

    def _refuse(self, round: Round) -> None:
        assert round.error is not None
        if round.fatal:
            error = self.failure = self._read_only(round.error)
        else:
            error = StorageError(f"{self.topic}-{self.number}: {round.error.strerror}; nothing was stored")
        waiting = [*round.entries, *self.pending]
        # What was acknowledged early stays in memory, to be read and to be tried again.
        self.pending = [entry for entry in waiting if entry.last_offset < self.high_watermark]
        self.pending_bytes = sum(entry.size for entry in self.pending)
        if self.pending:
            self.stalled = error
        self.next_offset = max(self.stored_offset, self.high_watermark)
        self.producers.forget_from(self.next_offset)
        for entry in waiting:
            if entry.done is not None:
                done, entry.done = entry.done, None
                done(error)

    # --- read -------------------------------------------------------------------------------------------

    def read(self, offset: int, bytes_max: int, wait: bool = False) -> Part:
        """Committed batches from the one that holds `offset` on; empty at the end of the log.

        At least one batch, however large; more as far as they fit into `bytes_max`, all of them whole.
        Raises WouldBlock if the disk would have to be waited for and `wait` is not set.
        """
        if self.closed:
            raise self.failure or Closed(str(self))
        if offset >= self.high_watermark:
            if offset > self.high_watermark:
                raise OffsetOutOfRange(f"{offset} is past the end, {self.high_watermark}")
            return b""
        if offset < self.log_start:
            raise OffsetOutOfRange(f"{offset} is before the start, {self.log_start}")
        if offset >= self.stored_offset:
            return self._read_unstored(offset, bytes_max)
        for segment in self.segments[self._segment_of(offset) :]:
            data = segment.read(offset, bytes_max, wait)
            if data is not None:
                return data
        return self._read_unstored(offset, bytes_max)

    def _read_unstored(self, offset: int, bytes_max: int) -> bytes:
        parts: list[Part] = []
        size = 0
        for entry in self._unsettled():
            if entry.last_offset >= self.high_watermark or (parts and size + entry.size > bytes_max):
                break
            if entry.last_offset >= offset:
                parts += (entry.prefix, entry.body)
                size += entry.size
        return b"".join(parts)

    def available(self, offset: int) -> int:
        """About how many bytes there are to read from `offset` on, without touching the disk."""
        if offset >= self.high_watermark:
            return 0
        unstored = 0
        if self.high_watermark > self.stored_offset:
            unstored = sum(entry.size for entry in self._unsettled() if entry.last_offset >= offset)
        if offset >= self.stored_offset:
            return unstored
        segments = self.segments[self._segment_of(offset) :]
        stored = sum(segment.size for segment in segments) - segments[0].index.position_of(offset)
        return stored + unstored

    def _segment_of(self, offset: int) -> int:
        low, high = 0, len(self.segments)
        while low < high:
            middle = (low + high) // 2
            if self.segments[middle].base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        return max(low - 1, 0)

    def find_time(self, timestamp: int) -> tuple[int, int] | None:
        """Offset and time of the first record that is not older than `timestamp`. Waits for the disk."""
        for segment in tuple(self.segments):
            if segment.index.max_timestamp < timestamp:
                continue
            for position, header in segment.headers(segment.index.position_at(timestamp)):
                if header.max_timestamp < timestamp or header.last_offset < self.log_start:
                    continue
                for record in unpack(segment.batch(position, header), header):
                    if record.timestamp >= timestamp and record.offset >= self.log_start:
                        return record.offset, record.timestamp
        for entry in tuple(self._unsettled()):
            if timestamp <= entry.max_timestamp and entry.last_offset < self.high_watermark:
                batch = entry.prefix + bytes(entry.body)
                for record in unpack(batch, records.read_header(batch)):
                    if record.timestamp >= timestamp:
                        return record.offset, record.timestamp
        return None

    def find_latest_time(self) -> tuple[int, int] | None:
        """Offset and time of the youngest record (KIP-734). Waits for the disk."""
        times = [segment.index.max_timestamp for segment in tuple(self.segments)]
        times += [
            entry.max_timestamp
            for entry in tuple(self._unsettled())
            if entry.last_offset < self.high_watermark
        ]
        return self.find_time(max(times)) if max(times) >= 0 else None

    # --- upkeep -----------------------------------------------------------------------------------------

    def checkpoint(self) -> Checkpoint:
        """What `checkpoint_now` is to note, as of this moment."""
        active = self.active
        self.bytes_since_checkpoint = 0
        return Checkpoint(
            log_start=self.log_start,
            segment=active.base_offset,
            position=active.size,
            next_offset=self.stored_offset,
            index_entries=len(active.index),
            max_timestamp=active.index.max_timestamp,
            producers=self.producers.save(self.stored_offset),
        )

    def checkpoint_now(self, checkpoint: Checkpoint, segment: Segment) -> None:
        """Makes `checkpoint` true and notes it. May run in any thread; raises OSError."""
        with self._files:
            self._sync(segment)
            fresh = segment.index.to_bytes(segment.indexed, checkpoint.index_entries)
            if fresh:
                fd = self.disk.open(segment.index_path, create=True)
                try:
                    self.disk.write(fd, (fresh,), segment.indexed * ENTRY_BYTES)
                    self.disk.sync(fd)
                finally:
                    self.disk.close(fd)
                segment.indexed = checkpoint.index_entries
            checkpoints.save(self.directory, checkpoint, self.disk)

    def distrust(self) -> None:
        """Takes nothing more if a sync has failed: nobody can say what it left out."""
        if self._sync_error is not None and self.failure is None:
            self.failure = self._read_only(self._sync_error)

    def _read_only(self, cause: OSError) -> StorageError:
        return StorageError(
            f"{self.topic}-{self.number}: {cause.strerror}; it is read-only until the broker restarts"
        )

    def start_at(self, offset: int) -> list[Segment]:
        """Moves the start of the log; returns the segments that hold nothing any more."""
        if not self.log_start <= offset <= self.high_watermark:
            raise OffsetOutOfRange(f"{offset} is outside {self.log_start}..{self.high_watermark}")
        self.log_start = offset
        gone = 0
        while gone + 1 < len(self.segments) and self.segments[gone + 1].base_offset <= offset:
            gone += 1
        dropped, self.segments = self.segments[:gone], self.segments[gone:]
        return dropped

    def close(self, reason: str) -> None:
        """Refuses whatever still waits; nothing more is taken."""
        self.closed = True
        self.failure = Closed(f"{self.topic}-{self.number}: {reason}")
        pending, self.pending = self.pending, []
        for entry in pending:
            if entry.done is not None:
                entry.done(self.failure)
        opened, self.open = self.open, []
        tell(opened, self.failure)
        for reader in tuple(self.readers):
            reader.wake(self)


def tell(messages: list[Message], error: LogError | None) -> None:
    """Tells publishers what became of their messages."""
    for message in messages:
        publisher = message.publisher
        if publisher is not None and (message.qos or message.retain):
            cast(Publisher, publisher).stored(message, error)


def unpack(batch: bytes, header: Header) -> list[records.Record]:
    """The records of a whole batch, decompressed where they have to be."""
    codec = header.compression
    if codec == compression.NONE:
        return records.decode_records(batch, records.HEADER_BYTES, header)
    body = compression.decompress(codec, memoryview(batch)[records.HEADER_BYTES :], UNPACKED_BYTES_MAX)
    return records.decode_records(body, 0, header)
