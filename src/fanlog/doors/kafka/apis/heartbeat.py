"""Heartbeat: a member lives, and hears whether there is a rebalance. Version 3 brought static members."""

from typing import Any

from fanlog.doors.kafka.registry import Answer, Context, api
from fanlog.state.groups.model import Heartbeat


@api(12, 0, 4)
async def heartbeat(context: Context, request: Any) -> Answer:
    event = Heartbeat(request.member_id, getattr(request, "group_instance_id", None), request.generation_id)
    return {"error_code": int(await context.broker.groups.heartbeat(request.group_id, event))}
