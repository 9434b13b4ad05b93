"""`fanlog sub`: print the records of a topic as they are, or as they come.

Without a group it reads every partition by itself and leaves no trace in the broker. With one it shares the
topic with the group's other members and its offsets are kept; an offset is stored only after its record was
written out, so what was not printed is read again. Ctrl-C and SIGTERM leave the group properly.
"""

import base64
import datetime
import json
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fanlog.cli import connection, moments
from fanlog.cli.connection import DEFAULT_BROKER, Broker
from fanlog.cli.output import Trouble, forget_output, interrupt, teach, usage

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

BATCH_RECORDS_MAX = 500
BATCH_SECONDS_MAX = 0.1

HELP = teach(
    "Print the records of a topic, and go on as new ones come.",
    "fanlog sub sensors",
    "fanlog sub sensors --from -10m",
    "fanlog sub sensors --from earliest --no-follow --format json",
    "fanlog sub sensors --group dashboard --count 100",
)


def sub(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.")],
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            show_default="latest; earliest with --no-follow",
            help="earliest, latest, an offset, a time (2026-01-31T08:00) or a distance (-1h). With --group "
            "only earliest or latest, and only where the group has no offset yet.",
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Share the topic with a group, keep its offsets.")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, show_default="no limit", help="End after so many records."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, show_default="all", help="Only this one.")
    ] = None,
    style: Annotated[
        Literal["text", "json"],
        typer.Option("--format", help="text: values, one a line. json: everything, one document a line."),
    ] = "text",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for new records, or end with those there are.")
    ] = True,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    place = moments.parse(
        begin or ("latest" if follow else "earliest"), "--from", datetime.datetime.now().astimezone()
    )
    if group and place.kind in ("offset", "time"):
        raise usage(
            "a group has its own offsets: move them with "
            f"`fanlog group reset {group} --topic {topic} --to ...`"
        )
    if group and partition is not None:
        raise usage("--partition cannot go with --group: the group decides who reads which partition")
    signal.signal(signal.SIGTERM, interrupt)
    reader = Reader(broker, topic, group, follow, place)
    try:
        reader.start(partition)
        reader.run(count, as_json or style == "json")
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        forget_output()
    finally:
        # A second Ctrl-C while the group is being left.
        with suppress(KeyboardInterrupt):
            reader.consumer.close()


class Reader:
    """A consumer with the partitions that it has and those whose end it has met."""

    def __init__(
        self, broker: str, topic: str, group: str | None, follow: bool, place: moments.Place
    ) -> None:
        from confluent_kafka import Consumer

        self.topic = topic
        self.group = group
        self.follow = follow
        self.place = place
        self.admin = connection.admin(broker)
        self.partitions = sorted(connection.topic(self.admin, broker, topic).partitions)
        self.assigned: set[int] | None = None
        self.ended: set[int] = set()
        properties = connection.properties(
            broker,
            # A client without a group must name one all the same; nothing is ever committed to it.
            group_id=group or "fanlog-sub",
            enable_auto_commit=bool(group),
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            # The end of a partition is reported with the answer to a fetch, which must not wait long then.
            fetch_wait_max_ms=500 if follow else 10,
            auto_offset_reset="latest" if place.kind == "latest" else "earliest",
        )
        self.consumer = Consumer(properties)

    def start(self, partition: int | None) -> None:
        from confluent_kafka import TopicPartition

        if self.group:
            self.consumer.subscribe([self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
            return
        if partition is not None and partition not in self.partitions:
            raise Trouble(
                f"{self.topic} has no partition {partition}: it has 0 to {len(self.partitions) - 1}"
            )
        chosen = self.partitions if partition is None else [partition]
        offsets = moments.offsets(
            self.admin, [TopicPartition(self.topic, each) for each in chosen], self.place
        )
        self.consumer.assign([TopicPartition(*key, offset) for key, offset in offsets.items()])
        self.assigned = set(chosen)

    def _on_assign(self, _: "Consumer", partitions: "list[TopicPartition]") -> None:
        self.assigned = {each.partition for each in partitions}
        self.ended.clear()

    def _on_revoke(self, _: "Consumer", __: "list[TopicPartition]") -> None:
        self.assigned = None

    def done(self) -> bool:
        return not self.follow and self.assigned is not None and self.assigned <= self.ended

    def run(self, count: int | None, as_json: bool) -> None:
        printed = 0
        show = _document if as_json else _text(sys.stdout.isatty())
        while not self.done():
            wanted = min(BATCH_RECORDS_MAX, count - printed) if count else BATCH_RECORDS_MAX
            for message in self.consumer.consume(wanted, timeout=BATCH_SECONDS_MAX):
                if self._is_record(message):
                    sys.stdout.buffer.write(show(message) + b"\n")
                    printed += 1
                    if self.group:
                        self.consumer.store_offsets(message)
            sys.stdout.flush()
            if count and printed >= count:
                return

    def _is_record(self, message: "Message") -> bool:
        error = message.error()
        if error is None:
            return True
        if error.name() == "_PARTITION_EOF":
            self.ended.add(message.partition() or 0)
        elif error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
            raise Trouble(f"the topic {self.topic} is gone")
        elif not error.retriable() and error.name() not in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):
            raise connection.trouble(error, f"could not read {self.topic}")
        return False


def _text(for_people: bool) -> Any:
    """Values alone for a pipe; who said what and where for a person."""

    def plain(message: "Message") -> bytes:
        return message.value() or b""

    def decorated(message: "Message") -> bytes:
        key = message.key()
        label = f"{message.partition()}:{message.offset()}" + (f" {_decode(key)}" if key else "")
        return f"\x1b[2m{label}\x1b[0m  ".encode() + (message.value() or b"")

    return decorated if for_people else plain


def _decode(data: str | bytes) -> str:
    return data if isinstance(data, str) else data.decode(errors="replace")


def _document(message: "Message") -> bytes:
    """Bytes that are not text are given in base64, under a name that says so."""
    kind, milliseconds = message.timestamp()
    document: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": milliseconds if kind else None,
    }
    _put(document, "key", message.key())
    _put(document, "value", message.value())
    headers = []
    pairs: Any = message.headers() or []
    for name, value in pairs:
        header: dict[str, Any] = {"name": name}
        _put(header, "value", value)
        headers.append(header)
    document["headers"] = headers
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _put(document: dict[str, Any], name: str, data: str | bytes | None) -> None:
    try:
        document[name] = data.decode() if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        document[f"{name}_base64"] = base64.b64encode(error.object).decode()
