"""Groups on a real log: what is committed, what is kept through a restart, and what goes away."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from fanlog import config
from fanlog.broker import Broker
from fanlog.log.disk import Disk
from fanlog.state.groups import Committed, Groups, Place
from fanlog.state.groups.model import Commit, Heartbeat, Join, Joined, Leave, State, Sync

from .world import OK, subscription

OUTSIDER = ("", None, -1)
MONTH_MS = 30 * 24 * 3600 * 1000


@asynccontextmanager
async def broker(data: Path, disk: Disk | None = None, **settings: object) -> AsyncIterator[Broker]:
    """A broker without doors."""
    given = {"groups.initial_rebalance_delay_ms": 0, "groups.session_timeout_ms_min": 1, **settings}
    flags = {key.replace("__", "."): value for key, value in given.items()}
    running = Broker(
        config.load({"data": data, "kafka": "none", "http": "none", **flags}, environment={}), disk
    )
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


async def until(what: str, check: Callable[[], bool]) -> None:
    async def look() -> None:
        while not check():
            await asyncio.sleep(0.005)

    try:
        await asyncio.wait_for(look(), 20)
    except TimeoutError:
        raise AssertionError(f"waited for {what}") from None


def a_join(member_id: str = "", instance_id: str | None = None, session_timeout_ms: int = 30_000) -> Join:
    protocols = (("range", subscription("orders")),)
    return Join(member_id, instance_id, "client", "host", session_timeout_ms, 30_000, "consumer", protocols)


async def stable(groups: Groups, id: str, instance_id: str | None = None) -> Joined:
    """A group of one, which has everything."""
    joined = await groups.join(id, a_join(instance_id=instance_id))
    assert joined.error is OK
    parts = {joined.member_id: b"everything"}
    synced = await groups.sync(id, Sync(joined.member_id, instance_id, joined.generation, None, None, parts))
    assert synced.assignment == b"everything"
    return joined


async def commit(groups: Groups, id: str, offsets: dict[Place, int], metadata: str = "") -> set[ErrorCode]:
    now = groups.clock_ms()
    values = {place: Committed(offset, 0, metadata, now) for place, offset in offsets.items()}
    return set((await groups.commit(id, Commit(*OUTSIDER), values)).values())


def offsets_of(groups: Groups, id: str) -> dict[Place, int]:
    return {place: found.offset for place, found in groups.fetch_offsets(id).items()}


def test_members_and_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker(tmp_path) as first:
            await first.catalog.create("orders", 2, {})
            joined = await stable(first.groups, "readers", "one")
            event = Commit(joined.member_id, "one", joined.generation)
            value = Committed(7, 0, "note", 1)
            assert await first.groups.commit("readers", event, {("orders", 1): value}) == {("orders", 1): OK}
        async with broker(tmp_path) as second:
            groups = second.groups
            assert groups.describe("readers").state is State.STABLE
            assert groups.fetch_offsets("readers") == {("orders", 1): value}
            heartbeat = Heartbeat(joined.member_id, "one", joined.generation)
            assert await groups.heartbeat("readers", heartbeat) is OK
            synced = await groups.sync(
                "readers", Sync(joined.member_id, "one", joined.generation, None, None, {})
            )
            assert synced.assignment == b"everything"

    run(test())


def test_a_restart_reads_however_much_was_committed(tmp_path: Path) -> None:
    async def test() -> None:
        places = {("orders", number): number for number in range(40)}
        async with broker(tmp_path, groups__partitions=1, topics__durability="os") as first:
            await first.catalog.create("orders", 40, {})
            for round in range(50):
                for id in ("a", "b"):
                    moved = {place: offset + round for place, offset in places.items()}
                    assert await commit(first.groups, id, moved, metadata="x" * 700) == {OK}
            assert await commit(first.groups, "a", {("orders", 5): 999}) == {OK}
            assert first.catalog["__groups"].partitions[0].size > 2 << 20
        async with broker(tmp_path, topics__durability="os") as second:
            assert offsets_of(second.groups, "a") == {**moved, ("orders", 5): 999}
            assert offsets_of(second.groups, "b") == moved

    run(test())


class GatedDisk(Disk):
    """A disk whose syncs wait, or fail, while told so."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.error: OSError | None = None

    def sync(self, fd: int) -> None:
        self.gate.wait(20)
        if self.error is not None:
            raise self.error
        super().sync(fd)


def test_an_offset_shows_when_it_is_durable_and_not_before(tmp_path: Path) -> None:
    async def test() -> None:
        disk = GatedDisk()
        async with broker(tmp_path, disk) as running:
            await running.catalog.create("orders", 1, {})
            disk.gate.clear()
            committing = asyncio.create_task(commit(running.groups, "readers", {("orders", 0): 3}))
            done, _ = await asyncio.wait([committing], timeout=0.05)
            assert not done
            assert offsets_of(running.groups, "readers") == {}
            disk.gate.set()
            assert await committing == {OK}
            assert offsets_of(running.groups, "readers") == {("orders", 0): 3}

    run(test())


def test_a_commit_whose_client_went_away_counts_all_the_same(tmp_path: Path) -> None:
    async def test() -> None:
        disk = GatedDisk()
        async with broker(tmp_path, disk) as running:
            await running.catalog.create("orders", 1, {})
            disk.gate.clear()
            committing = asyncio.create_task(commit(running.groups, "readers", {("orders", 0): 3}))
            await asyncio.wait([committing], timeout=0.05)
            committing.cancel()
            disk.gate.set()
            await until("the offset", lambda: offsets_of(running.groups, "readers") == {("orders", 0): 3})

    run(test())


def test_a_failing_disk_refuses_commits_and_shows_what_was_there(tmp_path: Path) -> None:
    async def test() -> None:
        disk = GatedDisk()
        async with broker(tmp_path, disk) as running:
            groups = running.groups
            await running.catalog.create("orders", 1, {})
            assert await commit(groups, "readers", {("orders", 0): 3}) == {OK}
            disk.error = OSError(errno.EIO, "broken")
            for offset in (4, 5):
                refused = await commit(groups, "readers", {("orders", 0): offset})
                assert refused == {ErrorCode.coordinator_not_available}
            assert offsets_of(groups, "readers") == {("orders", 0): 3}

    run(test())


