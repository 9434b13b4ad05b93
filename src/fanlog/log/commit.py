"""Commits what partitions have taken, once per turn of the loop.

All that arrives in one turn at a partition is one write. Level `os` is written on the spot, which is a copy
into the page cache; level `disk` goes to a few threads that write and fdatasync, and a partition goes there
again only when it is back, with all that has gathered meanwhile. Level `memory` is acknowledged in the turn
and written behind, every few milliseconds.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from fanlog.config import Log
from fanlog.log.entries import Round
from fanlog.log.partition import Partition

logger = logging.getLogger(__name__)

# More than this is not written on the loop's thread.
INLINE_BYTES_MAX = 256 << 10
# Level `memory` acknowledges ahead of the disk by no more than this; then it waits.
AHEAD_BYTES_MAX = 64 << 20

Job = tuple[Partition, Round, bool]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Committer:
    def __init__(self, settings: Log, clock_ms: Callable[[], int] = now_ms) -> None:
        self.loop = asyncio.get_running_loop()
        self.settings = settings
        self.clock_ms = clock_ms
        self.executor = ThreadPoolExecutor(settings.sync_threads, thread_name_prefix="fanlog-disk")
        self.appends = 0
        self.appended_bytes = 0
        self.syncs = 0
        self._dirty: dict[Partition, None] = {}
        self._turning = False
        # Partitions that wait for a thread, and how many threads are at work.
        self._queued: dict[Partition, None] = {}
        self._running = 0
        self._behind: dict[Partition, None] = {}
        self._rolled: dict[Partition, asyncio.Future[None]] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def schedule(self, partition: Partition) -> None:
        """`partition` has something pending: it is committed with this turn of the loop."""
        self._dirty[partition] = None
        if not self._turning:
            self._turning = True
            self._idle.clear()
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = False
        dirty, self._dirty = self._dirty, {}
        for partition in dirty:
            if partition.open:
                partition.close_batch(self.clock_ms())
            if not partition.pending:
                continue
            if partition.config.durability == "memory":
                self._commit_memory(partition)
            elif partition.in_flight is None:
                self._commit(partition)
        if self._queued:
            self._dispatch()
        self._rest()

    def _commit(self, partition: Partition) -> None:
        now = self.clock_ms()
        size = partition.pending_bytes
        if partition.config.durability == "disk" or size > INLINE_BYTES_MAX or partition.must_roll(size, now):
            self._queued[partition] = None
            return
        round = partition.take()
        partition.store(round, False)
        self._settle(partition, round)

    def _commit_memory(self, partition: Partition) -> None:
        if partition.pending_bytes <= AHEAD_BYTES_MAX:
            partition.commit_early()
        if not self._behind:
            self.loop.call_later(self.settings.memory_flush_ms / 1000, self._flush_behind)
        self._behind[partition] = None

    def _flush_behind(self) -> None:
        behind, self._behind = self._behind, {}
        for partition in behind:
            if partition.pending and partition.in_flight is None:
                self._queued[partition] = None
            elif partition.pending:
                self._behind[partition] = None
        if self._behind:
            self.loop.call_later(self.settings.memory_flush_ms / 1000, self._flush_behind)
        self._dispatch()
        self._rest()

    def _dispatch(self) -> None:
        """Gives every free thread its share of the partitions that wait."""
        while self._queued and self._running < self.settings.sync_threads:
            free = self.settings.sync_threads - self._running
            share = -(-len(self._queued) // free)
            chosen = list(islice(self._queued, share))
            jobs: list[Job] = []
            now = self.clock_ms()
            for partition in chosen:
                del self._queued[partition]
                if partition.in_flight is None and partition.pending:
                    roll = partition.must_roll(partition.pending_bytes, now)
                    jobs.append((partition, partition.take(), roll))
            if jobs:
                self._send(jobs)

    def _send(self, jobs: list[Job]) -> None:
        self._running += 1
        self._idle.clear()
        self.executor.submit(self._work, jobs)

    def _work(self, jobs: list[Job]) -> None:
        for partition, round, roll in jobs:
            partition.store(round, roll)
        self.loop.call_soon_threadsafe(self._worked, jobs)

    def _worked(self, jobs: list[Job]) -> None:
        self._running -= 1
        for partition, round, roll in jobs:
            self.syncs += round.sync + roll
            self._settle(partition, round)
            rolled = self._rolled.pop(partition, None)
            if rolled is not None and not rolled.done():
                rolled.set_result(None)
            if partition.pending:
                self.schedule(partition)
        self._dispatch()
        self._rest()

    def _settle(self, partition: Partition, round: Round) -> None:
        if round.error is None:
            self.appends += len(round.entries)
            self.appended_bytes += round.size
        else:
            logger.error("%s-%d: %s", partition.topic, partition.number, round.error)
        partition.settle(round, self.clock_ms())
        if partition.stalled is not None and partition.failure is None:
            self._commit_memory(partition)
        if round.rolled is not None or partition.bytes_since_checkpoint >= self.settings.checkpoint_bytes:
            self.checkpoint(partition)

    async def roll(self, partition: Partition) -> None:
        """Seals the active segment although nothing new has come, so that retention can remove it."""
        if partition.in_flight is not None or partition.pending or not partition.active.size:
            return
        self._rolled[partition] = self.loop.create_future()
        self._send([(partition, partition.take(), True)])
        await self._rolled[partition]

    def checkpoint(self, partition: Partition) -> "asyncio.Future[None]":
        """Notes, in a thread, that what is stored is durable."""
        note, segment = partition.checkpoint(), partition.active
        self.syncs += 1
        future = self.loop.run_in_executor(self.executor, partition.checkpoint_now, note, segment)
        future.add_done_callback(lambda done: self._checkpointed(partition, done))
        return future

    def _checkpointed(self, partition: Partition, done: "asyncio.Future[None]") -> None:
        error = done.exception() if not done.cancelled() else None
        if error is not None:
            # Not noted only means that recovery reads more; but a failed sync may have taken pages along.
            logger.error("%s-%d: no checkpoint: %s", partition.topic, partition.number, error)
            partition.distrust()

    def _rest(self) -> None:
        if not (self._dirty or self._queued or self._running or self._behind):
            self._idle.set()

    async def drain(self) -> None:
        """Waits until everything that was taken is committed or refused."""
        await self._idle.wait()

    async def close(self) -> None:
        await self.drain()
        await asyncio.to_thread(self.executor.shutdown)
