"""SyncGroup: the leader hands in the assignment, everybody gets their part of it.

Version 3 brought static members (KIP-345), 5 the protocol in request and answer (KIP-559).
"""

from typing import Any

from fanlog.doors.kafka.registry import Answer, Context, api
from fanlog.state.groups.model import Sync


@api(14, 0, 5)
async def sync_group(context: Context, request: Any) -> Answer:
    event = Sync(
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
        protocol_type=getattr(request, "protocol_type", None),
        protocol=getattr(request, "protocol_name", None),
        assignments={each.member_id: each.assignment for each in request.assignments or ()},
    )
    synced = await context.broker.groups.sync(request.group_id, event)
    return {
        "error_code": int(synced.error),
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }
