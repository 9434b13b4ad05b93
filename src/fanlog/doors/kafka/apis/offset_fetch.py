"""OffsetFetch: where a group goes on reading. What it has not committed is at -1.

From version 2 no topics (null) means all that the group has; 5 added the leader's epoch, 7 `require_stable`,
which matters only where transactions commit offsets, 8 several groups at once (KIP-709).
"""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from fanlog.doors.kafka.registry import Answer, Context, api
from fanlog.state.groups import Committed, Place

_NOTHING = Committed(-1, -1, "", 0)


@api(9, 1, 8)
async def offset_fetch(context: Context, request: Any) -> Answer:
    if context.version >= 8:
        return {"groups": [_fetch(context, group) for group in request.groups or ()]}
    return _fetch(context, request)


def _fetch(context: Context, wanted: Any) -> Answer:
    committed = context.broker.groups.fetch_offsets(wanted.group_id)
    if wanted.topics is None:
        topics = [
            _topic(name, [number for _, number in places], committed)
            for name, places in groupby(sorted(committed), lambda place: place[0])
        ]
    else:
        topics = [_topic(each.name, each.partition_indexes or [], committed) for each in wanted.topics]
    return {"group_id": wanted.group_id, "topics": topics, "error_code": 0}


def _topic(name: str, numbers: list[int], committed: Mapping[Place, Committed]) -> Answer:
    return {
        "name": name,
        "partitions": [_partition(number, committed.get((name, number), _NOTHING)) for number in numbers],
    }


def _partition(number: int, found: Committed) -> Answer:
    return {
        "partition_index": number,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": 0,
    }
