"""OffsetDelete: a group forgets how far it was in some partitions (KIP-496).

Refused for topics that its members subscribe to: they would write them again.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from fanlog.doors.kafka.registry import Answer, Context, api


@api(47, 0, 0)
async def offset_delete(context: Context, request: Any) -> Answer:
    topics = request.topics or ()
    places = [(topic.name, each.partition_index) for topic in topics for each in topic.partitions or ()]
    error, errors = await context.broker.groups.delete_offsets(request.group_id, places)
    if error is not ErrorCode.none:
        return {"error_code": int(error)}
    return {
        "error_code": 0,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "error_code": int(errors[topic.name, each.partition_index]),
                    }
                    for each in topic.partitions or ()
                ],
            }
            for topic in topics
        ],
    }
