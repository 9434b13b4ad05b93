"""Produce, versions 3-9: a batch per partition, kept as it came.

Version 3 is the first with record batches of magic 2. 0 is advertised because librdkafka before 2.11
switches compression off where it is not (KAFKA-18659), as Kafka 4 does. Who really sends versions 0 to 2
is told that their message format is not supported.

acks 1 and -1 (all) mean the same here: the level of the topic. With acks 0 there is no answer.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

from kio.schema.errors import ErrorCode

from fanlog.cluster.catalog import INTERNAL_PREFIX
from fanlog.doors.kafka.connection import Slot
from fanlog.doors.kafka.errors import code_of
from fanlog.doors.kafka.layouts import response_layout
from fanlog.doors.kafka.registry import Context, direct_api
from fanlog.log.commit import now_ms
from fanlog.log.errors import LogError
from fanlog.log.partition import UNPACKED_BYTES_MAX, Partition
from fanlog.wire import compression, messages, records
from fanlog.wire.records import BadChecksum, BatchError, Header

_KEY = 0
_OLDEST_SUPPORTED = 3
# Compressed batches of more than this are unpacked off the loop.
_UNPACK_INLINE_BYTES_MAX = 16_384
_FORBIDDEN_FLAGS = records.TRANSACTIONAL_FLAG | records.CONTROL_FLAG


class Part:
    """One partition's share of a request, and what became of it."""

    __slots__ = ("answer", "batch", "error", "header", "partition")

    def __init__(self, partition: Partition | None, number: int, batch: bytes) -> None:
        self.partition = partition
        self.batch = batch
        self.header: Header | None = None
        self.error = 0
        self.answer: dict[str, Any] = {"index": number, "error_code": 0, "base_offset": -1}

    def check(self) -> None:
        """Finds out whether the batch may be stored. May run in any thread."""
        partition = self.partition
        if partition is None:
            self.refuse(ErrorCode.unknown_topic_or_partition, "there is no such topic or partition")
        elif partition.topic.startswith(INTERNAL_PREFIX):
            self.refuse(ErrorCode.invalid_topic_exception, "this topic is the broker's own")
        elif len(self.batch) > partition.config.batch_bytes_max:
            limit = partition.config.batch_bytes_max
            self.refuse(
                ErrorCode.message_too_large, f"a batch of {len(self.batch)} bytes, the limit is {limit}"
            )
        else:
            try:
                self.header = checked(self.batch, partition.config.compact)
            except BadChecksum as error:
                self.refuse(ErrorCode.corrupt_message, str(error))
            except BatchError as error:
                self.refuse(ErrorCode.invalid_record, str(error))

    def refuse(self, code: int, message: str) -> None:
        self.answer["error_code"] = int(code)
        self.answer["error_message"] = message


def checked(batch: bytes, keys_needed: bool) -> Header:
    """The header of a batch that holds what it says, record by record."""
    header = records.check_header(batch)
    if header.attributes & _FORBIDDEN_FLAGS:
        raise BatchError("transactions are not supported")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise BatchError("an idempotent producer without a sequence")
    if header.compression == compression.NONE:
        records.check_records(batch, records.HEADER_BYTES, header.record_count, keys_needed)
    else:
        packed = memoryview(batch)[records.HEADER_BYTES :]
        body = compression.decompress(header.compression, packed, UNPACKED_BYTES_MAX)
        records.check_records(body, 0, header.record_count, keys_needed)
    return header


class Produce:
    """One request: answered when the last of its batches is committed or refused."""

    __slots__ = ("acks", "context", "parts", "slot", "topics", "waiting")

    def __init__(self, context: Context, request: Any, slot: Slot) -> None:
        self.context = context
        self.slot = slot
        self.acks = request.acks
        self.parts: list[Part] = []
        self.topics: list[dict[str, Any]] = []
        catalog = context.broker.catalog
        for topic in request.topic_data or ():
            answers = []
            for data in topic.partition_data or ():
                part = Part(catalog.partition(topic.name, data.index), data.index, data.records or b"")
                self.parts.append(part)
                answers.append(part.answer)
            self.topics.append({"name": topic.name, "partition_responses": answers})
        self.waiting = len(self.parts) + 1

    def needs_unpacking(self) -> bool:
        return any(
            len(part.batch) > _UNPACK_INLINE_BYTES_MAX and part.batch[22] & records.COMPRESSION_MASK
            for part in self.parts
        )

    def check(self) -> None:
        for part in self.parts:
            part.check()

    def append(self) -> None:
        now = now_ms()
        for part in self.parts:
            if part.header is None or part.partition is None:
                self._done()
                continue
            try:
                part.answer["base_offset"] = part.partition.append(
                    part.batch, part.header, now, _Waiter(self, part).done
                )
                part.answer["log_start_offset"] = part.partition.log_start
                if part.partition.config.append_time:
                    part.answer["log_append_time"] = now
            except LogError as error:
                part.refuse(code_of(error), str(error))
                self._done()
        self._done()

    def _done(self) -> None:
        self.waiting -= 1
        if self.waiting:
            return
        if self.acks == 0:
            if any(part.answer["error_code"] for part in self.parts):
                # Nobody reads an answer: closing is how the client learns that it has to look again.
                self.slot.connection.abort("a publish without acknowledgement could not be stored")
            self.slot.skip()
            return
        body = bytearray()
        messages.encode(body, {"responses": self.topics}, response_layout(_KEY, self.context.version))
        self.slot.reply(body)


class _Waiter:
    __slots__ = ("part", "produce")

    def __init__(self, produce: Produce, part: Part) -> None:
        self.produce = produce
        self.part = part

    def done(self, error: LogError | None) -> None:
        if error is not None:
            self.part.refuse(code_of(error), str(error))
            self.part.answer["base_offset"] = -1
        self.produce._done()


@direct_api(_KEY, 0, 9)
def produce(context: Context, request: Any, slot: Slot) -> Awaitable[None] | None:
    work = Produce(context, request, slot)
    if context.version < _OLDEST_SUPPORTED:
        for part in work.parts:
            part.refuse(ErrorCode.unsupported_for_message_format, "only record batches of magic 2 are taken")
        work.append()
    elif request.acks not in (-1, 0, 1):
        for part in work.parts:
            part.refuse(ErrorCode.invalid_required_acks, f"acks is -1, 0 or 1, not {request.acks}")
        work.append()
    elif request.transactional_id is not None:
        for part in work.parts:
            part.refuse(ErrorCode.invalid_request, "transactions are not supported")
        work.append()
    elif work.needs_unpacking():
        return _unpack_and_append(work)
    else:
        work.check()
        work.append()
    return None


async def _unpack_and_append(work: Produce) -> None:
    await asyncio.to_thread(work.check)
    work.append()
