"""Every setting of a broker, once: its name, its type, its default, its limits and what it is for.

A setting is a field of one of the dataclasses below. Its place gives it its three names: the field
`durability` of `topics` is `durability` under `[topics]` in the TOML file, `--topics-durability` on the
command line and `FANLOG_TOPICS_DURABILITY` in the environment. A flag wins over the environment, the
environment over the file, the file over the default.

Everything that could grow has a limit in `limits`, with its unit last in its name.
"""

import dataclasses
import difflib
import os
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

DURABILITIES = ("memory", "os", "disk")


class ConfigError(Exception):
    """A setting that cannot be used; the message says which one, and what would do."""


def setting(
    default: object, help: str, *, low: int | None = None, choices: tuple[str, ...] = ()
) -> typing.Any:
    return field(default=default, metadata={"help": help, "low": low, "choices": choices})


@dataclass(frozen=True, slots=True)
class Topics:
    """What a topic gets that does not say otherwise."""

    durability: str = setting(
        "disk", "What an acknowledgement promises: memory, os or disk.", choices=DURABILITIES
    )
    routes: str = setting(
        "", "Addresses kept in another topic than their first level: FILTER -> TOPIC, separated by commas."
    )
    auto_create: bool = setting(True, "Create a topic when a client first names it.")
    partitions: int = setting(1, "Partitions of a topic that does not say how many.", low=1)
    segment_bytes: int = setting(
        1 << 30, "Size at which a segment file is closed and a new one begun.", low=4096
    )
    segment_ms: int = setting(
        7 * 24 * 3600 * 1000, "Age at which a segment is closed, whatever its size.", low=1
    )
    retention_ms: int = setting(7 * 24 * 3600 * 1000, "How long records are kept; -1 for ever.", low=-1)
    retention_bytes: int = setting(-1, "How much of a partition is kept; -1 without limit.", low=-1)


@dataclass(frozen=True, slots=True)
class Log:
    """How the log works on disk."""

    index_interval_bytes: int = setting(4096, "Bytes of log between two entries of the sparse index.", low=0)
    checkpoint_bytes: int = setting(
        64 << 20,
        "Bytes of log after which what is durable is noted, so that recovery need not read it.",
        low=4096,
    )
    sync_threads: int = setting(4, "Threads that write and fdatasync.", low=1)
    memory_flush_ms: int = setting(20, "How far behind records of level memory are written.", low=1)
    cleanup_interval_ms: int = setting(30_000, "Time between two rounds of retention and compaction.", low=10)
    producer_expiry_ms: int = setting(
        24 * 3600 * 1000, "How long an idle idempotent producer is remembered.", low=1000
    )


