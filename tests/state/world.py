"""A group and everything around it: a clock, a log, requests that wait. Every step is checked.

Clients are played by the tests, through the same events that the broker makes of their requests. A token is
a number; `answers` has what was replied to it. What the group wants stored waits in `storing` until
the test lets it through or has it fail.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from fanlog.state.groups.invariants import validate
from fanlog.state.groups.machine import Group
from fanlog.state.groups.model import (
    Answer,
    Assigned,
    Checked,
    ClearDeadline,
    Commit,
    Event,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Left,
    Passed,
    Persist,
    Resume,
    Rules,
    SetDeadline,
    Snapshot,
    State,
    Stored,
    Sync,
    Synced,
    Timer,
)

OK = ErrorCode.none
RULES = Rules(
    session_timeout_ms_min=1_000,
    session_timeout_ms_max=60_000,
    initial_rebalance_delay_ms=0,
    members_max=5,
)


def subscription(*topics: str, owned: bytes = b"") -> bytes:
    """What a consumer says it wants, in Kafka's layout."""
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\x00\x01" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff" + owned


@dataclass
class World:
    rules: Rules = RULES
    kept: Snapshot | None = None
    store_at_once: bool = True
    now: int = 1_000
    group: Group = field(init=False)
    deadlines: dict[Timer, int] = field(default_factory=dict)
    storing: deque[Persist] = field(default_factory=deque)
    stored: list[Snapshot] = field(default_factory=list)
    # The one assignment that each generation has had.
    assigned: dict[int, Assigned] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    answers: dict[int, Any] = field(default_factory=dict)
    tokens: int = 0

    def __post_init__(self) -> None:
        self.group = Group("readers", self.rules, self.kept)
        if self.kept is not None and self.kept.members:
            parts = {member.id: member.assignment for member in self.kept.members}
            self.assigned[self.kept.generation] = Assigned(self.kept.generation, parts)
        self.step(Resume())

    # --- steps ------------------------------------------------------------------------------------------

    def ask(self, event: Join | Sync | Heartbeat | Commit | Leave) -> int:
        self.tokens += 1
        event.token = self.tokens
        self.waiting.add(self.tokens)
        self.step(event)
        return self.tokens

    def step(self, event: Event) -> None:
        generation = self.group.generation
        for effect in self.group.step(event, self.now):
            self._perform(effect)
        validate(self.group)
        assert self.group.generation >= generation
        assert self.deadlines == self.group.deadlines
        while self.store_at_once and self.storing:
            self.store()

    def _perform(self, effect: object) -> None:
        if isinstance(effect, Answer):
            assert effect.token in self.waiting, "answered twice, or never asked"
            self.waiting.remove(effect.token)
            self.answers[effect.token] = effect.reply
        elif isinstance(effect, SetDeadline):
            self.deadlines[effect.timer] = effect.at_ms
        elif isinstance(effect, ClearDeadline):
            del self.deadlines[effect.timer]
        elif isinstance(effect, Persist):
            if isinstance(effect.purpose, Assigned):
                assert effect.purpose.generation not in self.assigned, "two assignments of one generation"
                self.assigned[effect.purpose.generation] = effect.purpose
            self.storing.append(effect)

    def store(self, ok: bool = True) -> None:
        """The log takes the oldest of what it was given, or refuses it."""
        effect = self.storing.popleft()
        if ok:
            self.stored.append(effect.snapshot)
        self.step(Stored(effect.purpose, ok))

    def wait(self, milliseconds: int) -> None:
        """Time passes, and deadlines with it, in their order."""
        end = self.now + milliseconds
        while self.deadlines and min(self.deadlines.values()) <= end:
            timer = min(self.deadlines, key=lambda timer: self.deadlines[timer])
            self.now = max(self.now, self.deadlines.pop(timer))
            self.step(Passed(timer))
        self.now = end

    def restarted(self) -> "World":
        """A new broker reads what was stored last."""
        return World(self.rules, self.stored[-1] if self.stored else None)

    # --- requests ---------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        new_id: str = "",
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"topics"),),
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 30_000,
        id_required: bool = False,
        knows_skip: bool = True,
    ) -> int:
        return self.ask(
            Join(
                member_id,
                instance_id,
                "client",
                "host",
                session_timeout_ms,
                rebalance_timeout_ms,
                protocol_type,
                protocols,
                id_required,
                knows_skip,
                new_id or f"member-{self.tokens + 1}",
            )
        )

    def joined(self, token: int) -> Joined:
        answer = self.answers[token]
        assert isinstance(answer, Joined)
        return answer

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol: str | None = None,
        protocol_type: str | None = None,
    ) -> int:
        number = self.group.generation if generation is None else generation
        return self.ask(Sync(member_id, instance_id, number, protocol_type, protocol, assignments or {}))

    def synced(self, token: int) -> Synced:
        answer = self.answers[token]
        assert isinstance(answer, Synced)
        return answer

    def heartbeat(
        self, member_id: str, generation: int | None = None, instance_id: str | None = None
    ) -> ErrorCode:
        number = self.group.generation if generation is None else generation
        answer = self.answers[self.ask(Heartbeat(member_id, instance_id, number))]
        assert isinstance(answer, Checked)
        return answer.error

    def commit(self, member_id: str = "", generation: int = -1, instance_id: str | None = None) -> ErrorCode:
        answer = self.answers[self.ask(Commit(member_id, instance_id, generation))]
        assert isinstance(answer, Checked)
        return answer.error

    def leave(self, *members: str | tuple[str, str | None]) -> list[ErrorCode]:
        leaving = [member if isinstance(member, tuple) else (member, None) for member in members]
        answer = self.answers[self.ask(Leave(leaving))]
        assert isinstance(answer, Left)
        return answer.errors

    # --- shortcuts --------------------------------------------------------------------------------------

    def stable(self, *names: str, instance_of: dict[str, str] | None = None, **options: Any) -> None:
        """Brings the group to a stable generation of these members, the first of them its leader."""
        instances = instance_of or {}
        for name in names:
            self.join(new_id=name, instance_id=instances.get(name), **options)
            for other in tuple(self.group.members.values()):
                if other.joining is None:
                    self.join(other.id, instance_id=other.instance_id, **options)
        assert self.group.state is State.COMPLETING
        for name in names[1:]:
            self.sync(name, instance_id=instances.get(name))
        parts = {name: f"part of {name}".encode() for name in names}
        self.sync(names[0], assignments=parts, instance_id=instances.get(names[0]))
        assert self.group.state is State.STABLE
        assert self.group.leader == names[0]
