"""LeaveGroup: members go, by themselves or sent by an operator.

Version 3 takes several at once, by member id or by instance id (KIP-345); before, there was one.
"""

from typing import Any

from fanlog.doors.kafka.registry import Answer, Context, api
from fanlog.state.groups.model import Leave


@api(13, 0, 5)
async def leave_group(context: Context, request: Any) -> Answer:
    if context.version < 3:
        [error] = await context.broker.groups.leave(request.group_id, Leave([(request.member_id, None)]))
        return {"error_code": int(error)}
    leaving = [(each.member_id, each.group_instance_id) for each in request.members or ()]
    errors = await context.broker.groups.leave(request.group_id, Leave(leaving))
    return {
        "error_code": 0,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": int(error)}
            for (member_id, instance_id), error in zip(leaving, errors, strict=True)
        ],
    }
