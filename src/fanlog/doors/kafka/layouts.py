"""The layouts of Kafka's messages, out of the schemas that kio carries for every version of each.

Only kio's schemas are used. Its own reader reserves memory for as many items as a request claims to have, and
takes the process down with it when there is not that much; `fanlog.wire.messages` reads by the same
schemas and believes nothing.
"""

import dataclasses
import functools
import types
import typing
from typing import Any

from kio.index import load_request_schema, load_response_schema

from fanlog.wire import messages
from fanlog.wire.messages import Field, Layout

_KINDS = {
    "bool": messages.BOOL,
    "int8": messages.INT8,
    "int16": messages.INT16,
    "int32": messages.INT32,
    "int64": messages.INT64,
    "uint16": messages.UINT16,
    "uint32": messages.UINT32,
    "float64": messages.FLOAT64,
    "uuid": messages.UUID,
    "string": messages.STRING,
    "bytes": messages.BYTES,
    "records": messages.BYTES,
    "error_code": messages.INT16,
    "timedelta_i32": messages.INT32,
    "timedelta_i64": messages.INT64,
    "datetime_i64": messages.INT64,
}
_PRODUCE = 0
_EMPTY: dict[int, object] = {
    messages.BOOL: False,
    messages.STRING: "",
    messages.BYTES: b"",
    messages.UUID: None,
}


@functools.cache
def request_layout(api_key: int, version: int) -> Layout:
    if api_key == _PRODUCE and version < 3:
        return _old_produce(version)[0]
    return _layout(load_request_schema(api_key, version))


@functools.cache
def response_layout(api_key: int, version: int) -> Layout:
    if api_key == _PRODUCE and version < 3:
        return _old_produce(version)[1]
    return _layout(load_response_schema(api_key, version))


def _old_produce(version: int) -> tuple[Layout, Layout]:
    """Produce as it was before record batches; kio has forgotten it, but old clients have not."""
    request = _listed(
        Layout("ProduceRequest", False),
        "topic_data",
        [("name", messages.STRING)],
        "partition_data",
        [("index", messages.INT32), ("records", messages.BYTES)],
    )
    request.fields[:0] = [_plain("acks", messages.INT16), _plain("timeout", messages.INT32)]
    answer = [("index", messages.INT32), ("error_code", messages.INT16), ("base_offset", messages.INT64)]
    if version >= 2:
        answer.append(("log_append_time", messages.INT64))
    response = _listed(
        Layout("ProduceResponse", False),
        "responses",
        [("name", messages.STRING)],
        "partition_responses",
        answer,
    )
    if version >= 1:
        response.fields.append(_plain("throttle_time", messages.INT32))
    return request, response


def _listed(
    outer: Layout, name: str, fields: list[tuple[str, int]], inner_name: str, inner: list[tuple[str, int]]
) -> Layout:
    """`outer` with a list of structures that each hold a list of structures."""
    middle, innermost = Layout(name, False), Layout(inner_name, False)
    innermost.fields = [_plain(*field) for field in inner]
    middle.fields = [_plain(*field) for field in fields]
    middle.fields.append(Field(inner_name, messages.STRUCT, True, False, [], innermost))
    outer.fields.append(Field(name, messages.STRUCT, True, False, [], middle))
    return outer


def _plain(name: str, kind: int) -> Field:
    return Field(name, kind, False, kind == messages.BYTES, 0, None)


@functools.cache
def _layout(entity: Any) -> Layout:
    layout = Layout(entity.__name__, bool(entity.__flexible__))
    hints = typing.get_type_hints(entity)
    for item in dataclasses.fields(entity):
        field = _field(item, hints[item.name])
        if "tag" in item.metadata:
            layout.tagged[item.metadata["tag"]] = field
        else:
            layout.fields.append(field)
    layout.tagged = dict(sorted(layout.tagged.items()))
    return layout


def _field(item: "dataclasses.Field[Any]", hint: Any) -> Field:
    inner, nullable = _without_none(hint)
    is_array = typing.get_origin(inner) is tuple
    if is_array:
        inner, inner_nullable = _without_none(typing.get_args(inner)[0])
        nullable = nullable or inner_nullable
    nested: Layout | None = _layout(inner) if dataclasses.is_dataclass(inner) else None  # type: ignore[arg-type]
    kind = messages.STRUCT if nested is not None else _KINDS[item.metadata["kafka_type"]]
    return Field(item.name, kind, is_array, nullable, _default(item, kind, is_array, nullable), nested)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return hint, False
    kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
    return kinds[0], len(kinds) < len(typing.get_args(hint))


def _default(item: "dataclasses.Field[Any]", kind: int, is_array: bool, nullable: bool) -> object:
    if is_array:
        return []
    if kind == messages.INT64 and nullable:
        # A time that is not there.
        return -1
    if item.default is not dataclasses.MISSING:
        value = item.default
        if hasattr(value, "total_seconds"):
            return round(value.total_seconds() * 1000)
        if hasattr(value, "timestamp"):
            return round(value.timestamp() * 1000)
        return value
    if nullable:
        return None
    return _EMPTY.get(kind, 0)
