"""ListOffsets, versions 1-7: where a log begins, where it ends, and what is where in time.

The timestamps -1, -2 and (from version 7, KIP-734) -3 stand for the end, the beginning and the youngest
record.
"""

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from fanlog.doors.kafka.errors import EXPECTED, code_of
from fanlog.doors.kafka.registry import Answer, Context, api
from fanlog.log.partition import LEADER_EPOCH, Partition
from fanlog.wire.records import BatchError

_LATEST = -1
_EARLIEST = -2
_YOUNGEST = -3


@api(2, 1, 7)
async def list_offsets(context: Context, request: Any) -> Answer:
    topics = []
    for topic in request.topics or ():
        answers = []
        for item in topic.partitions or ():
            partition = context.broker.catalog.partition(topic.name, item.partition_index)
            answers.append({"partition_index": item.partition_index, **await _look_up(partition, item)})
        topics.append({"name": topic.name, "partitions": answers})
    return {"topics": topics}


async def _look_up(partition: Partition | None, item: Any) -> dict[str, Any]:
    if partition is None:
        return {"error_code": int(ErrorCode.unknown_topic_or_partition)}
    if getattr(item, "current_leader_epoch", -1) > LEADER_EPOCH:
        return {"error_code": int(ErrorCode.unknown_leader_epoch)}
    if item.timestamp == _LATEST:
        found: tuple[int, int] | None = (partition.high_watermark, -1)
    elif item.timestamp == _EARLIEST:
        found = (partition.log_start, -1)
    elif item.timestamp < _YOUNGEST:
        return {"error_code": int(ErrorCode.unsupported_version)}
    else:
        try:
            if item.timestamp == _YOUNGEST:
                found = await asyncio.to_thread(partition.find_latest_time)
            else:
                found = await asyncio.to_thread(partition.find_time, item.timestamp)
        except BatchError:
            return {"error_code": int(ErrorCode.corrupt_message)}
        except EXPECTED as error:
            return {"error_code": code_of(error)}
    if found is None:
        return {"error_code": 0}
    return {"error_code": 0, "offset": found[0], "timestamp": found[1], "leader_epoch": LEADER_EPOCH}
