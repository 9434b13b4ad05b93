"""What is said to a consumer group, and what it says back: events in, effects out.

A token stands for a request that waits for its answer. The group never looks at it; whoever performs the
effects knows whose it is, and whether anybody still waits. Times are milliseconds of a clock that only
moves forward.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kio.schema.errors import ErrorCode

Protocols = tuple[tuple[str, bytes], ...]
Token = object


class State(enum.StrEnum):
    """The states of a group, by the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits that a group keeps."""

    session_timeout_ms_min: int
    session_timeout_ms_max: int
    initial_rebalance_delay_ms: int
    members_max: int


@dataclass(slots=True)
class Member:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # The ways of assigning that it knows, the preferred first, each with its subscription.
    protocols: Protocols
    assignment: bytes = b""
    # Requests of its own that wait for the others.
    joining: Token | None = None
    syncing: Token | None = None
    # It was told of this generation and has not asked for its assignment yet.
    owes_sync: bool = False

    @property
    def waiting(self) -> bool:
        return self.joining is not None or self.syncing is not None

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


# --- events ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Join:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    # From version 4 a member must have an id before it counts (KIP-394); from 9 it knows `skip_assignment`.
    id_required: bool = False
    knows_skip: bool = False
    # The id to give, should the member need one: chance is not the group's business.
    new_id: str = ""
    token: Token = None


@dataclass(slots=True)
class Sync:
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]
    token: Token = None


@dataclass(slots=True)
class Heartbeat:
    member_id: str
    instance_id: str | None
    generation: int
    token: Token = None


@dataclass(slots=True)
class Commit:
    """May these offsets be committed? A sign of life, like a heartbeat."""

    member_id: str
    instance_id: str | None
    generation: int
    token: Token = None


@dataclass(slots=True)
class Leave:
    # Member id and instance id of each.
    members: list[tuple[str, str | None]]
    token: Token = None


class Timer(NamedTuple):
    """What a deadline is for."""

    kind: str
    member_id: str = ""


SESSION = "session"
PENDING = "pending"
REBALANCE = Timer("rebalance")
SYNC = Timer("sync")


@dataclass(slots=True)
class Passed:
    """A deadline has passed."""

    timer: Timer


@dataclass(slots=True)
class Stored:
    """What became of a Persist."""

    purpose: "Purpose"
    ok: bool


@dataclass(slots=True)
class Resume:
    """The group was read back from the log: its members' sessions begin anew."""


@dataclass(slots=True)
class Retire:
    """Nothing is left of the group: it becomes Dead if it is Empty."""


@dataclass(slots=True)
class Suspend:
    """The broker stops: nobody waits any longer."""


Event = Join | Sync | Heartbeat | Commit | Leave | Passed | Stored | Resume | Retire | Suspend


# --- effects --------------------------------------------------------------------------------------------


class JoinedMember(NamedTuple):
    id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    # The leader alone is told who the members are.
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Synced:
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Checked:
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Left:
    errors: list[ErrorCode]


Reply = Joined | Synced | Checked | Left


@dataclass(frozen=True, slots=True)
class Answer:
    token: Token
    reply: Reply


@dataclass(frozen=True, slots=True)
class Assigned:
    """The leader has assigned the partitions of a generation."""

    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Replaced:
    """A static member has come back under another id (KIP-345)."""

    generation: int
    member_id: str
    leader_before: str
    knows_skip: bool
    token: Token


@dataclass(frozen=True, slots=True)
class Emptied:
    """The last member has left."""

    generation: int


Purpose = Assigned | Replaced | Emptied


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A group as it is kept."""

    generation: int
    protocol_type: str
    protocol: str | None
    leader: str | None
    members: list[Member] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Persist:
    """Keep the group as in `snapshot`, then say what became of it: `Stored(purpose, ok)`."""

    purpose: Purpose
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class SetDeadline:
    timer: Timer
    at_ms: int


@dataclass(frozen=True, slots=True)
class ClearDeadline:
    timer: Timer


Effect = Answer | Persist | SetDeadline | ClearDeadline
