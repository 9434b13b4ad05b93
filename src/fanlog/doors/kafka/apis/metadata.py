"""Metadata, versions 0-12: which brokers there are, which topics, and who leads what.

Version 0 asks for all topics with an empty list, later ones with null. From 4 on the client says whether a
topic may be made; from 10 on it can name topics by id.
"""

import uuid
from typing import Any

from kio.schema.errors import ErrorCode

from fanlog.cluster.catalog import INTERNAL_PREFIX, Topic
from fanlog.doors.kafka.errors import EXPECTED, code_of
from fanlog.doors.kafka.registry import Answer, Context, api
from fanlog.log.partition import LEADER_EPOCH


@api(3, 0, 12)
async def metadata(context: Context, request: Any) -> Answer:
    broker = context.broker
    node = broker.settings.node_id
    host, port = broker.advertised(context.connection.tls)
    everything = request.topics is None or (context.version == 0 and not request.topics)
    if everything:
        topics = [described(topic, node) for topic in list(broker.catalog.topics.values())]
    else:
        make = broker.settings.topics.auto_create and getattr(request, "allow_auto_topic_creation", True)
        topics = [await _look_up(context, item, make) for item in request.topics]
    return {
        "brokers": [{"node_id": node, "host": host, "port": port, "rack": None}],
        "cluster_id": broker.cluster_id,
        "controller_id": node,
        "topics": topics,
    }


async def _look_up(context: Context, item: Any, make: bool) -> dict[str, Any]:
    catalog = context.broker.catalog
    node = context.broker.settings.node_id
    if item.name is None:
        id: uuid.UUID = item.topic_id
        found = catalog.by_id(id)
        if found is None:
            # Before version 12 an answer cannot be without a name, though the question can.
            name = None if context.version >= 12 else ""
            return {"error_code": int(ErrorCode.unknown_topic_id), "name": name, "topic_id": id}
        return described(found, node)
    found = catalog.topics.get(item.name)
    if found is None and make and not item.name.startswith(INTERNAL_PREFIX):
        try:
            found = await catalog.ensure(item.name, -1, {})
        except EXPECTED as error:
            return {"error_code": code_of(error), "name": item.name}
    if found is None:
        return {"error_code": int(ErrorCode.unknown_topic_or_partition), "name": item.name}
    return described(found, node)


def described(topic: Topic, node: int) -> dict[str, Any]:
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.internal,
        "partitions": [
            {
                "error_code": 0,
                "partition_index": partition.number,
                "leader_id": node,
                "leader_epoch": LEADER_EPOCH,
                "replica_nodes": [node],
                "isr_nodes": [node],
            }
            for partition in topic.partitions
        ],
    }
