"""DescribeConfigs 1-4, AlterConfigs 0-2, IncrementalAlterConfigs 0-1.

A topic's settings can be changed; a broker's can only be looked at here, since they come from its
configuration file, its environment and its command line.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from fanlog import config as settings
from fanlog.cluster.catalog import InvalidTopic
from fanlog.doors.kafka.errors import EXPECTED, code_of
from fanlog.doors.kafka.registry import Answer, Context, api
from fanlog.log.topic_config import BOOLEAN, INT, OPTIONS, STRING, InvalidTopicConfig, TopicConfig

_TOPIC = 2
_BROKER = 4
# Where a value comes from.
_FROM_TOPIC = 1
_FROM_BROKER = 4
_FROM_DEFAULT = 5
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def described_config(config: TopicConfig, wanted: list[str] | None) -> list[dict[str, Any]]:
    rows = []
    for name, option in OPTIONS.items():
        if wanted is not None and name not in wanted:
            continue
        source = _FROM_TOPIC if name in config.overrides else _FROM_DEFAULT
        value = _text(config.values[name])
        rows.append(
            {
                "name": name,
                "value": value,
                "read_only": False,
                "config_source": source,
                "is_sensitive": False,
                "synonyms": [{"name": name, "value": value, "source": source}],
                "config_type": option.kind,
                "documentation": option.help,
            }
        )
    return rows


def _described_broker(context: Context, wanted: list[str] | None) -> list[dict[str, Any]]:
    kinds = {bool: BOOLEAN, int: INT}
    rows = []
    for name in settings.names():
        if wanted is not None and name.key not in wanted:
            continue
        value: object = context.broker.settings
        for part in name.path:
            value = getattr(value, part)
        rows.append(
            {
                "name": name.key,
                "value": _text(value),
                "read_only": True,
                "config_source": _FROM_DEFAULT if value == name.default else _FROM_BROKER,
                "is_sensitive": False,
                "config_type": kinds.get(name.type, STRING),
                "documentation": name.help,
            }
        )
    return rows


@api(32, 1, 4)
async def describe_configs(context: Context, request: Any) -> Answer:
    results = []
    for resource in request.resources or ():
        result: dict[str, Any] = {
            "error_code": 0,
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
        }
        try:
            result["configs"] = _described(context, resource)
        except EXPECTED as error:
            result |= {"error_code": code_of(error), "error_message": str(error), "configs": []}
        results.append(result)
    return {"results": results}


def _described(context: Context, resource: Any) -> list[dict[str, Any]]:
    wanted = resource.configuration_keys
    if resource.resource_type == _TOPIC:
        return described_config(context.broker.catalog[resource.resource_name].config, wanted)
    if resource.resource_type == _BROKER:
        if resource.resource_name not in ("", str(context.broker.settings.node_id)):
            raise InvalidTopicConfig(f"there is no broker {resource.resource_name} here")
        return _described_broker(context, wanted)
    raise InvalidTopicConfig(f"resources of type {resource.resource_type} have no settings here")


@api(33, 0, 2)
async def alter_configs(context: Context, request: Any) -> Answer:
    answers = []
    for resource in request.resources or ():
        wanted = {item.name: item.value for item in resource.configs or () if item.value is not None}
        answers.append(await _altered(context, resource, wanted, request.validate_only))
    return {"responses": answers}


@api(44, 0, 1)
async def incremental_alter_configs(context: Context, request: Any) -> Answer:
    answers = []
    for resource in request.resources or ():
        topic = context.broker.catalog.topics.get(resource.resource_name)
        overrides = dict(topic.config.overrides) if topic is not None else {}
        try:
            for item in resource.configs or ():
                _apply(overrides, item, topic.config if topic is not None else None)
        except InvalidTopicConfig as error:
            answers.append(_answered(resource, int(ErrorCode.invalid_config), str(error)))
            continue
        answers.append(await _altered(context, resource, overrides, request.validate_only))
    return {"responses": answers}


def _apply(overrides: dict[str, str], item: Any, current: TopicConfig | None) -> None:
    """One operation of an incremental change (KIP-339)."""
    if item.config_operation == _DELETE:
        overrides.pop(item.name, None)
        return
    if item.value is None:
        raise InvalidTopicConfig(f"{item.name}: there is no value to set")
    if item.config_operation == _SET:
        overrides[item.name] = item.value
        return
    if current is None or item.name not in OPTIONS or OPTIONS[item.name].choices == ():
        raise InvalidTopicConfig(f"{item.name} is not a list")
    words = [word for word in str(current.values[item.name]).split(",") if word]
    for word in item.value.split(","):
        if item.config_operation == _APPEND and word not in words:
            words.append(word)
        elif item.config_operation == _SUBTRACT and word in words:
            words.remove(word)
    overrides[item.name] = ",".join(words)


async def _altered(
    context: Context, resource: Any, overrides: dict[str, str], validate_only: bool
) -> dict[str, Any]:
    catalog = context.broker.catalog
    try:
        if resource.resource_type != _TOPIC:
            raise InvalidTopicConfig(
                "a broker's settings are in its configuration file; restart it to change them"
            )
        topic = catalog[resource.resource_name]
        if topic.internal:
            raise InvalidTopic("names that begin with __ are the broker's own")
        if validate_only:
            TopicConfig(overrides, context.broker.settings)
        else:
            await catalog.configure(resource.resource_name, overrides)
    except EXPECTED as error:
        return _answered(resource, code_of(error), str(error))
    return _answered(resource, 0, None)


def _answered(resource: Any, code: int, message: str | None) -> dict[str, Any]:
    return {
        "error_code": code,
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }
