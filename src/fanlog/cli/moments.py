"""Places in a topic as people write them: `earliest`, `latest`, an offset, a time, or `-1h`.

A time is ISO 8601 (local time unless it names a zone) or a distance back from now. It stands for the first
record of that time or later in each partition; where there is none, for the partition's end.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from fanlog.cli import connection
from fanlog.cli.output import usage

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

_BACK = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True, slots=True)
class Place:
    kind: Literal["earliest", "latest", "offset", "time"]
    value: int = 0  # an offset, or milliseconds since 1970


def parse(text: str, option: str, now: datetime) -> Place:
    if text in ("earliest", "latest"):
        return Place("earliest" if text == "earliest" else "latest")
    if text.isascii() and text.isdigit():
        return Place("offset", int(text))
    back = _BACK.fullmatch(text)
    try:
        if back:
            moment = now - timedelta(seconds=float(back[1]) * _SECONDS[back[2]])
        else:
            moment = datetime.fromisoformat(text)
        return Place("time", round(moment.timestamp() * 1000))
    except (ValueError, OverflowError, OSError) as error:
        raise usage(
            f"{option} takes earliest, latest, an offset, a time (2026-01-31T08:00) or a distance (-1h), "
            f"not {text!r}"
        ) from error


def offsets(
    client: "AdminClient", partitions: Iterable["TopicPartition"], place: Place
) -> dict[tuple[str, int], int]:
    """The offset that `place` stands for in each partition, kept within what the partition holds."""
    from confluent_kafka import admin

    specs: Any = admin.OffsetSpec  # its constructors are not typed
    kept = list(partitions)
    latest = _list(client, kept, specs.latest())
    if place.kind == "latest":
        return latest
    if place.kind == "time":
        found = _list(client, kept, specs.for_timestamp(place.value))
        return {key: offset if offset >= 0 else latest[key] for key, offset in found.items()}
    earliest = _list(client, kept, specs.earliest())
    if place.kind == "earliest":
        return earliest
    return {key: min(max(place.value, earliest[key]), latest[key]) for key in latest}


def _list(
    client: "AdminClient", partitions: list["TopicPartition"], spec: "OffsetSpec"
) -> dict[tuple[str, int], int]:
    if not partitions:
        return {}
    futures = connection.call(
        "could not read the offsets",
        lambda: client.list_offsets(
            dict.fromkeys(partitions, spec), request_timeout=connection.ANSWER_SECONDS_MAX
        ),
    )
    infos = connection.wait(futures, "could not read the offsets")
    return {(each.topic, each.partition): info.offset for each, info in zip(futures, infos, strict=True)}
