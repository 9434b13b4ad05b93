"""The last message of every address that was published to be kept.

Held in memory by address, and in the internal compacted topic `__retained`, from which it is read
back at the start. An empty message removes what was kept.
"""

import asyncio
import zlib
from typing import Final

from fanlog.cluster.catalog import Catalog, Topic
from fanlog.log.errors import LogError
from fanlog.log.partition import Partition, unpack
from fanlog.router.cursor import pattern_of
from fanlog.router.headers import message_of
from fanlog.wire import records
from fanlog.wire.records import Message

TOPIC: Final = "__retained"
_SEGMENT_BYTES: Final = 16 << 20
_READ_BYTES: Final = 1 << 20


class Retained:
    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._topic: Topic | None = None
        self._kept: dict[str, Message] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def open(self) -> None:
        config = {"cleanup.policy": "compact", "segment.bytes": str(_SEGMENT_BYTES)}
        self._topic = await self.catalog.ensure(TOPIC, 1, config)
        for partition in self._topic.partitions:
            await asyncio.to_thread(self._replay, partition)

    def _replay(self, partition: Partition) -> None:
        offset = partition.log_start
        while offset < partition.high_watermark:
            data = bytes(partition.read(offset, _READ_BYTES, wait=True))
            at = 0
            while at + records.HEADER_BYTES <= len(data):
                header = records.read_header(data, at)
                if at + header.size > len(data):
                    break
                for record in unpack(data[at : at + header.size], header):
                    address = (record.key or b"").decode()
                    if record.value is None:
                        self._kept.pop(address, None)
                    else:
                        self._kept[address] = message_of(address, record)
                at += header.size
                offset = header.last_offset + 1
            if not at:
                raise LogError(f"{TOPIC} cannot be read at {offset}")

    def put(self, message: Message) -> None:
        """Keeps a message as the last of its address; an empty one removes what is kept."""
        assert self._topic is not None
        key = message.address.encode()
        value = message.value or None
        if value is None:
            self._kept.pop(message.address, None)
        else:
            self._kept[message.address] = message
        partitions = self._topic.partitions
        kept = Message(message.address, key, value, message.headers)
        partitions[zlib.crc32(key) % len(partitions)].publish(kept)

    def matching(self, filter: str) -> list[Message]:
        if "+" not in filter and "#" not in filter:
            found = self._kept.get(filter)
            return [] if found is None else [found]
        pattern = pattern_of(filter)
        return [message for address, message in self._kept.items() if pattern.fullmatch(address)]
