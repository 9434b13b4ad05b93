"""DescribeLogDirs, versions 1-4: how much each partition takes, and what is left."""

import asyncio
import shutil
from typing import Any

from fanlog.cluster.catalog import Topic
from fanlog.doors.kafka.registry import Answer, Context, api


@api(35, 1, 4)
async def describe_log_dirs(context: Context, request: Any) -> Answer:
    catalog = context.broker.catalog
    if request.topics is None:
        chosen = [(topic, None) for topic in catalog.topics.values()]
    else:
        chosen = [
            (catalog.topics[item.topic], item.partitions)
            for item in request.topics
            if item.topic in catalog.topics
        ]
    usage = await asyncio.to_thread(shutil.disk_usage, context.broker.settings.data)
    return {
        "results": [
            {
                "error_code": 0,
                "log_dir": str(context.broker.settings.data.absolute()),
                "topics": [_described(topic, numbers) for topic, numbers in chosen],
                "total_bytes": usage.total,
                "usable_bytes": usage.free,
            }
        ]
    }


def _described(topic: Topic, numbers: list[int] | None) -> dict[str, Any]:
    return {
        "name": topic.name,
        "partitions": [
            {"partition_index": partition.number, "partition_size": partition.size, "offset_lag": 0}
            for partition in topic.partitions
            if numbers is None or partition.number in numbers
        ],
    }
