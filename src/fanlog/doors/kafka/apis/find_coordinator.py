"""FindCoordinator: which broker keeps a group.

Version 1 added the type of the key, 4 several keys at once (KIP-699). This broker keeps every group itself.
Transactions (key type 1) are not there yet; the code says so in a way that clients do not try again for ever.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from fanlog.doors.kafka.registry import Answer, Context, api

_GROUP = 0


@api(10, 0, 4)
async def find_coordinator(context: Context, request: Any) -> Answer:
    key_type = getattr(request, "key_type", _GROUP)
    if context.version < 4:
        return _find(context, request.key, key_type)
    return {"coordinators": [_find(context, key, key_type) for key in request.coordinator_keys or ()]}


def _find(context: Context, key: str, key_type: int) -> Answer:
    if key_type != _GROUP:
        return {
            "key": key,
            "error_code": int(ErrorCode.transactional_id_authorization_failed),
            "error_message": "this broker coordinates groups; it has no transactions yet",
            "node_id": -1,
            "host": "",
            "port": -1,
        }
    host, port = context.broker.advertised(context.connection.tls)
    return {
        "key": key,
        "error_code": 0,
        "node_id": context.broker.settings.node_id,
        "host": host,
        "port": port,
    }