def test_a_member_that_goes_away_while_it_waits_holds_up_nobody(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker(tmp_path) as running:
            groups = running.groups
            first = await stable(groups, "readers")
            waiting = asyncio.create_task(groups.join("readers", a_join(session_timeout_ms=100)))
            await until("the second member", lambda: groups.describe("readers").state is State.PREPARING)
            waiting.cancel()
            again = await groups.join("readers", a_join(first.member_id))
            assert len(again.members) == 2
            await until("the end of its session", lambda: len(groups.describe("readers").members) == 1)

    run(test())


def test_places_that_do_not_exist_and_notes_that_are_too_long_are_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker(tmp_path) as running:
            groups = running.groups
            await running.catalog.create("orders", 1, {})
            unknown = {ErrorCode.unknown_topic_or_partition}
            assert await commit(groups, "readers", {("nothing", 0): 3}) == unknown
            assert await commit(groups, "readers", {("orders", 1): 3}) == unknown
            assert await commit(groups, "readers", {("orders", 0): 3}, "x" * 4096) == {OK}
            too_large = {ErrorCode.offset_metadata_too_large}
            assert await commit(groups, "readers", {("orders", 0): 4}, "x" * 4097) == too_large
            assert offsets_of(groups, "readers") == {("orders", 0): 3}

    run(test())


def test_offsets_expire_when_their_group_has_been_empty_for_long(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker(tmp_path, groups__offsets_retention_ms=MONTH_MS) as running:
            groups = running.groups
            await running.catalog.create("orders", 2, {})
            await commit(groups, "outside", {("orders", 0): 1})
            joined = await stable(groups, "readers")
            old = Committed(2, 0, "", 1)
            await groups.commit("readers", Commit(joined.member_id, None, 1), {("orders", 1): old})
            now = groups.clock_ms()

            groups.expire(now + MONTH_MS + 60_000)
            await until("the offsets of outside to go", lambda: not offsets_of(groups, "outside"))
            assert groups.describe("outside").state is State.DEAD
            assert offsets_of(groups, "readers"), "it has a member"

            assert await groups.leave("readers", Leave([(joined.member_id, None)])) == [OK]
            groups.expire(now + 60_000)
            await running.committer.drain()
            assert offsets_of(groups, "readers"), "its offsets are old, but it was only just left"
            groups.expire(now + MONTH_MS + 60_000)
            await until("the group to go", lambda: groups.describe("readers").state is State.DEAD)
        async with broker(tmp_path) as again:
            assert again.groups.list_groups() == []

    run(test())


def test_an_empty_group_without_offsets_disappears(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker(tmp_path) as running:
            groups = running.groups
            joined = await stable(groups, "readers")
            await groups.leave("readers", Leave([(joined.member_id, None)]))
            assert groups.describe("readers").state is State.EMPTY
            groups.expire(groups.clock_ms())
            await until("the group to go", lambda: groups.list_groups() == [])
        async with broker(tmp_path) as again:
            assert again.groups.list_groups() == []

    run(test())


def test_a_group_that_let_nobody_in_leaves_nothing_behind(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker(tmp_path, groups__session_timeout_ms_min=1_000) as running:
            refused = await running.groups.join("readers", a_join(session_timeout_ms=1))
            assert refused.error is ErrorCode.invalid_session_timeout
            assert running.groups.list_groups() == []
            assert (await running.groups.join("", a_join())).error is ErrorCode.invalid_group_id

    run(test())


def test_the_offsets_of_a_topic_go_with_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker(tmp_path) as running:
            groups = running.groups
            await running.catalog.create("orders", 1, {})
            await running.catalog.create("bills", 1, {})
            await commit(groups, "readers", {("orders", 0): 1, ("bills", 0): 2})
            await running.delete_topic("orders")
            await until("its offset to go", lambda: offsets_of(groups, "readers") == {("bills", 0): 2})
            # As if the broker had died between the two.
            await running.catalog.delete("bills")
        async with broker(tmp_path) as again:
            await until("the other to go", lambda: offsets_of(again.groups, "readers") == {})

    run(test())


def test_a_group_is_deleted_when_it_has_no_members(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker(tmp_path) as running:
            groups = running.groups
            await running.catalog.create("orders", 1, {})
            await commit(groups, "readers", {("orders", 0): 1})
            joined = await stable(groups, "readers")
            assert await groups.delete_group("readers") is ErrorCode.non_empty_group
            await groups.leave("readers", Leave([(joined.member_id, None)]))
            assert await groups.delete_group("readers") is OK
            assert await groups.delete_group("readers") is ErrorCode.group_id_not_found
            assert offsets_of(groups, "readers") == {}
        async with broker(tmp_path) as again:
            assert again.groups.list_groups() == []

    run(test())


def test_offsets_are_deleted_where_no_member_reads(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker(tmp_path) as running:
            groups = running.groups
            orders, bills = ("orders", 0), ("bills", 0)
            await running.catalog.create("orders", 1, {})
            await running.catalog.create("bills", 1, {})
            assert await groups.delete_offsets("readers", [orders]) == (ErrorCode.group_id_not_found, {})
            await commit(groups, "readers", {orders: 1, bills: 2})
            await stable(groups, "readers")
            error, errors = await groups.delete_offsets("readers", [orders, bills])
            assert error is OK
            assert errors == {orders: ErrorCode.group_subscribed_to_topic, bills: OK}
            assert offsets_of(groups, "readers") == {orders: 1}

    run(test())


def test_a_stopping_broker_sends_away_those_who_wait(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker(tmp_path) as running:
            await stable(running.groups, "readers")
            waiting = asyncio.create_task(running.groups.join("readers", a_join()))
            await until("the wait", lambda: running.groups.describe("readers").state is State.PREPARING)
        assert (await waiting).error is ErrorCode.not_coordinator

    run(test())
