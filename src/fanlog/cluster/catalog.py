"""The topics of this broker: what the metadata store says of them, and their partitions.

A topic's directory carries its id, so that a topic that was removed and made again never finds the old
records. A topic is made on disk first and removed from the store first: a crash in between leaves a directory
that nothing refers to, never a topic without its records.
"""

import asyncio
import contextlib
import logging
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from fanlog.cluster.metadata import ABSENT, Conflict, SqliteStore, Value
from fanlog.config import Settings
from fanlog.log.commit import Committer
from fanlog.log.disk import Disk
from fanlog.log.partition import Partition
from fanlog.log.topic_config import TopicConfig

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_TOPICS = "topics/"
_PRODUCER_IDS = "producer-ids"
# Producer numbers are taken from the store in blocks of this many.
_BLOCK = 1000
_REMOVED_SUFFIX = ".removed"
INTERNAL_PREFIX = "__"


class CatalogError(Exception):
    """A topic cannot be had, made or changed as asked."""


class UnknownTopic(CatalogError):
    pass


class TopicExists(CatalogError):
    pass


class InvalidTopic(CatalogError):
    pass


class InvalidPartitions(CatalogError):
    pass


class Record(msgspec.Struct):
    """A topic, as the store keeps it."""

    id: str
    partitions: int
    config: dict[str, str]


class Topic:
    __slots__ = ("config", "id", "name", "partitions", "revision")

    def __init__(self, name: str, id: uuid.UUID, config: TopicConfig, revision: int) -> None:
        self.name = name
        self.id = id
        self.config = config
        self.revision = revision
        self.partitions: list[Partition] = []

    @property
    def internal(self) -> bool:
        return self.name.startswith(INTERNAL_PREFIX)

    def record(self, partitions: int, overrides: Mapping[str, str]) -> bytes:
        return msgspec.json.encode(Record(self.id.hex, partitions, dict(overrides)))


