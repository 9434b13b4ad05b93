"""CreateTopics 2-7, DeleteTopics 1-6, CreatePartitions 0-3."""

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from fanlog.cluster.catalog import INTERNAL_PREFIX, InvalidPartitions, InvalidTopic, Topic
from fanlog.doors.kafka.apis.configs import described_config
from fanlog.doors.kafka.errors import EXPECTED, code_of
from fanlog.doors.kafka.registry import Answer, Context, api


@api(19, 2, 7)
async def create_topics(context: Context, request: Any) -> Answer:
    times_named = Counter(item.name for item in request.topics or ())
    answers = []
    for item in request.topics or ():
        if times_named[item.name] > 1:
            answers.append(_refused(item.name, ErrorCode.invalid_request, "the topic is named twice"))
        else:
            answers.append(await _create(context, item, request.validate_only))
    return {"topics": answers}


async def _create(context: Context, item: Any, validate_only: bool) -> dict[str, Any]:
    node = context.broker.settings.node_id
    assignments = item.assignments or []
    if any(one.broker_ids != [node] for one in assignments):
        text = f"there is one broker, {node}"
        return _refused(item.name, ErrorCode.invalid_replica_assignment, text)
    if not assignments and item.replication_factor not in (-1, 1):
        text = f"replication factor {item.replication_factor} with one broker"
        return _refused(item.name, ErrorCode.invalid_replication_factor, text)
    partitions = len(assignments) or item.num_partitions
    overrides = {one.name: one.value for one in item.configs or () if one.value is not None}
    catalog = context.broker.catalog
    try:
        if item.name.startswith(INTERNAL_PREFIX):
            raise InvalidTopic("names that begin with __ are the broker's own")
        if validate_only:
            count = catalog.settings.topics.partitions if partitions == -1 else partitions
            catalog.check(item.name, count, overrides)
            return {"name": item.name, "error_code": 0, "num_partitions": count, "replication_factor": 1}
        topic = await catalog.create(item.name, partitions, overrides)
    except EXPECTED as error:
        return _refused(item.name, code_of(error), str(error))
    return {
        "name": item.name,
        "topic_id": topic.id,
        "error_code": 0,
        "num_partitions": len(topic.partitions),
        "replication_factor": 1,
        "configs": described_config(topic.config, None),
    }


def _refused(name: str, code: int, text: str) -> dict[str, Any]:
    return {"name": name, "error_code": int(code), "error_message": text}


@api(20, 1, 6)
async def delete_topics(context: Context, request: Any) -> Answer:
    catalog = context.broker.catalog
    answers: list[dict[str, Any]] = []
    if context.version < 6:
        for name in request.topic_names or ():
            answers.append(await _delete(context, name, catalog.topics.get(name)))
    else:
        for item in request.topics or ():
            if item.name is not None:
                answers.append(await _delete(context, item.name, catalog.topics.get(item.name)))
                continue
            topic = catalog.by_id(item.topic_id)
            if topic is None:
                answers.append({"topic_id": item.topic_id, "error_code": int(ErrorCode.unknown_topic_id)})
            else:
                answers.append(await _delete(context, topic.name, topic))
    return {"responses": answers}


async def _delete(context: Context, name: str, topic: Topic | None) -> dict[str, Any]:
    try:
        if name.startswith(INTERNAL_PREFIX):
            raise InvalidTopic("names that begin with __ are the broker's own")
        await context.broker.delete_topic(name)
    except EXPECTED as error:
        return _refused(name, code_of(error), str(error))
    return {"name": name, "topic_id": topic.id if topic else None, "error_code": 0}


@api(37, 0, 3)
async def create_partitions(context: Context, request: Any) -> Answer:
    catalog = context.broker.catalog
    node = context.broker.settings.node_id
    answers = []
    for item in request.topics or ():
        try:
            topic = catalog[item.name]
            if topic.internal:
                raise InvalidTopic("names that begin with __ are the broker's own")
            if any(one.broker_ids != [node] for one in item.assignments or ()):
                raise InvalidPartitions(f"there is one broker, {node}")
            if not request.validate_only:
                await catalog.grow(item.name, item.count)
            elif item.count <= len(topic.partitions):
                raise InvalidPartitions(f"topic {item.name} has {len(topic.partitions)} partitions already")
        except EXPECTED as error:
            answers.append(_refused(item.name, code_of(error), str(error)))
        else:
            answers.append({"name": item.name, "error_code": 0})
    return {"results": answers}
