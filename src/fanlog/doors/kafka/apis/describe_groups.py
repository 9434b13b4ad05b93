"""DescribeGroups: who is in a group, and what each member reads.

Version 4 added instance ids. A group that does not exist is described as Dead.
"""

from typing import Any

from fanlog.doors.kafka.registry import Answer, Context, api
from fanlog.state.groups.model import State


@api(15, 0, 5)
async def describe_groups(context: Context, request: Any) -> Answer:
    return {"groups": [_describe(context, id) for id in request.groups or ()]}


def _describe(context: Context, id: str) -> Answer:
    group = context.broker.groups.describe(id)
    # While the group is rebalancing, what members said and got before means nothing any more.
    stable = group.state is State.STABLE
    return {
        "error_code": 0,
        "group_id": id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol if stable else "",
        "members": [
            {
                "member_id": member.id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol) if stable else b"",
                "member_assignment": member.assignment if stable else b"",
            }
            for member in group.members
        ],
    }
