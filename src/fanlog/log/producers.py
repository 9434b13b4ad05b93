"""What a partition remembers of idempotent producers, so that a batch sent again is not stored again.

Per producer: its epoch and its last five batches (a client has at most five on the way). A batch must
follow the last one without a gap in its sequence; one of the five is a repetition, and is answered with
the offset that it has already. Which producers there are can be rebuilt from the log alone; the checkpoint
only makes it quick.
"""

from collections import deque
from typing import Final, NamedTuple

import msgspec

from fanlog.log.errors import OutOfOrderSequence, StaleEpoch
from fanlog.wire.records import Header

BATCHES_KEPT: Final = 5
_SEQUENCES: Final = 1 << 31


class Batch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class Producer:
    __slots__ = ("batches", "epoch", "last_timestamp")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[Batch] = deque(maxlen=BATCHES_KEPT)
        self.last_timestamp = 0


class Saved(msgspec.Struct, array_like=True):
    producer_id: int
    epoch: int
    last_timestamp: int
    batches: list[Batch]


class Producers:
    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._known)

    def repeated(self, header: Header) -> Batch | None:
        """The batch that `header` repeats; None if it is the next one. Raises if it is neither."""
        producer = self._known.get(header.producer_id)
        if producer is None:
            # Nothing is remembered: the producer was idle for long, or the log was cut (KIP-360).
            return None
        if header.producer_epoch < producer.epoch:
            raise StaleEpoch(f"producer {header.producer_id} has been replaced by epoch {producer.epoch}")
        if header.producer_epoch > producer.epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequence("a new epoch begins with sequence 0")
            return None
        if not producer.batches:
            return None
        last = _last_sequence(header)
        for batch in producer.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == last:
                return batch
        expected = (producer.batches[-1].last_sequence + 1) % _SEQUENCES
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} sent sequence {header.base_sequence}, {expected} was expected"
            )
        return None

    def note(self, header: Header, base_offset: int, now_ms: int) -> None:
        """Takes account of a batch that was given its place."""
        producer = self._known.get(header.producer_id)
        if producer is None or header.producer_epoch != producer.epoch:
            producer = self._known[header.producer_id] = Producer(header.producer_epoch)
        last = base_offset + header.last_offset_delta
        producer.batches.append(Batch(header.base_sequence, _last_sequence(header), base_offset, last))
        producer.last_timestamp = now_ms

    def forget_from(self, offset: int) -> None:
        """Undoes what was noted of batches at `offset` and behind: they could not be stored."""
        for producer in self._known.values():
            while producer.batches and producer.batches[-1].base_offset >= offset:
                producer.batches.pop()

    def expire(self, before_ms: int) -> None:
        self._known = {
            number: producer
            for number, producer in self._known.items()
            if producer.last_timestamp >= before_ms
        }

    def save(self, below: int) -> list[Saved]:
        """All that is known of batches below offset `below`."""
        return [
            Saved(
                number,
                producer.epoch,
                producer.last_timestamp,
                [batch for batch in producer.batches if batch.last_offset < below],
            )
            for number, producer in self._known.items()
        ]

    @classmethod
    def load(cls, saved: list[Saved]) -> "Producers":
        producers = cls()
        for one in saved:
            producer = producers._known[one.producer_id] = Producer(one.epoch)
            producer.last_timestamp = one.last_timestamp
            producer.batches.extend(one.batches)
        return producers


def _last_sequence(header: Header) -> int:
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES
