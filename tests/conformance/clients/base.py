"""What a scenario may ask of a client.

`Client` has one method for each thing that a user does with Kafka: produce, read, ask for offsets by time,
join a group. `Member` is a consumer in a group that works by itself in the background, in a thread or in a
process: it collects what it receives, commits after every poll, and knows what it was assigned. Commits come
after every poll and before the next, so a member that leaves in peace leaves no record to be read twice.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from support.process import wait_for

Headers = tuple[tuple[str, bytes | None], ...]

#: How long anything may take before the test says that it does not happen.
PATIENCE_SECONDS = 20.0


@dataclass(frozen=True)
class Message:
    """A record to be produced."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp: int | None = None
    headers: Headers = ()


@dataclass(frozen=True)
class Record:
    """A record that was consumed."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True)
class Membership:
    """How a consumer takes part in a group."""

    group: str
    topic: str
    name: str = "member"
    instance_id: str | None = None
    cooperative: bool = False
    fetch_wait_ms: int = 100
    session_timeout_ms: int = 6000


class TooLarge(Exception):
    """The client or the broker refused a record for its size."""


class Member(ABC):
    """A consumer in a group, at work in the background."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.records: list[Record] = []
        self.committed = 0  # how many of the records are known to be committed, where the client tells
        self.assignment: frozenset[int] = frozenset()
        self.assignments_seen = 0
        self.taken_away: list[frozenset[int]] = []
        self.failure: BaseException | None = None

    def values(self) -> list[bytes | None]:
        return [record.value for record in list(self.records)]

    def assigned(self, partitions: frozenset[int] | set[int]) -> None:
        self.assignment = frozenset(partitions)
        self.assignments_seen += 1

    def revoked(self, partitions: frozenset[int] | set[int]) -> None:
        self.assignment -= partitions
        self.taken_away.append(frozenset(partitions))

    def wait_until_assigned(self, *partitions: int) -> None:
        wait_for(
            f"{self.name} to be assigned {partitions}",
            lambda: self.check() and self.assignment == set(partitions),
            PATIENCE_SECONDS,
        )

    def check(self) -> bool:
        """True while the member is well; raises what ended it otherwise."""
        if self.failure is not None:
            raise AssertionError(f"{self.name} failed") from self.failure
        return True

    @abstractmethod
    def close(self) -> None:
        """Leave the group in peace."""

    @abstractmethod
    def vanish(self) -> None:
        """Go away without leaving the group, as a static member does when its process restarts."""


class ThreadMember(Member):
    """A member whose poll loop runs in a thread of this process."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.stopping = threading.Event()
        self.leave = True
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failure = error

    @abstractmethod
    def work(self) -> None:
        """Poll until `stopping` is set, then close the consumer, leaving the group if `leave` is set."""

    def close(self) -> None:
        self.stopping.set()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), f"{self.name} did not close"
        self.check()

    def vanish(self) -> None:
        self.leave = False
        self.close()


class Client(ABC):
    """One client library or tool, connected to one broker."""

    name: ClassVar[str]
    #: Whether keys, values and headers may be any bytes, null and empty told apart, and times be set.
    carries_anything: ClassVar[bool] = True
    #: Whether the client has an assignor for cooperative rebalancing and says what it took away.
    cooperates: ClassVar[bool] = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abstractmethod
    def produce(
        self, topic: str, messages: Sequence[Message], *, compression: str = "none", idempotent: bool = False
    ) -> None:
        """Produce with acks=all; returns once all of it is acknowledged."""

    @abstractmethod
    def read(
        self, topic: str, count: int, partitions: Sequence[int] = (0,), *, from_time: int | None = None
    ) -> list[Record]:
        """The next `count` records of the partitions, from the earliest or from the time given on."""

    @abstractmethod
    def offset_for_time(self, topic: str, partition: int, time: int) -> int | None:
        """Offset of the first record at or after `time`; None if there is none."""

    @abstractmethod
    def join(self, membership: Membership) -> Member:
        """A new member of a group, reading from the first record that is not committed on."""
