"""OffsetCommit: a group notes how far it has come. Answered when the log has it.

Versions 2 to 4 carry a retention time, which the broker's own setting overrides; 6 added the leader's epoch,
7 static members. A request without a member (generation -1) is somebody who assigns partitions by himself.
"""

from typing import Any

from fanlog.doors.kafka.registry import Answer, Context, api
from fanlog.state.groups import Committed
from fanlog.state.groups.model import Commit


@api(8, 2, 8)
async def offset_commit(context: Context, request: Any) -> Answer:
    groups = context.broker.groups
    now = groups.clock_ms()
    topics = request.topics or ()
    offsets = {
        (topic.name, each.partition_index): Committed(
            each.committed_offset,
            getattr(each, "committed_leader_epoch", -1),
            each.committed_metadata or "",
            now,
        )
        for topic in topics
        for each in topic.partitions or ()
    }
    event = Commit(
        request.member_id, getattr(request, "group_instance_id", None), request.generation_id_or_member_epoch
    )
    errors = await groups.commit(request.group_id, event, offsets)
    return {
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
        ]
    }
