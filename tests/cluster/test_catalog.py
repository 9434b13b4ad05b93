"""The metadata store, and the topics that it knows."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fanlog.cluster.catalog import Catalog, InvalidPartitions, InvalidTopic, TopicExists, UnknownTopic
from fanlog.cluster.metadata import ABSENT, Conflict, SqliteStore, cluster_id, open_store
from fanlog.config import Settings
from fanlog.log.commit import Committer
from fanlog.log.disk import Disk
from fanlog.log.topic_config import InvalidTopicConfig
from support.loop import in_loop


@contextlib.asynccontextmanager
async def catalog_at(data: Path) -> AsyncIterator[Catalog]:
    settings = Settings(data=data)
    committer = Committer(settings.log)
    store = SqliteStore(data / "metadata.db")
    catalog = Catalog(settings, store, committer, Disk())
    await catalog.open()
    try:
        yield catalog
    finally:
        await catalog.close()
        await committer.close()
        store.close()


def test_a_swap_needs_the_revision_that_is_there(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    first = store.swap("a", b"1", ABSENT)
    with pytest.raises(Conflict):
        store.swap("a", b"2", ABSENT)
    second = store.swap("a", b"2", first)
    with pytest.raises(Conflict):
        store.swap("a", None, first)
    assert store.get("a") == (b"2", second)
    store.swap("a", None, second)
    assert store.get("a") is None
    # A key that comes back is not mistaken for what it was.
    assert store.swap("a", b"3", ABSENT) > second
    store.close()


def test_two_brokers_share_a_store(tmp_path: Path) -> None:
    one, two = SqliteStore(tmp_path / "db"), SqliteStore(tmp_path / "db")
    assert cluster_id(one) == cluster_id(two)
    revision = one.swap("topics/a_b", b"x", ABSENT)
    one.swap("topics/acb", b"y", ABSENT)
    assert two.below("topics/a_")["topics/a_b"] == (b"x", revision)
    assert list(two.below("topics/a_")) == ["topics/a_b"]
    one.close()
    two.close()


def test_only_stores_that_exist_can_be_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sqlite:PATH"):
        open_store("redis://here", tmp_path)


@in_loop
async def test_topics_survive_a_restart(tmp_path: Path) -> None:
    async with catalog_at(tmp_path) as catalog:
        made = await catalog.create("sensors", 3, {"retention.ms": "1000"})
        await catalog.grow("sensors", 5)
        await catalog.configure("sensors", {"retention.ms": "2000", "fanlog.durability": "os"})
        first = await catalog.producer_id()
    async with catalog_at(tmp_path) as catalog:
        topic = catalog["sensors"]
        assert topic.id == made.id
        assert len(topic.partitions) == 5
        assert topic.config.retention_ms == 2000
        assert topic.config.durability == "os"
        assert await catalog.producer_id() > first


@in_loop
async def test_a_removed_topic_comes_back_empty(tmp_path: Path) -> None:
    async with catalog_at(tmp_path) as catalog:
        old = await catalog.create("sensors", 1)
        await catalog.delete("sensors")
        with pytest.raises(UnknownTopic):
            catalog["sensors"]
        new = await catalog.create("sensors", 1)
        assert new.id != old.id
        assert new.partitions[0].next_offset == 0
    async with catalog_at(tmp_path) as catalog:
        assert list(catalog.topics) == ["sensors"]
        assert [path.name for path in (tmp_path / "topics").iterdir()] == [f"sensors.{new.id.hex}"]


@in_loop
async def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async with catalog_at(tmp_path) as catalog:
        for name in ("", ".", "..", "a/b", "a b", "ä", "x" * 250):
            with pytest.raises(InvalidTopic):
                await catalog.create(name)
        await catalog.create("x" * 249)
        for partitions in (0, -2, 4001):
            with pytest.raises(InvalidPartitions):
                await catalog.create("t", partitions)
        for config in ({"nonsense": "1"}, {"retention.ms": "soon"}, {"cleanup.policy": "burn"}):
            with pytest.raises(InvalidTopicConfig):
                await catalog.create("t", 1, config)
        await catalog.create("t", 2)
        with pytest.raises(InvalidPartitions):
            await catalog.grow("t", 2)
        made = await asyncio.gather(*[catalog.create("once") for _ in range(5)], return_exceptions=True)
        assert sorted(isinstance(one, TopicExists) for one in made) == [False, True, True, True, True]