@dataclass(frozen=True, slots=True)
class Groups:
    """Consumer groups."""

    partitions: int = setting(4, "Partitions of the internal topic that holds groups and offsets.", low=1)
    session_timeout_ms_min: int = setting(
        1_000, "Shortest session time-out that a member may ask for.", low=1
    )
    session_timeout_ms_max: int = setting(
        1_800_000, "Longest session time-out that a member may ask for.", low=1
    )
    initial_rebalance_delay_ms: int = setting(
        300, "How long a new group waits for more members before its first assignment.", low=0
    )
    members_max: int = setting(10_000, "Members of one group.", low=1)
    offsets_retention_ms: int = setting(
        7 * 24 * 3600 * 1000, "How long the offsets of an empty group are kept.", low=1000
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """Past these, the peer is told so, in its protocol's own terms."""

    frame_bytes_max: int = setting(100 << 20, "One request.", low=1024)
    batch_bytes_max: int = setting(
        (1 << 20) + 12, "One record batch, unless its topic says otherwise.", low=1024
    )
    connections_max: int = setting(20_000, "Connections of all doors together.", low=1)
    requests_in_flight_max: int = setting(
        1_000, "Requests of one connection that wait for their answer.", low=1
    )
    request_bytes_in_flight_max: int = setting(
        64 << 20, "Bytes of requests of one connection that wait for their answer.", low=1024
    )
    frame_seconds_max: int = setting(60, "Time in which a frame that was begun must arrive whole.", low=1)
    idle_seconds_max: int = setting(600, "Time after which a connection without a request is closed.", low=1)
    mqtt_packet_bytes_max: int = setting(1 << 20, "One MQTT packet.", low=128)
    mqtt_in_flight_max: int = setting(
        1_000, "Messages of QoS 1 and 2 on their way to one MQTT client, unless it wants fewer.", low=1
    )
    mqtt_topic_aliases_max: int = setting(64, "Topic aliases that an MQTT client may set.", low=0)
    mqtt_write_buffer_bytes_max: int = setting(
        16 << 10,
        "Bytes that wait for one MQTT client; past that it reads from the log at its own pace.",
        low=1024,
    )
    websocket_message_bytes_max: int = setting(4 << 20, "One WebSocket message.", low=1024)
    session_expiry_s_max: int = setting(
        7 * 24 * 3600, "How long the session of an MQTT client is kept without a connection.", low=0
    )
    lbroker_frame_bytes_max: int = setting(1 << 20, "One command of an lbroker client.", low=64)
    lbroker_patterns_max: int = setting(10_000, "Patterns of one lbroker client.", low=1)
    lbroker_write_buffer_bytes_max: int = setting(
        8 << 20, "Bytes that wait for one lbroker client; past that it skips to the newest.", low=1024
    )
    lbroker_topics_max: int = setting(
        100_000, "Addresses whose last message is kept in memory for lbroker clients.", low=1
    )
    lbroker_latest_bytes_max: int = setting(64 << 20, "Bytes of those last messages.", low=1024)
    fetch_bytes_max: int = setting(55 << 20, "One answer to a fetch.", low=1024)
    partitions_max: int = setting(20_000, "Partitions of one broker.", low=1)
    partitions_per_topic_max: int = setting(4_000, "Partitions of one topic.", low=1)


@dataclass(frozen=True, slots=True)
class Settings:
    """A broker's settings."""

    data: Path = setting(Path("fanlog-data"), "Directory that holds the log.")
    kafka: str = setting("127.0.0.1:9092", "Kafka door, HOST:PORT or none; port 0 takes a free one.")
    mqtt: str = setting("127.0.0.1:1883", "MQTT door, HOST:PORT or none.")
    http: str = setting("127.0.0.1:8080", "HTTP door, HOST:PORT or none.")
    grpc: str = setting("127.0.0.1:9090", "gRPC door, HOST:PORT or none.")
    lbroker: str = setting("127.0.0.1:36912", "lbroker door, HOST:PORT or none.")
    kafka_tls: str = setting("none", "Kafka with TLS, HOST:PORT or none.")
    mqtt_tls: str = setting("none", "MQTT with TLS, HOST:PORT or none.")
    http_tls: str = setting("none", "HTTP and WebSocket with TLS, HOST:PORT or none.")
    tls_certificate: str = setting("", "Certificate of the TLS addresses, with its chain: a PEM file.")
    tls_key: str = setting("", "The certificate's private key, if it is not in the same file.")
    tls_client_ca: str = setting("", "PEM file; TLS clients must have a certificate signed by one of these.")
    statistics_interval_s: int = setting(10, "Time between two statistics below $SYS.", low=1)
    advertise: str = setting(
        "", "Host name that Kafka clients are told to connect to; the door's own by default."
    )
    node_id: int = setting(0, "Number of this broker, unique in its cluster.", low=0)
    metadata: str = setting(
        "", "Metadata store: sqlite:PATH; by default sqlite:metadata.db in the data directory."
    )
    shards: int = setting(1, "Brokers to run on this machine.", low=1)
    log_level: str = setting(
        "info", "Least severe message that is logged.", choices=("debug", "info", "warning", "error")
    )
    topics: Topics = field(default_factory=Topics)
    log: Log = field(default_factory=Log)
    groups: Groups = field(default_factory=Groups)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Name:
    """One setting, with all that a command line or a document wants to know of it."""

    path: tuple[str, ...]
    type: type
    default: object
    help: str
    low: int | None
    choices: tuple[str, ...]

    @property
    def flag(self) -> str:
        return "--" + "-".join(self.path).replace("_", "-")

    @property
    def variable(self) -> str:
        return "FANLOG_" + "_".join(self.path).upper()

    @property
    def key(self) -> str:
        return ".".join(self.path)

    def parse(self, value: object, where: str) -> object:
        """`value` as this setting's type; text from a flag or a variable, anything from a TOML file."""
        parsed = _convert(value, self.type)
        if parsed is None:
            raise ConfigError(f"{where}: {self.key} takes {_KINDS[self.type]}, not {value!r}")
        if self.low is not None and isinstance(parsed, int) and parsed < self.low:
            raise ConfigError(f"{where}: {self.key} is at least {self.low}, not {parsed}")
        if self.choices and parsed not in self.choices:
            raise ConfigError(f"{where}: {self.key} is one of {', '.join(self.choices)}, not {parsed!r}")
        return parsed


_KINDS: dict[type, str] = {int: "a whole number", bool: "true or false", str: "text", Path: "a path"}
_WORDS = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}


