"""How groups and their offsets stand in the internal topic `__groups`.

A key is a version byte (1) and a MessagePack array; so is a value, and a record without a value removes its
key. The array of a key begins with its kind, 0 for a group and 1 for an offset:

    key     1 [0, group]
    value   1 [at_ms, generation, protocol_type, protocol, leader, [member, ...]]
    member  [id, instance_id, client_id, client_host, session_timeout_ms, rebalance_timeout_ms,
             [[protocol, subscription], ...], assignment]

    key     1 [1, group, topic, partition]
    value   1 [offset, leader_epoch, metadata, at_ms]

A field that is added later goes to the end and has a default: older records are read as they are, and an
older broker passes over what it does not know. Anything else takes a new version byte; records of a
version that a broker does not know are left alone.
"""

import logging
from typing import Any, Final

import msgspec

from fanlog.state.groups.model import Member, Snapshot

logger = logging.getLogger(__name__)

VERSION: Final = b"\x01"


class GroupKey(msgspec.Struct, frozen=True, array_like=True, tag=0):
    group: str


class OffsetKey(msgspec.Struct, frozen=True, array_like=True, tag=1):
    group: str
    topic: str
    partition: int


class KeptMember(msgspec.Struct, frozen=True, array_like=True):
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class KeptGroup(msgspec.Struct, frozen=True, array_like=True):
    at_ms: int
    generation: int
    protocol_type: str
    protocol: str | None
    leader: str | None
    members: tuple[KeptMember, ...]

    def snapshot(self) -> Snapshot:
        members = [
            Member(
                each.id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.session_timeout_ms,
                each.rebalance_timeout_ms,
                each.protocols,
                each.assignment,
            )
            for each in self.members
        ]
        return Snapshot(self.generation, self.protocol_type, self.protocol, self.leader, members)


class Committed(msgspec.Struct, frozen=True, array_like=True):
    """An offset that a group has committed: the next one to read."""

    offset: int
    leader_epoch: int
    metadata: str
    at_ms: int


_encode = msgspec.msgpack.Encoder().encode
_keys = msgspec.msgpack.Decoder(GroupKey | OffsetKey)
_groups = msgspec.msgpack.Decoder(KeptGroup)
_offsets = msgspec.msgpack.Decoder(Committed)


def kept(snapshot: Snapshot, at_ms: int) -> KeptGroup:
    members = tuple(
        KeptMember(
            member.id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.protocols,
            member.assignment,
        )
        for member in snapshot.members
    )
    return KeptGroup(
        at_ms, snapshot.generation, snapshot.protocol_type, snapshot.protocol, snapshot.leader, members
    )


def key(of: GroupKey | OffsetKey) -> bytes:
    return VERSION + _encode(of)


def value(of: KeptGroup | Committed) -> bytes:
    return VERSION + _encode(of)


def read_key(data: bytes | None) -> GroupKey | OffsetKey | None:
    """The key of a record; None if it is of a version that came after this one, or no key at all."""
    found: GroupKey | OffsetKey | None = _read(_keys, data)
    return found


def read_group(data: bytes | None) -> KeptGroup | None:
    found: KeptGroup | None = _read(_groups, data)
    return found


def read_offset(data: bytes | None) -> Committed | None:
    found: Committed | None = _read(_offsets, data)
    return found


def _read(decoder: "msgspec.msgpack.Decoder[Any]", data: bytes | None) -> Any:
    if data is None or data[:1] != VERSION:
        return None
    try:
        return decoder.decode(memoryview(data)[1:])
    except msgspec.MsgspecError as error:
        # A broker that refuses to start would be worse than a group that starts over.
        logger.warning("a record that says nothing of a group is passed over: %s", error)
        return None
