"""The last message of every address, for new subscribers and for those who lagged.

In memory, in the order in which the addresses were last written, numbered; so what a subscriber missed since
a number is found from the end, and a lagging subscriber costs one number. Bounded in entries and in bytes:
the address that was silent longest goes first.

It begins when the first lbroker client comes, so that a broker without any pays nothing. What was stored
before is then read from the end of each partition, a few megabytes at most: of addresses last written
before that nothing is known.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from fanlog.doors.lbroker.values import topic_prefix, value_of
from fanlog.log.partition import Partition, unpack
from fanlog.router.channels import Run
from fanlog.wire import records
from fanlog.wire.records import Message

if TYPE_CHECKING:
    from fanlog.router.router import Router

_READ_BYTES: Final = 1 << 20


class Last:
    """One last message. The publisher is known by a number, so that it is not kept from going away."""

    __slots__ = ("address", "expires_at_ms", "headers", "number", "publisher", "value")

    def __init__(self, message: Message, number: int) -> None:
        self.address = message.address
        self.value = message.value
        self.headers = message.headers
        self.expires_at_ms = message.expires_at_ms
        self.publisher = publisher_number(message.publisher)
        self.number = number

    @property
    def size(self) -> int:
        return len(self.value or b"") + len(self.headers) + len(self.address)

    def frame(self) -> bytes:
        return topic_prefix(self.address) + value_of(self.value, self.headers)


def publisher_number(publisher: object) -> int:
    return getattr(publisher, "number", 0)


class Latest:
    def __init__(self, entries_max: int, bytes_max: int) -> None:
        self.entries_max = entries_max
        self.bytes_max = bytes_max
        self.bytes = 0
        # The number of the last message, and of the last before the commit that is being delivered.
        self.number = 0
        self.before = 0
        self._kept: dict[str, Last] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Last]:
        return iter(self._kept.values())

    def get(self, address: str) -> Last | None:
        return self._kept.get(address)

    def since(self, number: int) -> Iterator[Last]:
        """What came after a number, youngest first."""
        for last in reversed(self._kept.values()):
            if last.number <= number:
                return
            yield last

    def deliver(self, run: Run) -> int:
        self.before = self.number
        for message in run.messages:
            self._put(message)
        return 0

    def _put(self, message: Message) -> None:
        old = self._kept.pop(message.address, None)
        if old is not None:
            self.bytes -= old.size
        if message.value is None:
            # A key that was removed has no last message.
            return
        self.number += 1
        last = self._kept[message.address] = Last(message, self.number)
        self.bytes += last.size
        while len(self._kept) > self.entries_max or self.bytes > self.bytes_max:
            gone = self._kept.pop(next(iter(self._kept)))
            self.bytes -= gone.size

    def fill(self, older: list[Message]) -> None:
        """Takes what was stored before the first message that was seen, oldest first."""
        newer = list(self._kept.values())
        self._kept.clear()
        self.bytes = 0
        counted, self.number = self.number, 0
        for message in older:
            self._put(message)
        for last in self._kept.values():
            last.number = 0
        for last in newer:
            old = self._kept.pop(last.address, None)
            self.bytes += last.size - (0 if old is None else old.size)
            self._kept[last.address] = last
        self.number = counted


def read_tail(router: "Router", partition: Partition, bytes_max: int) -> list[Message]:
    """The messages at the end of a partition, about `bytes_max` of them. Reads from the disk."""
    low, high = partition.log_start, partition.high_watermark
    end = high
    while low < high:
        middle = (low + high) // 2
        if partition.available(middle) > bytes_max:
            low = middle + 1
        else:
            high = middle
    found: list[Message] = []
    offset = low
    while offset < end:
        data = bytes(partition.read(offset, _READ_BYTES, wait=True))
        at = 0
        while at + records.HEADER_BYTES <= len(data):
            header = records.read_header(data, at)
            if at + header.size > len(data):
                break
            found += router.messages(partition.topic, unpack(data[at : at + header.size], header))
            at += header.size
            offset = header.last_offset + 1
        if not at:
            break
    return found
