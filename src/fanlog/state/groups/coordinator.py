"""All consumer groups of this broker: performs what their state machines ask for.

A request becomes an event with a future for its token, and waits for the future. That a client goes away
meanwhile cancels its future and nothing else: what was decided, and what the log has taken, counts.
Groups and offsets are restored from the internal topic at the start; members of a stable group go on as if
nothing had happened, with sessions that begin anew.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from fanlog.cluster.catalog import Catalog
from fanlog.config import Settings
from fanlog.log.commit import Committer
from fanlog.log.errors import LogError
from fanlog.state.groups import encoding, subscription
from fanlog.state.groups.deadlines import Deadlines
from fanlog.state.groups.encoding import Committed, GroupKey, KeptGroup
from fanlog.state.groups.machine import Group
from fanlog.state.groups.model import (
    Answer,
    Checked,
    ClearDeadline,
    Commit,
    Emptied,
    Event,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Left,
    Member,
    Passed,
    Persist,
    Resume,
    Retire,
    Rules,
    SetDeadline,
    State,
    Stored,
    Suspend,
    Sync,
    Synced,
)
from fanlog.state.groups.offsets import Offsets, Place
from fanlog.state.journal import Entry, Journal
from fanlog.wire.records import Record

logger = logging.getLogger(__name__)

OK = ErrorCode.none
TOPIC = "__groups"
METADATA_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Description:
    """What can be told of a group."""

    id: str
    state: State
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[Member, ...] = ()


class Groups:
    def __init__(
        self, catalog: Catalog, committer: Committer, settings: Settings, clock_ms: Callable[[], int]
    ) -> None:
        self.catalog = catalog
        self.settings = settings.groups
        self.clock_ms = clock_ms
        self.rules = Rules(
            self.settings.session_timeout_ms_min,
            self.settings.session_timeout_ms_max,
            self.settings.initial_rebalance_delay_ms,
            self.settings.members_max,
        )
        self.loop = committer.loop
        self.journal = Journal(catalog, TOPIC, self.settings.partitions, clock_ms)
        self.offsets = Offsets(self.journal)
        self._groups: dict[str, Group] = {}
        # Since when a group has had no members.
        self._empty_since: dict[str, int] = {}
        self._deadlines = Deadlines(self.loop, self._passed)

    # --- start and stop ---------------------------------------------------------------------------------

    async def open(self) -> None:
        await self.journal.open()
        found: dict[str, KeptGroup] = {}

        def apply(record: Record) -> None:
            raw = record.value
            key = encoding.read_key(record.key)
            if isinstance(key, GroupKey):
                group = encoding.read_group(raw)
                found.pop(key.group, None)
                if group is not None:
                    found[key.group] = group
            elif key is not None:
                self.offsets.put(key.group, (key.topic, key.partition), encoding.read_offset(raw))

        await self.journal.replay(apply)
        for id, kept in found.items():
            group = self._groups[id] = Group(id, self.rules, kept.snapshot())
            if not kept.members:
                self._empty_since[id] = kept.at_ms
            self._step(group, Resume())
        topics = {topic for offsets in self.offsets.by_group.values() for topic, _ in offsets}
        for topic in topics - self.catalog.topics.keys():
            self.forget_topic(topic)
        logger.info("%d groups, %d with offsets", len(self._groups), len(self.offsets.by_group))

    async def close(self) -> None:
        """Sends away all who wait for each other; they find their groups as they were after the restart."""
        for group in tuple(self._groups.values()):
            self._step(group, Suspend())
        self._deadlines.close()

    # --- the machine's side -----------------------------------------------------------------------------

    async def _ask(self, group: Group, event: Join | Sync | Heartbeat | Commit | Leave) -> Any:
        future = self.loop.create_future()
        event.token = future
        self._step(group, event)
        return await future

    def _step(self, group: Group, event: Event) -> None:
        for effect in group.step(event, self._deadlines.now_ms()):
            if isinstance(effect, Answer):
                assert isinstance(effect.token, asyncio.Future)
                if not effect.token.done():
                    effect.token.set_result(effect.reply)
            elif isinstance(effect, SetDeadline):
                self._deadlines.set((group, effect.timer), effect.at_ms)
            elif isinstance(effect, ClearDeadline):
                self._deadlines.clear((group, effect.timer))
            else:
                self._persist(group, effect)
        if group.state is State.EMPTY and not group.generation and not group.pending:
            # Nobody was let in: there is nothing to remember.
            self._drop(group)

    def _persist(self, group: Group, effect: Persist) -> None:
        now = self.clock_ms()
        if isinstance(effect.purpose, Emptied):
            self._empty_since[group.id] = now
        entry = (encoding.key(GroupKey(group.id)), encoding.value(encoding.kept(effect.snapshot, now)))

        def done(error: LogError | None) -> None:
            self._step(group, Stored(effect.purpose, error is None))

        self.journal.append(group.id, [entry], done)

    def _passed(self, key: Any) -> None:
        group, timer = key
        self._step(group, Passed(timer))

    def _drop(self, group: Group) -> None:
        if self._groups.get(group.id) is group:
            del self._groups[group.id]
            self._empty_since.pop(group.id, None)

    # --- members ----------------------------------------------------------------------------------------

    async def join(self, id: str, event: Join) -> Joined:
        if not id:
            return Joined(ErrorCode.invalid_group_id, event.member_id)
        group = self._groups.get(id)
        if group is None:
            if event.member_id:
                return Joined(ErrorCode.unknown_member_id, event.member_id)
            group = self._groups[id] = Group(id, self.rules)
        event.new_id = f"{event.instance_id or event.client_id or 'member'}-{uuid.uuid4()}"
        joined: Joined = await self._ask(group, event)
        return joined

    async def sync(self, id: str, event: Sync) -> Synced:
        group = self._groups.get(id)
        if group is None:
            return Synced(ErrorCode.unknown_member_id)
        synced: Synced = await self._ask(group, event)
        return synced

    async def heartbeat(self, id: str, event: Heartbeat) -> ErrorCode:
        group = self._groups.get(id)
        if group is None:
            return ErrorCode.unknown_member_id
        checked: Checked = await self._ask(group, event)
        return checked.error

    async def leave(self, id: str, event: Leave) -> list[ErrorCode]:
        group = self._groups.get(id)
        if group is None:
            return [ErrorCode.unknown_member_id] * len(event.members)
        left: Left = await self._ask(group, event)
        return left.errors

    # --- offsets ----------------------------------------------------------------------------------------

    async def commit(
        self, id: str, event: Commit, offsets: Mapping[Place, Committed]
    ) -> Mapping[Place, ErrorCode]:
        error = await self._may_commit(id, event)
        if error is not OK:
            return dict.fromkeys(offsets, error)
        results = {place: self._objection(place, committed) for place, committed in offsets.items()}
        good = {place: offsets[place] for place, error in results.items() if error is OK}
        if good:
            settled = self.loop.create_future()
            self.offsets.commit(id, good, _tell(settled))
            results.update(dict.fromkeys(good, await settled))
        return results

    async def _may_commit(self, id: str, event: Commit) -> ErrorCode:
        group = self._groups.get(id)
        if group is None:
            return OK if event.generation < 0 else ErrorCode.illegal_generation
        checked: Checked = await self._ask(group, event)
        return checked.error

    def _objection(self, place: Place, committed: Committed) -> ErrorCode:
        if self.catalog.partition(*place) is None:
            return ErrorCode.unknown_topic_or_partition
        if len(committed.metadata.encode()) > METADATA_BYTES_MAX:
            return ErrorCode.offset_metadata_too_large
        return OK

    def fetch_offsets(self, id: str) -> Mapping[Place, Committed]:
        return self.offsets.of(id)

    async def delete_offsets(
        self, id: str, places: Iterable[Place]
    ) -> tuple[ErrorCode, Mapping[Place, ErrorCode]]:
        """An error of the whole, and one for each place."""
        group = self._groups.get(id)
        if group is None and id not in self.offsets.by_group:
            return ErrorCode.group_id_not_found, {}
        busy: frozenset[str] = frozenset()
        if group is not None and group.members:
            if group.protocol_type != subscription.CONSUMER:
                return ErrorCode.non_empty_group, {}
            busy = _subscribed(group)
        results = {place: self._deletable(id, place, busy) for place in places}
        good = [place for place, error in results.items() if error is OK]
        settled = self.loop.create_future()
        if good:
            self.offsets.remove(id, good, [], _tell(settled))
            results.update(dict.fromkeys(good, await settled))
        return OK, results

    def _deletable(self, id: str, place: Place, busy: frozenset[str]) -> ErrorCode:
        if place[0] in busy:
            return ErrorCode.group_subscribed_to_topic
        if place not in self.offsets.of(id) and self.catalog.partition(*place) is None:
            return ErrorCode.unknown_topic_or_partition
        return OK

    def forget_topic(self, name: str) -> None:
        """Removes what groups have committed in a topic that is gone."""
        for id, offsets in tuple(self.offsets.by_group.items()):
            gone = [place for place in offsets if place[0] == name]
            if gone:
                self.offsets.remove(id, gone, [], _ignore)

    # --- whole groups -----------------------------------------------------------------------------------

    def describe(self, id: str) -> Description:
        group = self._groups.get(id)
        if group is None:
            return Description(id, State.EMPTY if id in self.offsets.by_group else State.DEAD)
        members = tuple(group.members.values())
        return Description(id, group.state, group.protocol_type, group.protocol or "", members)

    def list_groups(self) -> list[Description]:
        return [self.describe(id) for id in sorted(self._groups.keys() | self.offsets.by_group.keys())]

    async def delete_group(self, id: str) -> ErrorCode:
        described = self.describe(id)
        if described.state is State.DEAD:
            return ErrorCode.group_id_not_found
        if described.state is not State.EMPTY:
            return ErrorCode.non_empty_group
        settled = self.loop.create_future()
        self._remove(id, self.offsets.of(id), True, _tell(settled))
        error: ErrorCode = await settled
        return error

    def _remove(
        self, id: str, places: Iterable[Place], whole: bool, settled: Callable[[LogError | None], None]
    ) -> None:
        group = self._groups.get(id)

        def done(error: LogError | None) -> None:
            # Somebody may have joined meanwhile; then it is not gone.
            if whole and error is None and group is not None:
                self._step(group, Retire())
                if group.state is State.DEAD:
                    self._drop(group)
            settled(error)

        also: list[Entry] = [(encoding.key(GroupKey(id)), None)] if whole else []
        self.offsets.remove(id, places, also, done)

    def expire(self, now_ms: int) -> None:
        """Removes the offsets of groups that have long been empty, and empty groups that have none."""
        oldest = now_ms - self.settings.offsets_retention_ms
        for id in tuple(self._groups.keys() | self.offsets.by_group.keys()):
            group = self._groups.get(id)
            if self.offsets.busy(id) or (group and (group.state is not State.EMPTY or group.pending)):
                continue
            offsets = self.offsets.of(id)
            since = self._empty_since.get(id, 0)
            gone = [place for place, committed in offsets.items() if max(committed.at_ms, since) < oldest]
            whole = len(gone) == len(offsets)
            if gone or whole:
                self._remove(id, gone, whole, _ignore)


def _subscribed(group: Group) -> frozenset[str]:
    """All topics that members of a group have asked for."""
    return frozenset(
        topic
        for member in group.members.values()
        for _, metadata in member.protocols
        for topic in subscription.topics(metadata) or ()
    )


def _tell(waiting: "asyncio.Future[ErrorCode]") -> Callable[[LogError | None], None]:
    def settled(error: LogError | None) -> None:
        if not waiting.done():
            # Clients know what to do about this one: they ask for the coordinator again, and try again.
            waiting.set_result(OK if error is None else ErrorCode.coordinator_not_available)

    return settled


def _ignore(error: LogError | None) -> None:
    """Nobody waits: what could not be removed is found again by the next round."""
