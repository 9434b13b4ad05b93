"""JoinGroup: becomes a member of a group, or says that one still is.

Version 1 added the rebalance time-out, 4 asks members to come back with the id they are given (KIP-394), 5
brought static members (KIP-345), 7 the type of the protocol in the answer, 9 a leader that need not assign
(KIP-814).
"""

from typing import Any

from kio.schema.errors import ErrorCode

from fanlog.doors.kafka.registry import Answer, Context, api
from fanlog.state.groups.model import Join


@api(11, 0, 9)
async def join_group(context: Context, request: Any) -> Answer:
    event = Join(
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        client_id=context.client_id,
        client_host=context.client_host,
        session_timeout_ms=request.session_timeout,
        rebalance_timeout_ms=getattr(request, "rebalance_timeout", request.session_timeout),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in request.protocols or ()),
        id_required=context.version >= 4,
        knows_skip=context.version >= 9,
    )
    joined = await context.broker.groups.join(request.group_id, event)
    error = joined.error
    if error is ErrorCode.group_max_size_reached and context.version < 4:
        error = ErrorCode.coordinator_not_available
    # Null is only known since version 7.
    protocol = joined.protocol if context.version >= 7 else joined.protocol or ""
    return {
        "error_code": int(error),
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": protocol,
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {"member_id": each.id, "group_instance_id": each.instance_id, "metadata": each.metadata}
            for each in joined.members
        ],
    }
