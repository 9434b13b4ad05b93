"""The settings of one topic, by Kafka's names, each with its kind, its default and its bounds.

What a topic does not set comes from the broker's settings (`[topics]`), so a changed default reaches every
topic that did not choose otherwise. `fanlog.durability` is ours: the level of DESIGN's acknowledgements.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from fanlog.config import DURABILITIES, Settings

# As in Kafka's DescribeConfigs: BOOLEAN, STRING, INT, ..., LONG, ..., LIST.
BOOLEAN: Final = 1
STRING: Final = 2
INT: Final = 3
LONG: Final = 5
DOUBLE: Final = 6
LIST: Final = 7


class InvalidTopicConfig(Exception):
    """A topic setting that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    kind: int
    default: Callable[[Settings], object]
    help: str
    low: int | None = None
    choices: tuple[str, ...] = ()

    def parse(self, text: str) -> int | float | bool | str:
        try:
            value = _PARSERS[self.kind](text)
        except ValueError:
            raise InvalidTopicConfig(f"{self.name}: {text!r} is not {_KINDS[self.kind]}") from None
        if self.low is not None and isinstance(value, int | float) and value < self.low:
            raise InvalidTopicConfig(f"{self.name}: {text} is less than {self.low}")
        if self.choices:
            for word in str(value).split(",") if self.kind == LIST else [str(value)]:
                if word.strip() not in self.choices:
                    raise InvalidTopicConfig(f"{self.name}: {word!r} is not one of {', '.join(self.choices)}")
        return value


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_PARSERS: Final[dict[int, Callable[[str], int | float | bool | str]]] = {
    BOOLEAN: _boolean,
    STRING: str,
    INT: int,
    LONG: int,
    DOUBLE: float,
    LIST: str,
}
_KINDS: Final = {BOOLEAN: "true or false", INT: "a whole number", LONG: "a whole number", DOUBLE: "a number"}

OPTIONS: Final = {
    option.name: option
    for option in (
        Option(
            "cleanup.policy",
            LIST,
            lambda _: "delete",
            "What happens to old records: delete, compact, or both.",
            choices=("delete", "compact"),
        ),
        Option(
            "compression.type",
            STRING,
            lambda _: "producer",
            "Batches are kept as their producer compressed them.",
            choices=("producer",),
        ),
        Option(
            "delete.retention.ms",
            LONG,
            lambda _: 86_400_000,
            "How long a compacted topic keeps the marks of removed keys.",
            low=0,
        ),
        Option(
            "fanlog.durability",
            STRING,
            lambda settings: settings.topics.durability,
            "What an acknowledgement promises: memory, os or disk.",
            choices=DURABILITIES,
        ),
        Option(
            "max.message.bytes",
            INT,
            lambda settings: settings.limits.batch_bytes_max,
            "The largest record batch.",
            low=0,
        ),
        Option(
            "message.timestamp.type",
            STRING,
            lambda _: "CreateTime",
            "Whose clock a record shows: its producer's or the broker's.",
            choices=("CreateTime", "LogAppendTime"),
        ),
        Option(
            "min.cleanable.dirty.ratio",
            DOUBLE,
            lambda _: 0.5,
            "Share of the log that must be new before it is compacted again.",
            low=0,
        ),
        Option(
            "min.compaction.lag.ms",
            LONG,
            lambda _: 0,
            "How long a record stays uncompacted at least.",
            low=0,
        ),
        Option(
            "min.insync.replicas",
            INT,
            lambda _: 1,
            "Replicas that must have a record before it counts.",
            low=1,
        ),
        Option(
            "retention.bytes",
            LONG,
            lambda settings: settings.topics.retention_bytes,
            "How much of a partition is kept; -1 without limit.",
            low=-1,
        ),
        Option(
            "retention.ms",
            LONG,
            lambda settings: settings.topics.retention_ms,
            "How long records are kept; -1 for ever.",
            low=-1,
        ),
        Option(
            "segment.bytes",
            INT,
            lambda settings: settings.topics.segment_bytes,
            "Size at which a segment file is closed.",
            low=1024,
        ),
        Option(
            "segment.ms",
            LONG,
            lambda settings: settings.topics.segment_ms,
            "Age at which a segment file is closed.",
            low=1,
        ),
    )
}


class TopicConfig:
    """One topic's settings, parsed once; the partition reads plain attributes."""

    __slots__ = (
        "append_time",
        "batch_bytes_max",
        "compact",
        "compaction_lag_ms",
        "delete",
        "delete_retention_ms",
        "dirty_ratio_min",
        "durability",
        "overrides",
        "retention_bytes",
        "retention_ms",
        "segment_bytes",
        "segment_ms",
        "values",
    )

    def __init__(self, overrides: Mapping[str, str], settings: Settings) -> None:
        self.overrides = dict(overrides)
        values: dict[str, object] = {name: option.default(settings) for name, option in OPTIONS.items()}
        for name, text in overrides.items():
            option = OPTIONS.get(name)
            if option is None:
                raise InvalidTopicConfig(f"there is no topic setting {name}; there are {', '.join(OPTIONS)}")
            values[name] = option.parse(text)
        self.values = values
        policies = {word.strip() for word in str(values["cleanup.policy"]).split(",")}
        self.compact = "compact" in policies
        self.delete = "delete" in policies
        self.durability = str(values["fanlog.durability"])
        self.append_time = values["message.timestamp.type"] == "LogAppendTime"
        self.batch_bytes_max = _whole(values["max.message.bytes"])
        self.retention_ms = _whole(values["retention.ms"])
        self.retention_bytes = _whole(values["retention.bytes"])
        self.segment_bytes = _whole(values["segment.bytes"])
        self.segment_ms = _whole(values["segment.ms"])
        self.delete_retention_ms = _whole(values["delete.retention.ms"])
        self.compaction_lag_ms = _whole(values["min.compaction.lag.ms"])
        self.dirty_ratio_min = float(str(values["min.cleanable.dirty.ratio"]))


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value
