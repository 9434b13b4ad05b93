"""Readers that fall behind, by name.

A reader that is behind costs the others nothing, but somebody will want to know. One that has been behind for
a second is named, in the log and on `$SYS/fanlog/slow/CLIENT`: which filter, how many records it has not
been given of what its filter may cover, how many retention has taken meanwhile. When it has caught up, or
has gone, that is told too. A client is named at most once in a while, however often it stumbles.
"""

import asyncio
import json
import logging
import re
from typing import TYPE_CHECKING, Final

from fanlog.router.cursor import Cursor
from fanlog.router.statistics import FANLOG, Statistics

if TYPE_CHECKING:
    from fanlog.router.router import Router

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 10.0
# Looked at in one go; with more the next look goes on with the rest.
_READERS_MAX: Final = 1000
_CLIENTS_MAX: Final = 10_000
_NOT_IN_ADDRESSES: Final = re.compile("[+#\x00]")


class SlowReaders:
    def __init__(self, router: "Router", statistics: Statistics) -> None:
        self.router = router
        self.statistics = statistics
        self.loop = asyncio.get_running_loop()
        # Those that were named, with their client and the time since which they are behind.
        self._named: dict[Cursor, tuple[str, float]] = {}
        self._quiet_until: dict[str, float] = {}
        self._next = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._look()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = self.loop.call_later(LOOK_SECONDS, self._look)
        behind = self.router.pump.behind
        for cursor in [one for one in self._named if one not in behind]:
            self._tell(cursor, "caught up", 0)
        some = tuple(behind.items())
        self._next = 0 if self._next >= len(some) else self._next
        now = self.loop.time()
        for cursor, since in some[self._next : self._next + _READERS_MAX]:
            self._consider(cursor, since, now)
        self._next += _READERS_MAX

    def _consider(self, cursor: Cursor, since: float, now: float) -> None:
        follower = cursor.follower
        client = follower.reader
        if client is None or follower.cursor is not cursor:
            # It is nobody's: its client has gone, or does not want it any more.
            del self.router.pump.behind[cursor]
            if cursor in self._named:
                self._tell(cursor, "gone", 0)
            return
        if cursor in self._named or now - since < LOOK_SECONDS or now < self._quiet_until.get(client, 0.0):
            return
        lag = self._lag(cursor)
        if lag:
            if len(self._quiet_until) >= _CLIENTS_MAX:
                self._quiet_until.clear()
            self._quiet_until[client] = now + QUIET_SECONDS
            self._named[cursor] = (client, since)
            self._tell(cursor, "behind", lag)

    def _lag(self, cursor: Cursor) -> int:
        return sum(
            max(self.router.delivered(partition) - position, 0)
            for partition, position in cursor.positions.items()
        )

    def _tell(self, cursor: Cursor, state: str, lag: int) -> None:
        client, since = self._named[cursor]
        if state != "behind":
            del self._named[cursor]
        seconds = round(self.loop.time() - since, 1)
        filter = cursor.follower.filter
        logger.warning(
            "slow: %s, subscribed to %s, is %s: %d records left, %d lost to retention, %.1f s",
            *(client, filter, state, lag, cursor.lost, seconds),
        )
        address = f"{FANLOG}slow/{_NOT_IN_ADDRESSES.sub('_', client)}"
        told = {
            "client": client,
            "filter": filter,
            "state": state,
            "behind": lag,
            "lost": cursor.lost,
            "seconds": seconds,
        }
        self.statistics.tell({address: json.dumps(told, ensure_ascii=False)})
        if state != "behind":
            # Who comes later need not hear of what is over.
            self.statistics.tell({address: None})
