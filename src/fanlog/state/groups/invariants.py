"""What is true of a group after every step, as assertions. Tests hold it against each step they make."""

from collections import Counter

from fanlog.state.groups.machine import Group
from fanlog.state.groups.model import PENDING, REBALANCE, SESSION, SYNC, State, Timer


def validate(group: Group) -> None:
    """Raises AssertionError if the group is not what it should be between two steps."""
    members = group.members
    assert group.statics == {m.instance_id: m.id for m in members.values() if m.instance_id is not None}
    assert not group.pending & members.keys()
    assert len(members) <= group.rules.members_max
    for id, member in members.items():
        assert id == member.id
        # Alive because it waits, or until its session ends: nobody stays for ever.
        assert member.waiting != (Timer(SESSION, id) in group.deadlines), id
    sessions = {timer.member_id for timer in group.deadlines if timer.kind == SESSION}
    assert sessions <= members.keys()
    assert {timer.member_id for timer in group.deadlines if timer.kind == PENDING} == group.pending
    if members:
        assert group.protocol_type
        assert len(members) in group.known_by.values(), "there is a protocol that all know"
    names = Counter(name for m in members.values() for name in {name for name, _ in m.protocols})
    assert dict(group.known_by) == dict(names)
    assert group.joining == sum(member.joining is not None for member in members.values())
    _INVARIANTS[group.state](group)


def _validate_without_members(group: Group) -> None:
    assert not group.members
    assert group.leader is None
    assert group.protocol is None
    assert REBALANCE not in group.deadlines
    assert SYNC not in group.deadlines
    assert group.state is State.EMPTY or not group.pending


def _validate_preparing(group: Group) -> None:
    assert REBALANCE in group.deadlines
    assert SYNC not in group.deadlines
    assert not any(member.syncing or member.owes_sync for member in group.members.values())
    everybody = all(member.joining for member in group.members.values())
    assert group.pending or group.delayed_until is not None or not everybody, "it waits for nobody"


def _validate_generation(group: Group) -> None:
    members = group.members.values()
    assert group.leader in group.members
    assert group.known_by[group.protocol or ""] == len(members)
    assert REBALANCE not in group.deadlines
    assert not any(member.owes_sync for member in members) or SYNC in group.deadlines
    if group.state is State.COMPLETING:
        assert not any(member.joining or member.assignment for member in members)
        assert group.storing == (group.members[group.leader or ""].syncing is not None)
    else:
        assert not any(member.syncing for member in members)
        assert not group.storing


_INVARIANTS = {
    State.EMPTY: _validate_without_members,
    State.DEAD: _validate_without_members,
    State.PREPARING: _validate_preparing,
    State.COMPLETING: _validate_generation,
    State.STABLE: _validate_generation,
}
