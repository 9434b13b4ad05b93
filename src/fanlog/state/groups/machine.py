"""One consumer group of the classic protocol: who is in it, and who waits for whom.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
                    ^----- a member comes, changes, leaves, dies -----'

In PreparingRebalance the group waits until all members have joined again, or their time is up; then a new
generation begins. Its leader is told who the members are, assigns the partitions, and hands the
assignment in with its SyncGroup (CompletingRebalance). When that is stored, everybody's SyncGroup is
answered, and the group is Stable.

`step` takes an event and returns effects; it does no I/O, and knows neither clock nor chance. What is true
after every step is written down in `invariants`. A request that waits is a token at its member
(`joining`, `syncing`); a member that waits is alive as long as it waits, any other has a session deadline.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from fanlog.state.groups import subscription
from fanlog.state.groups.membership import OK, Membership
from fanlog.state.groups.model import (
    PENDING,
    REBALANCE,
    SESSION,
    SYNC,
    Assigned,
    Checked,
    Commit,
    Effect,
    Emptied,
    Event,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Left,
    Member,
    Passed,
    Replaced,
    Resume,
    Retire,
    Rules,
    Snapshot,
    State,
    Stored,
    Suspend,
    Sync,
    Synced,
    Timer,
    Token,
)


class Group(Membership):
    def __init__(self, id: str, rules: Rules, kept: Snapshot | None = None) -> None:
        super().__init__(id, rules, kept)
        # The first rebalance waits for more members: until when at most, and whether one came meanwhile.
        self.delayed_until: int | None = None
        self.grew = False
        # The leader's assignment is on its way to the log.
        self.storing = False
        self._steps: dict[type[Event], Callable[[Any], None]] = {
            Join: self._join,
            Sync: self._sync,
            Heartbeat: self._heartbeat,
            Commit: self._commit,
            Leave: self._leave,
            Passed: self._passed,
            Stored: self._stored,
            Resume: self._resume,
            Retire: self._retire,
            Suspend: self._suspend,
        }

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        self._now = now_ms
        self._steps[type(event)](event)
        effects, self._effects = self._effects, []
        return effects

    # --- join -------------------------------------------------------------------------------------------

    def _join(self, event: Join) -> None:
        error = self._refusal(event)
        if error is not OK:
            self._answer(event.token, Joined(error, event.member_id))
        elif event.member_id in self.pending:
            self._add(event, event.member_id)
        elif event.member_id:
            self._join_again(event, self.members[event.member_id])
        elif event.instance_id in self.statics:
            self._replace(event, self.members[self.statics[event.instance_id or ""]])
        elif event.id_required and event.instance_id is None:
            self.pending.add(event.new_id)
            self._set(Timer(PENDING, event.new_id), event.session_timeout_ms)
            self._answer(event.token, Joined(ErrorCode.member_id_required, event.new_id))
        else:
            self._add(event, event.new_id)

    def _refusal(self, event: Join) -> ErrorCode:
        rules = self.rules
        if self.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        if not rules.session_timeout_ms_min <= event.session_timeout_ms <= rules.session_timeout_ms_max:
            return ErrorCode.invalid_session_timeout
        known = event.member_id
        if known and (known not in self.pending or event.instance_id is not None):
            error = self._identify(event.member_id, event.instance_id)
            if error is not OK:
                return error
        elif event.instance_id in self.statics:
            known = self.statics[event.instance_id or ""]
        if not self._fits(event, self.members.get(known)):
            return ErrorCode.inconsistent_group_protocol
        size = len(self.members) + len(self.pending)
        if not known and size >= rules.members_max:
            return ErrorCode.group_max_size_reached
        return OK

    def _add(self, event: Join, member_id: str) -> None:
        assert member_id
        if member_id in self.pending:
            self.pending.remove(member_id)
            self._clear(Timer(PENDING, member_id))
        member = Member(
            member_id,
            event.instance_id,
            event.client_id,
            event.client_host,
            event.session_timeout_ms,
            event.rebalance_timeout_ms,
            event.protocols,
        )
        self._enrol(member)
        self.grew = self.state is State.PREPARING
        self._wait_for_others(member, event)

    def _join_again(self, event: Join, member: Member) -> None:
        unchanged = member.protocols == event.protocols
        # The answer to its first join may have been lost.
        if self.state is State.COMPLETING and unchanged:
            self._tell_generation(member, event.token)
        # A leader that joins again asks for a new assignment: it has seen that the topics changed.
        elif self.state is State.STABLE and unchanged and member.id != self.leader and not member.waiting:
            self._touch(member)
            self._answer(event.token, self._joined(member))
        else:
            self._wait_for_others(member, event)

    def _wait_for_others(self, member: Member, event: Join) -> None:
        """Parks a join until all have joined; begins a rebalance if there is none."""
        self._update(member, event)
        if self.state is State.PREPARING:
            self._complete_if_all_joined()
        else:
            self._prepare()

    def _update(self, member: Member, event: Join) -> None:
        if member.joining is not None:
            self._answer(member.joining, Joined(ErrorCode.rebalance_in_progress, member.id))
        if len(self.members) == 1:
            self.protocol_type = event.protocol_type
        self._know(member, event.protocols)
        member.session_timeout_ms = event.session_timeout_ms
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
        member.client_id, member.client_host = event.client_id, event.client_host
        self._park(member, event.token)
        self._clear(Timer(SESSION, member.id))

    def _replace(self, event: Join, old: Member) -> None:
        """A static member that comes back without its id takes the place of what it was."""
        leader = self.leader
        self._remove(old, ErrorCode.fenced_instance_id)
        member = replace(old, id=event.new_id)
        self._enrol(member)
        if leader == old.id:
            self.leader = member.id
        self._update(member, event)
        if self.state is not State.STABLE:
            if self.state is State.PREPARING:
                self._complete_if_all_joined()
            else:
                # The leader may be assigning to the old id.
                self._prepare()
        elif self._wants_the_same(old, member):
            purpose = Replaced(self.generation, member.id, leader or "", event.knows_skip, event.token)
            self._persist(purpose)
        else:
            self._prepare()

    def _wants_the_same(self, old: Member, new: Member) -> bool:
        """Whether what was assigned to `old` suits `new`, and all others as before."""
        same_names = [name for name, _ in old.protocols] == [name for name, _ in new.protocols]
        if not same_names and self._choose() != self.protocol:
            return False
        before, after = old.metadata(self.protocol), new.metadata(self.protocol)
        return subscription.same(self.protocol_type, before, after)

    def _tell_generation(self, member: Member, token: Token) -> None:
        reply = self._joined(member)
        if member.id == self.leader:
            reply = replace(reply, members=self._roll())
        if member.syncing is None:
            member.owes_sync = True
            if SYNC not in self.deadlines:
                self._set(SYNC, self._rebalance_timeout_ms())
        self._answer(token, reply)
        self._touch(member)

    # --- rebalance --------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Begins a rebalance."""
        first = self.state is State.EMPTY
        for member in self.members.values():
            member.owes_sync = False
            if self.state is State.COMPLETING:
                member.assignment = b""
            if member.syncing is not None:
                self._answer_sync(member, Synced(ErrorCode.rebalance_in_progress))
        self.storing = False
        self.state = State.PREPARING
        self._clear(SYNC)
        delay = self.rules.initial_rebalance_delay_ms
        if first and delay:
            self.delayed_until = self._now + max(self._rebalance_timeout_ms(), delay)
            self.grew = False
            self._set(REBALANCE, delay)
        else:
            self.delayed_until = None
            self._set(REBALANCE, self._rebalance_timeout_ms())
        self._complete_if_all_joined()

    def _complete_if_all_joined(self) -> None:
        if self.pending or (self.members and self.delayed_until is not None):
            return
        if self.joining == len(self.members):
            self._complete()

    def _rebalance_time_is_up(self) -> None:
        if self.delayed_until is not None and self.grew and self._now < self.delayed_until:
            # Members are still coming in.
            self.grew = False
            left = self.delayed_until - self._now
            self._set(REBALANCE, min(self.rules.initial_rebalance_delay_ms, left))
        else:
            self._complete()

    def _complete(self) -> None:
        """Ends the wait for members: those that did not come are dropped, a generation begins."""
        self._clear(REBALANCE)
        self.delayed_until = None
        for member in tuple(self.members.values()):
            # Static members have until their session ends to come back.
            if member.joining is None and member.instance_id is None:
                self._remove(member)
        joined = [member for member in self.members.values() if member.joining is not None]
        if joined:
            self._begin_generation(joined)
        elif self.members:
            self._set(REBALANCE, self._rebalance_timeout_ms())
        else:
            self.generation += 1
            self.state = State.EMPTY
            self.protocol = self.leader = None
            self._persist(Emptied(self.generation))

    def _begin_generation(self, joined: list[Member]) -> None:
        self.generation += 1
        self.state = State.COMPLETING
        self.protocol = self._choose()
        if self.leader not in {member.id for member in joined}:
            self.leader = joined[0].id
        for member in self.members.values():
            member.assignment = b""
        for member in joined:
            self._tell_generation(member, self._park(member, None))

    # --- sync -------------------------------------------------------------------------------------------

    def _sync(self, event: Sync) -> None:
        error = self._check(event)
        if error is OK and (
            event.protocol_type not in (None, self.protocol_type)
            or event.protocol not in (None, self.protocol)
        ):
            error = ErrorCode.inconsistent_group_protocol
        if error is OK and self.state is State.PREPARING:
            error = ErrorCode.rebalance_in_progress
        if error is not OK:
            self._answer(event.token, Synced(error))
            return
        member = self.members[event.member_id]
        member.owes_sync = False
        if self.state is State.STABLE:
            self._touch(member)
            self._answer(event.token, self._synced(member))
            return
        if member.syncing is not None:
            self._answer(member.syncing, Synced(ErrorCode.rebalance_in_progress))
        member.syncing = event.token
        self._clear(Timer(SESSION, member.id))
        # A leader that asks twice is answered twice, but assigns once.
        if member.id == self.leader and not self.storing:
            self.storing = True
            given = {id: event.assignments.get(id, b"") for id in self.members}
            self._persist(Assigned(self.generation, given), given)

    def _stored(self, event: Stored) -> None:
        purpose = event.purpose
        if purpose.generation != self.generation:
            # Another rebalance came in between.
            return
        if isinstance(purpose, Replaced) and self.state is State.STABLE:
            self._replacement_stored(purpose, event.ok)
        elif isinstance(purpose, Assigned) and self.state is State.COMPLETING:
            self._assignment_stored(purpose, event.ok)

    def _assignment_stored(self, purpose: Assigned, ok: bool) -> None:
        if ok:
            self.storing = False
            self.state = State.STABLE
            for member in self.members.values():
                member.assignment = purpose.assignments.get(member.id, b"")
        for member in self.members.values():
            if member.syncing is not None:
                failed = Synced(ErrorCode.coordinator_not_available)
                self._answer_sync(member, self._synced(member) if ok else failed)
        if not ok:
            self._prepare()

    def _replacement_stored(self, purpose: Replaced, ok: bool) -> None:
        member = self.members.get(purpose.member_id)
        if member is None or member.joining is not purpose.token:
            return
        self._park(member, None)
        self._touch(member)
        if not ok:
            reply = Joined(ErrorCode.coordinator_not_available, "")
        elif purpose.knows_skip and member.id == self.leader:
            # It leads on, and watches the topics, but what it assigned still holds (KIP-814).
            reply = replace(self._joined(member), members=self._roll(), skip_assignment=True)
        elif purpose.knows_skip:
            reply = self._joined(member)
        else:
            # An older leader must not take itself for the leader now: it would assign for nobody.
            reply = replace(self._joined(member), leader=purpose.leader_before)
        self._answer(purpose.token, reply)

    # --- the other requests -----------------------------------------------------------------------------

    def _check(self, event: Sync | Heartbeat | Commit) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        error = self._identify(event.member_id, event.instance_id)
        if error is OK and event.generation != self.generation:
            return ErrorCode.illegal_generation
        return error

    def _heartbeat(self, event: Heartbeat) -> None:
        error = self._check(event)
        if error is OK:
            self._touch(self.members[event.member_id])
            if self.state is State.PREPARING:
                error = ErrorCode.rebalance_in_progress
        self._answer(event.token, Checked(error))

    def _commit(self, event: Commit) -> None:
        if event.generation < 0 and self.state is State.EMPTY:
            # Somebody who assigns partitions by himself and only keeps his offsets here.
            self._answer(event.token, Checked(OK))
            return
        error = self._check(event)
        if error is OK:
            self._touch(self.members[event.member_id])
            # It may hold other partitions by the time it knows its assignment.
            if self.state is State.COMPLETING:
                error = ErrorCode.rebalance_in_progress
        self._answer(event.token, Checked(error))

    def _leave(self, event: Leave) -> None:
        before = len(self.members)
        self._answer(event.token, Left([self._leave_one(*member) for member in event.members]))
        self._react_to_loss(before)

    def _leave_one(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.coordinator_not_available
        if member_id in self.pending and instance_id is None:
            self.pending.remove(member_id)
            self._clear(Timer(PENDING, member_id))
            return OK
        if not member_id and instance_id is not None:
            # An operator removes a static member without knowing its id.
            member_id = self.statics.get(instance_id, "")
        error = self._identify(member_id, instance_id)
        if error is OK:
            self._remove(self.members[member_id])
        elif not member_id:
            error = ErrorCode.unknown_member_id
        return error

    def _react_to_loss(self, members_before: int) -> None:
        if self.state is State.PREPARING:
            self._complete_if_all_joined()
        elif len(self.members) < members_before:
            self._prepare()

    def _passed(self, event: Passed) -> None:
        timer = event.timer
        if self.deadlines.get(timer, self._now + 1) > self._now:
            return
        del self.deadlines[timer]
        before = len(self.members)
        if timer == REBALANCE:
            self._rebalance_time_is_up()
            return
        if timer.kind == PENDING:
            self.pending.discard(timer.member_id)
        elif timer.kind == SESSION:
            self._remove(self.members[timer.member_id])
        else:
            for member in [member for member in self.members.values() if member.owes_sync]:
                self._remove(member)
        self._react_to_loss(before)

    def _resume(self, event: Resume) -> None:
        for member in self.members.values():
            self._touch(member)

    def _retire(self, event: Retire) -> None:
        if self.state is State.EMPTY and not self.pending:
            self.state = State.DEAD

    def _suspend(self, event: Suspend) -> None:
        for member in self.members.values():
            self._release(member, ErrorCode.not_coordinator)
        for timer in tuple(self.deadlines):
            self._clear(timer)
