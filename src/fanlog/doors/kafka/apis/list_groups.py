"""ListGroups: all groups of this broker; from version 4, only those in certain states (KIP-518)."""

from typing import Any

from fanlog.doors.kafka.registry import Answer, Context, api


@api(16, 0, 4)
async def list_groups(context: Context, request: Any) -> Answer:
    states = {state.lower() for state in getattr(request, "states_filter", None) or ()}
    return {
        "error_code": 0,
        "groups": [
            {"group_id": group.id, "protocol_type": group.protocol_type, "group_state": group.state.value}
            for group in context.broker.groups.list_groups()
            if not states or group.state.value.lower() in states
        ],
    }
