"""The last message of every address that was published to be kept.

Held in memory by address, and in the internal compacted topic `__retained`, from which it is read
back at the start. An empty message removes what was kept.
"""

from collections.abc import Callable
from typing import Final

from fanlog.cluster.catalog import Catalog
from fanlog.log.entries import Done
from fanlog.router.cursor import pattern_of
from fanlog.router.headers import message_of
from fanlog.state.journal import Journal
from fanlog.wire import records
from fanlog.wire.records import Message, Record

TOPIC: Final = "__retained"


class Retained:
    def __init__(self, catalog: Catalog, clock_ms: Callable[[], int]) -> None:
        self.journal = Journal(catalog, TOPIC, 1, clock_ms)
        self._kept: dict[str, Message] = {}
        # What the broker says of itself, by addresses that begin with $; never stored.
        self.system: dict[str, Message] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def open(self) -> None:
        await self.journal.open()
        await self.journal.replay(self._apply)

    def _apply(self, record: Record) -> None:
        address = (record.key or b"").decode()
        if record.value is None:
            self._kept.pop(address, None)
        else:
            self._kept[address] = message_of(address, record)

    def put(self, message: Message, done: Done | None = None) -> None:
        """Keeps a message as the last of its address; an empty one removes what is kept.

        `done` is called when that is stored, or refused.
        """
        self.show(message)
        self.store(message, done)

    def store(self, message: Message, done: Done | None = None) -> None:
        """Stores what is to be kept, and does not show it yet."""
        kept = Message(message.address, message.address.encode(), message.value or None, message.headers)
        batch = records.batch_of_messages([kept], self.journal.clock_ms())
        self.journal.append_batch(message.address, batch, done)

    def show(self, message: Message) -> None:
        """From now on, whoever asks for the last message of the address gets this one."""
        self._kept.pop(message.address, None)
        if message.value:
            # Without its publisher, whose connection would be kept as well.
            self._kept[message.address] = Message(
                message.address,
                message.key,
                message.value,
                message.headers,
                None,
                message.qos,
                0,
                message.retain,
                message.expires_at_ms,
            )

    def get(self, address: str) -> Message | None:
        """The last message of an address, unless its time is over."""
        if address.startswith("$"):
            return self.system.get(address)
        found = self._kept.get(address)
        if found is not None and found.expires_at_ms and found.expires_at_ms <= self.journal.clock_ms():
            del self._kept[address]
            return None
        return found

    def matching(self, filter: str) -> list[Message]:
        if "+" not in filter and "#" not in filter:
            found = self.get(filter)
            return [] if found is None else [found]
        pattern = pattern_of(filter)
        kept = self.system if filter.startswith("$") else self._kept
        return [message for address, message in kept.items() if pattern.fullmatch(address)]
