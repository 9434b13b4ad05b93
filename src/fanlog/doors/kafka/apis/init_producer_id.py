"""InitProducerId, versions 0-4: a number for an idempotent producer.

From version 3 on a producer that lost its place asks for its next epoch (KIP-360): it gets a new number
instead, which serves the same end and needs no memory of the old one.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from fanlog.doors.kafka.errors import EXPECTED, code_of
from fanlog.doors.kafka.registry import Answer, Context, api


@api(22, 0, 4)
async def init_producer_id(context: Context, request: Any) -> Answer:
    if request.transactional_id is not None:
        return {"error_code": int(ErrorCode.invalid_request), "producer_id": -1, "producer_epoch": -1}
    try:
        number = await context.broker.catalog.producer_id()
    except EXPECTED as error:
        return {"error_code": code_of(error), "producer_id": -1, "producer_epoch": -1}
    return {"error_code": 0, "producer_id": number, "producer_epoch": 0}
