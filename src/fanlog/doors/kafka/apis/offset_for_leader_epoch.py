"""OffsetForLeaderEpoch, versions 2-4 (KIP-101): where the records of an epoch end."""

from typing import Any

from kio.schema.errors import ErrorCode

from fanlog.doors.kafka.registry import Answer, Context, api
from fanlog.log.partition import LEADER_EPOCH


@api(23, 2, 4)
async def offset_for_leader_epoch(context: Context, request: Any) -> Answer:
    topics = []
    for topic in request.topics or ():
        answers = []
        for item in topic.partitions or ():
            partition = context.broker.catalog.partition(topic.topic, item.partition)
            answer: dict[str, Any] = {"partition": item.partition, "error_code": 0}
            if partition is None:
                answer["error_code"] = int(ErrorCode.unknown_topic_or_partition)
            elif item.current_leader_epoch > LEADER_EPOCH:
                answer["error_code"] = int(ErrorCode.unknown_leader_epoch)
            elif item.leader_epoch == LEADER_EPOCH:
                answer |= {"leader_epoch": LEADER_EPOCH, "end_offset": partition.high_watermark}
            answers.append(answer)
        topics.append({"topic": topic.topic, "partitions": answers})
    return {"topics": topics}