class Catalog:
    def __init__(self, settings: Settings, store: SqliteStore, committer: Committer, disk: Disk) -> None:
        self.settings = settings
        self.store = store
        self.committer = committer
        self.disk = disk
        self.directory = settings.data / "topics"
        self.topics: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._changing = asyncio.Lock()
        self._producer_ids = range(0)
        # Told of every topic that comes, grows or goes.
        self.on_change: Callable[[Topic], None] = lambda topic: None

    async def open(self) -> None:
        """Opens every topic that the store knows, several partitions at a time."""
        entries = await asyncio.to_thread(self._survey)
        for key, value in entries.items():
            name = key.removeprefix(_TOPICS)
            record = msgspec.json.decode(value.data, type=Record)
            config = TopicConfig(record.config, self.settings)
            topic = Topic(name, uuid.UUID(record.id), config, value.revision)
            await self._open_partitions(topic, record.partitions)
            self._put(topic)

    def _survey(self) -> Mapping[str, Value]:
        self.directory.mkdir(parents=True, exist_ok=True)
        # Either may be new, and a topic is only as durable as the names that lead to it.
        self.disk.sync_directory(self.directory.parent)
        with contextlib.suppress(PermissionError):
            self.disk.sync_directory(self.directory.parent.parent)
        entries = self.store.below(_TOPICS)
        expected = set()
        for key, value in entries.items():
            record = msgspec.json.decode(value.data, type=Record)
            expected.add(self._directory(key.removeprefix(_TOPICS), uuid.UUID(record.id)).name)
        for path in self.directory.iterdir():
            if path.name.endswith(_REMOVED_SUFFIX):
                shutil.rmtree(path, ignore_errors=True)
            elif path.name not in expected:
                logger.warning("%s belongs to no topic in the metadata store; it is left alone", path)
        return entries

    def _directory(self, name: str, id: uuid.UUID) -> Path:
        # File names end at 255 bytes, topic names at 249.
        return self.directory / f"{name[:200]}.{id.hex}"

    async def _open_partitions(self, topic: Topic, count: int) -> None:
        """Opens the partitions of `topic` that are not open yet."""
        first = len(topic.partitions)
        base = self._directory(topic.name, topic.id)

        def open_one(number: int) -> Partition:
            return Partition(
                topic.name,
                number,
                base / str(number),
                topic.config,
                self.disk,
                self.committer,
                self.settings.log.index_interval_bytes,
            )

        loop = asyncio.get_running_loop()
        opening = [loop.run_in_executor(None, open_one, number) for number in range(first, count)]
        topic.partitions += await asyncio.gather(*opening)
        if first == 0:
            await asyncio.to_thread(self.disk.sync_directory, self.directory)

    def _put(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self._by_id[topic.id] = topic

    # --- look-up ----------------------------------------------------------------------------------------

    def partition(self, topic: str, number: int) -> Partition | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= number < len(found.partitions):
            return None
        return found.partitions[number]

    def partitions(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions

    def by_id(self, id: uuid.UUID) -> Topic | None:
        return self._by_id.get(id)

    def __getitem__(self, name: str) -> Topic:
        try:
            return self.topics[name]
        except KeyError:
            raise UnknownTopic(f"there is no topic {name}") from None

    # --- changes ----------------------------------------------------------------------------------------

    def check(self, name: str, partitions: int, overrides: Mapping[str, str]) -> TopicConfig:
        """Whether such a topic could be made; raises what speaks against it."""
        if not _NAME.fullmatch(name) or name in (".", ".."):
            raise InvalidTopic(
                f"{name!r} is not a topic name: 1 to 249 letters, digits, dots, underscores and hyphens"
            )
        if name in self.topics:
            raise TopicExists(f"topic {name} exists already")
        self._check_partitions(partitions, partitions)
        return TopicConfig(overrides, self.settings)

    def _check_partitions(self, partitions: int, added: int) -> None:
        limits = self.settings.limits
        if not 1 <= partitions <= limits.partitions_per_topic_max:
            raise InvalidPartitions(f"a topic has 1 to {limits.partitions_per_topic_max} partitions")
        total = sum(1 for _ in self.partitions())
        if total + added > limits.partitions_max:
            raise InvalidPartitions(f"a broker has at most {limits.partitions_max} partitions")

    async def create(
        self, name: str, partitions: int = -1, overrides: Mapping[str, str] | None = None
    ) -> Topic:
        count = self.settings.topics.partitions if partitions == -1 else partitions
        async with self._changing:
            config = self.check(name, count, overrides or {})
            topic = Topic(name, uuid.uuid4(), config, ABSENT)
            await self._open_partitions(topic, count)
            await self._save(topic, topic.record(count, config.overrides))
            self._put(topic)
            self.on_change(topic)
        logger.info("topic %s: made, with %d partitions", name, count)
        return topic

    async def _save(self, topic: Topic, data: bytes | None) -> None:
        try:
            topic.revision = await asyncio.to_thread(
                self.store.swap, _TOPICS + topic.name, data, topic.revision
            )
        except Conflict:
            raise CatalogError(f"topic {topic.name} was changed by somebody else; try again") from None

    async def ensure(self, name: str, partitions: int, overrides: Mapping[str, str]) -> Topic:
        """The topic of that name, made if it is not there."""
        try:
            return self.topics.get(name) or await self.create(name, partitions, overrides)
        except TopicExists:
            return self[name]

    async def delete(self, name: str) -> None:
        async with self._changing:
            topic = self[name]
            await self._save(topic, None)
            del self.topics[name], self._by_id[topic.id]
            for partition in topic.partitions:
                partition.close("the topic was removed")
            self.on_change(topic)
            path = self._directory(name, topic.id)
            gone = path.with_name(path.name + _REMOVED_SUFFIX)
            await asyncio.to_thread(self.disk.rename, path, gone)
        logger.info("topic %s: removed", name)
        asyncio.get_running_loop().run_in_executor(None, shutil.rmtree, gone, True)

    async def grow(self, name: str, partitions: int) -> None:
        """Gives a topic more partitions."""
        async with self._changing:
            topic = self[name]
            have = len(topic.partitions)
            if partitions <= have:
                raise InvalidPartitions(f"topic {name} has {have} partitions; it can only get more")
            self._check_partitions(partitions, partitions - have)
            await self._save(topic, topic.record(partitions, topic.config.overrides))
            await self._open_partitions(topic, partitions)
            self.on_change(topic)

    async def configure(self, name: str, overrides: Mapping[str, str]) -> None:
        """Replaces all that a topic sets for itself."""
        async with self._changing:
            topic = self[name]
            config = TopicConfig(overrides, self.settings)
            await self._save(topic, topic.record(len(topic.partitions), overrides))
            topic.config = config
            for partition in topic.partitions:
                partition.config = config

    async def producer_id(self) -> int:
        """A number that no producer has had before."""
        async with self._changing:
            if not self._producer_ids:
                self._producer_ids = await asyncio.to_thread(self._reserve)
            number = self._producer_ids[0]
            self._producer_ids = self._producer_ids[1:]
        return number

    def _reserve(self) -> range:
        while True:
            value = self.store.get(_PRODUCER_IDS)
            first = int(value.data) if value else 1
            try:
                self.store.swap(
                    _PRODUCER_IDS, str(first + _BLOCK).encode(), value.revision if value else ABSENT
                )
            except Conflict:
                continue
            return range(first, first + _BLOCK)

    async def close(self) -> None:
        """Notes where every log ends, so that the next start reads nothing."""
        for partition in self.partitions():
            if partition.failure is None:
                await asyncio.wait([self.committer.checkpoint(partition)])
