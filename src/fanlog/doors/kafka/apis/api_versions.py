"""ApiVersions: what this door can do. Versions 0-4; computed from the registry."""

import re
from typing import Any

from kio.schema.errors import ErrorCode

from fanlog.doors.kafka.registry import Answer, Context, api

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@api(18, 0, 4)
async def api_versions(context: Context, request: Any) -> Answer:
    if context.version >= 3:
        # KIP-511: names that could not be a metric's label are refused.
        for text in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                return {"error_code": int(ErrorCode.invalid_request)}
    return {
        "error_code": 0,
        "api_keys": [
            {"api_key": entry.key, "min_version": entry.oldest, "max_version": entry.newest}
            for entry in context.connection.door.apis.values()
        ],
    }
