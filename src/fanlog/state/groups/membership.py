"""Who is in a group, and the small moves of which its steps are made.

Each of them notes its effects; `machine` puts them in order.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from kio.schema.errors import ErrorCode

from fanlog.state.groups.model import (
    SESSION,
    Answer,
    ClearDeadline,
    Effect,
    Joined,
    JoinedMember,
    Member,
    Persist,
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
            self.members = {member.id: replace(member) for member in kept.members}
            self.statics = {m.instance_id: m.id for m in kept.members if m.instance_id is not None}

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
        known = common(members, {name for name, _ in members[0].protocols})
        ballots = (next(name for name, _ in member.protocols if name in known) for member in members)
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
            self._answer(member.joining, Joined(error, member.id))
        if member.syncing is not None:
            self._answer(member.syncing, Synced(error))
        member.joining = member.syncing = None

    def _remove(self, member: Member) -> None:
        self._release(member, ErrorCode.unknown_member_id)
        self._clear(Timer(SESSION, member.id))
        del self.members[member.id]
        if member.instance_id is not None:
            del self.statics[member.instance_id]

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


def common(members: Iterable[Member], names: set[str]) -> set[str]:
    """Those of `names` that all members know."""
    for member in members:
        names = names & {name for name, _ in member.protocols}
    return names