def _convert(value: object, kind: type) -> object | None:
    if kind is bool:
        return value if isinstance(value, bool) else _WORDS.get(str(value).lower())
    if kind is int:
        if isinstance(value, bool):
            return None
        try:
            return int(str(value).replace("_", ""))
        except ValueError:
            return None
    if not isinstance(value, str | Path):
        return None
    return Path(value).expanduser() if kind is Path else str(value)


def names(of: type = Settings, above: tuple[str, ...] = ()) -> Iterator[Name]:
    """Every setting there is, in the order of the dataclasses."""
    hints = typing.get_type_hints(of)
    for item in dataclasses.fields(of):
        kind = hints[item.name]
        path = (*above, item.name)
        if dataclasses.is_dataclass(kind):
            yield from names(typing.cast(type, kind), path)
        else:
            assert not isinstance(kind, types.UnionType)
            meta = item.metadata
            yield Name(path, kind, item.default, meta["help"], meta["low"], meta["choices"])


def load(
    flags: Mapping[str, object] | None = None,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of a broker. `flags` is keyed like TOML: `{"topics.durability": "os"}`."""
    known = {name.key: name for name in names()}
    values: dict[str, object] = {}
    if file is not None:
        values.update(_from_file(file, known))
    env = os.environ if environment is None else environment
    for name in known.values():
        if name.variable in env:
            values[name.key] = name.parse(env[name.variable], name.variable)
    for key, value in (flags or {}).items():
        values[key] = known[key].parse(value, known[key].flag)
    settings: Settings = _build(Settings, (), values)
    return settings


def _from_file(file: Path, known: Mapping[str, Name]) -> dict[str, object]:
    try:
        tree = tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not a TOML file: {error}") from error
    values = {}
    for key, value in _flatten(tree):
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{file}: there is no setting {key}{hint}")
        values[key] = known[key].parse(value, str(file))
    return values


def _flatten(tree: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _build(of: type, above: tuple[str, ...], values: Mapping[str, object]) -> typing.Any:
    hints = typing.get_type_hints(of)
    given: dict[str, object] = {}
    for item in dataclasses.fields(of):
        path = (*above, item.name)
        if dataclasses.is_dataclass(hints[item.name]):
            given[item.name] = _build(hints[item.name], path, values)
        elif ".".join(path) in values:
            given[item.name] = values[".".join(path)]
    return of(**given)


def address(text: str) -> tuple[str, int] | None:
    """`HOST:PORT` as a pair, `none` as None. An IPv6 host is written in brackets."""
    if text == "none":
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{text!r} is not an address: write HOST:PORT, or none")
    return host.strip("[]"), int(port)
