"""Deadlines of many groups on one timer of the loop.

Most deadlines are moved forward, by every heartbeat, and never pass. Moving one is a dict assignment: its
entry in the heap stays where it is, and when its turn comes it is put back to where it belongs now.
"""

import asyncio
import heapq
from collections.abc import Callable, Hashable

Key = Hashable


class Deadlines:
    def __init__(self, loop: asyncio.AbstractEventLoop, passed: Callable[[Key], None]) -> None:
        self.loop = loop
        self._passed = passed
        self._at: dict[Key, int] = {}
        # When to look at a key again; the number keeps keys from being compared.
        self._heap: list[tuple[int, int, Key]] = []
        self._queued: dict[Key, int] = {}
        self._number = 0
        self._handle: asyncio.TimerHandle | None = None
        self._wakes_at = 0
        # The latest deadline that was found to have passed: from then on it is no earlier than that.
        self._reached = 0

    def now_ms(self) -> int:
        return max(int(self.loop.time() * 1000), self._reached)

    def set(self, key: Key, at_ms: int) -> None:
        self._at[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or queued > at_ms:
            self._push(key, at_ms)
            self._arm()

    def clear(self, key: Key) -> None:
        self._at.pop(key, None)

    def close(self) -> None:
        self._at.clear()
        self._heap.clear()
        self._queued.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _push(self, key: Key, at_ms: int) -> None:
        self._number += 1
        self._queued[key] = at_ms
        heapq.heappush(self._heap, (at_ms, self._number, key))

    def _arm(self) -> None:
        if not self._heap:
            return
        first = self._heap[0][0]
        if self._handle is not None:
            if self._wakes_at <= first:
                return
            self._handle.cancel()
        self._wakes_at = first
        self._handle = self.loop.call_at(first / 1000, self._wake)

    def _wake(self) -> None:
        self._handle = None
        # The loop may be a fraction of a millisecond early. Whoever is told and asks for the time must see
        # the deadline behind it too, or nobody acts on it.
        now = self._reached = max(self.now_ms(), self._wakes_at)
        while self._heap and self._heap[0][0] <= now:
            queued, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != queued:
                continue
            del self._queued[key]
            at = self._at.get(key)
            if at is None:
                continue
            if at > now:
                self._push(key, at)
                continue
            del self._at[key]
            self._passed(key)
        self._arm()
