"""Who is in a group, and the small moves of which its steps are made.

Each of them notes its effects; `machine` puts them in order.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from kio.schema.errors import ErrorCode

from fanlog.state.groups.model import (
    SESSION,
    Answer,
    ClearDeadline,
    Effect,
    Join,
    Joined,
    JoinedMember,
    Member,
    Persist,
    Protocols,
    Purpose,
    Reply,
    Rules,
    SetDeadline,
    Snapshot,
    State,
    Synced,
    Timer,
    Token,
)

OK = ErrorCode.none


class Membership:
    def __init__(self, id: str, rules: Rules, kept: Snapshot | None = None) -> None:
        self.id = id
        self.rules = rules
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        # How many members know each protocol, and how many wait for the others to join.
        self.known_by: Counter[str] = Counter()
        self.joining = 0
        # Member ids by group.instance.id.
        self.statics: dict[str, str] = {}
        # Ids that were given out, and with which nobody has joined yet (KIP-394).
        self.pending: set[str] = set()
        self.deadlines: dict[Timer, int] = {}
        self._effects: list[Effect] = []
        self._now = 0
        if kept is not None:
            self._restore(kept)

    def _restore(self, kept: Snapshot) -> None:
        self.generation = kept.generation
        self.protocol_type = kept.protocol_type
        if kept.members:
            self.state = State.STABLE
            self.protocol, self.leader = kept.protocol, kept.leader
            for member in kept.members:
                self._enrol(replace(member))

    # --- who is in it -----------------------------------------------------------------------------------

    def _enrol(self, member: Member) -> None:
        self.members[member.id] = member
        self.known_by.update(_names(member.protocols))
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.id

    def _remove(self, member: Member, error: ErrorCode = ErrorCode.unknown_member_id) -> None:
        self._release(member, error)
        self._clear(Timer(SESSION, member.id))
        del self.members[member.id]
        self._unlearn(member.protocols)
        if member.instance_id is not None:
            del self.statics[member.instance_id]

    def _know(self, member: Member, protocols: Protocols) -> None:
        self._unlearn(member.protocols)
        self.known_by.update(_names(protocols))
        member.protocols = protocols

    def _unlearn(self, protocols: Protocols) -> None:
        for name in _names(protocols):
            self.known_by[name] -= 1
            if not self.known_by[name]:
                del self.known_by[name]

    def _park(self, member: Member, token: Token | None) -> Token | None:
        """Has a member wait for the others, or, with None, no longer; returns what waited before."""
        before, member.joining = member.joining, token
        self.joining += (token is not None) - (before is not None)
        return before

    def _fits(self, event: Join, old: Member | None) -> bool:
        """Whether somebody who joins in the place of `old` shares a protocol with all the others."""
        known = _names(old.protocols) if old is not None else set()
        others = len(self.members) - (old is not None)
        if not event.protocol_type or (others and event.protocol_type != self.protocol_type):
            return False
        return any(self.known_by[name] - (name in known) == others for name in _names(event.protocols))

    def _identify(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether this is a member, and the one that has its instance id now (KIP-345)."""
        if instance_id is not None:
            current = self.statics.get(instance_id)
            if current is None:
                return ErrorCode.unknown_member_id
            if current != member_id:
                return ErrorCode.fenced_instance_id
        return OK if member_id in self.members else ErrorCode.unknown_member_id

    def _rebalance_timeout_ms(self) -> int:
        asked = max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
        return max(asked, self.rules.session_timeout_ms_min)

    def _choose(self) -> str:
        """The protocol that most members prefer among those that all know."""
        members = list(self.members.values())
        common = {name for name, count in self.known_by.items() if count == len(members)}
        ballots = (next(name for name, _ in member.protocols if name in common) for member in members)
        return Counter(ballots).most_common(1)[0][0]

    # --- what members are told ---------------------------------------------------------------------------

    def _joined(self, member: Member) -> Joined:
        """What a member is told of the current generation."""
        assert self.leader is not None
        return Joined(OK, member.id, self.generation, self.protocol_type, self.protocol, self.leader)

    def _roll(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.id, member.instance_id, member.metadata(self.protocol))
            for member in self.members.values()
        )

    def _synced(self, member: Member) -> Synced:
        return Synced(OK, self.protocol_type, self.protocol, member.assignment)

    # --- effects ----------------------------------------------------------------------------------------

    def _answer(self, token: Token, reply: Reply) -> None:
        self._effects.append(Answer(token, reply))

    def _answer_sync(self, member: Member, reply: Synced) -> None:
        token, member.syncing = member.syncing, None
        self._answer(token, reply)
        self._touch(member)

    def _touch(self, member: Member) -> None:
        """A sign of life: the session begins anew, unless the member waits for us."""
        if not member.waiting:
            self._set(Timer(SESSION, member.id), member.session_timeout_ms)

    def _release(self, member: Member, error: ErrorCode) -> None:
        """Answers whatever a member waits for."""
        if member.joining is not None:
            self._answer(self._park(member, None), Joined(error, member.id))
        if member.syncing is not None:
            self._answer(member.syncing, Synced(error))
            member.syncing = None

    def _set(self, timer: Timer, after_ms: int) -> None:
        at = self.deadlines[timer] = self._now + after_ms
        self._effects.append(SetDeadline(timer, at))

    def _clear(self, timer: Timer) -> None:
        if self.deadlines.pop(timer, None) is not None:
            self._effects.append(ClearDeadline(timer))

    def _persist(self, purpose: Purpose, assignments: Mapping[str, bytes] | None = None) -> None:
        members = [
            replace(
                member,
                assignment=member.assignment if assignments is None else assignments[member.id],
                joining=None,
                syncing=None,
                owes_sync=False,
            )
            for member in self.members.values()
        ]
        kept = Snapshot(self.generation, self.protocol_type, self.protocol, self.leader, members)
        self._effects.append(Persist(purpose, kept))


def _names(protocols: Protocols) -> set[str]:
    return {name for name, _ in protocols}
