"""DeleteGroups: removes groups without members, and all that they have committed."""

from typing import Any

from fanlog.doors.kafka.registry import Answer, Context, api


@api(42, 0, 2)
async def delete_groups(context: Context, request: Any) -> Answer:
    results = []
    for id in request.groups_names or ():
        error = await context.broker.groups.delete_group(id)
        results.append({"group_id": id, "error_code": int(error)})
    return {"results": results}
