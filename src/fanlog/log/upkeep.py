"""What the log needs now and then: retention, compaction, checkpoints, forgetting idle producers.

One round at a time, every `log.cleanup_interval_ms`. Deciding is cheap and done on the loop; files are
removed in a thread, and compaction, which reads and writes whole segments, runs in a process of its own.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from fanlog.config import Log
from fanlog.log import compaction
from fanlog.log.commit import Committer
from fanlog.log.partition import Partition
from fanlog.log.segment import Segment

logger = logging.getLogger(__name__)


class Upkeep:
    def __init__(
        self,
        partitions: Callable[[], Iterable[Partition]],
        committer: Committer,
        settings: Log,
        also: Callable[[int], None],
    ) -> None:
        self.partitions = partitions
        self.committer = committer
        self.settings = settings
        # What others want done at the same pace; it is given the time.
        self.also = also
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self.settings.cleanup_interval_ms / 1000)
            for partition in tuple(self.partitions()):
                try:
                    await self._tend(partition)
                except OSError as error:
                    logger.error("%s-%d: %s", partition.topic, partition.number, error)
            self.also(self.committer.clock_ms())

    async def _tend(self, partition: Partition) -> None:
        now = self.committer.clock_ms()
        partition.producers.expire(now - self.settings.producer_expiry_ms)
        if partition.failure is not None:
            return
        if partition.config.delete:
            await self._retain(partition, now)
        if partition.config.compact:
            await self._compact(partition, now)
        if partition.bytes_since_checkpoint:
            await asyncio.wait([self.committer.checkpoint(partition)])

    async def _retain(self, partition: Partition, now: int) -> None:
        active = partition.active
        if _expired(active, partition, now):
            await self.committer.roll(partition)
        keep_from = 0
        size = partition.size
        for number, segment in enumerate(partition.segments[:-1]):
            too_much = 0 <= partition.config.retention_bytes <= size - segment.size
            if not too_much and not _expired(segment, partition, now):
                break
            size -= segment.size
            keep_from = number + 1
        if keep_from:
            start = max(partition.segments[keep_from].base_offset, partition.log_start)
            await self.move_start(partition, start)

    async def move_start(self, partition: Partition, offset: int) -> None:
        """Removes what lies before `offset`: noted first, so that it does not come back."""
        dropped = partition.start_at(offset)
        note, segment = partition.checkpoint(), partition.active
        await asyncio.to_thread(partition.checkpoint_now, note, segment)
        await asyncio.to_thread(_remove, partition, dropped)
        if dropped:
            logger.info(
                "%s-%d: %d segments removed, it begins at %d",
                partition.topic,
                partition.number,
                len(dropped),
                offset,
            )

    async def _compact(self, partition: Partition, now: int) -> None:
        order = compaction.plan(partition, now)
        if order is None:
            return
        files = await compaction.in_process(order)
        if partition.failure is None:
            await asyncio.to_thread(compaction.put_in_place, partition, files)
            compaction.adopt(partition, files)


def _expired(segment: Segment, partition: Partition, now: int) -> bool:
    limit = partition.config.retention_ms
    return limit >= 0 and segment.size > 0 and segment.index.max_timestamp < now - limit


def _remove(partition: Partition, segments: list[Segment]) -> None:
    for segment in segments:
        partition.disk.remove(segment.path)
        partition.disk.remove(segment.index_path)
