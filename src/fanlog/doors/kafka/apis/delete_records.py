"""DeleteRecords, versions 0-2: moves the start of a log. Offset -1 stands for its end."""

from typing import Any

from kio.schema.errors import ErrorCode

from fanlog.doors.kafka.errors import EXPECTED, code_of
from fanlog.doors.kafka.registry import Answer, Context, api


@api(21, 0, 2)
async def delete_records(context: Context, request: Any) -> Answer:
    topics = []
    for topic in request.topics or ():
        answers = [await _delete(context, topic.name, item) for item in topic.partitions or ()]
        topics.append({"name": topic.name, "partitions": answers})
    return {"topics": topics}


async def _delete(context: Context, topic: str, item: Any) -> dict[str, Any]:
    answer = {"partition_index": item.partition_index, "low_watermark": -1, "error_code": 0}
    partition = context.broker.catalog.partition(topic, item.partition_index)
    if partition is None:
        answer["error_code"] = int(ErrorCode.unknown_topic_or_partition)
    elif context.broker.catalog.topics[topic].internal or not partition.config.delete:
        answer["error_code"] = int(ErrorCode.policy_violation)
    else:
        offset = partition.high_watermark if item.offset == -1 else item.offset
        try:
            if offset > partition.log_start or not 0 <= offset <= partition.high_watermark:
                await context.broker.upkeep.move_start(partition, offset)
            answer["low_watermark"] = partition.log_start
        except EXPECTED as error:
            answer["error_code"] = code_of(error)
    return answer
