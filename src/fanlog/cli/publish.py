"""`fanlog pub`: one record from the command line, or one per line of a file or of standard input.

Every record is acknowledged as its topic's durability promises (acks=all), and the producer is idempotent:
a retry never writes one twice. Success is printed only when the last acknowledgement is in.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from fanlog.cli import connection
from fanlog.cli.connection import DEFAULT_BROKER, Broker
from fanlog.cli.output import Json, Trouble, count, print_json, say, teach, usage

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

MESSAGE_SECONDS_MAX = 30

HELP = teach(
    "Publish records to a topic. Without VALUE and --file, every line of standard input is a record.",
    "fanlog pub sensors 21.5",
    "fanlog pub sensors 21.5 --key site1/dev42 --header unit=C",
    "seq 1000 | fanlog pub numbers",
    "fanlog pub access --file /var/log/nginx/access.log",
)


class Receipts:
    """What the broker acknowledged, and the first thing that it refused."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        self.count = 0
        self.refusal: KafkaError | None = None

    def __call__(self, error: "KafkaError | None", message: "Message") -> None:
        if error is not None:
            self.refusal = self.refusal or error
            return
        self.count += 1
        partition, offset = message.partition(), message.offset()
        if partition is not None and offset is not None:
            self.ends[partition] = max(offset, self.ends.get(partition, -1))


def pub(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to.")],
    value: Annotated[str | None, typer.Argument(metavar="[VALUE]", help="One record's value.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="Key of every record; the same key, the same partition.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="May be repeated.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="One record per line; - for standard input."),
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, show_default="by the key")] = None,
    broker: Broker = DEFAULT_BROKER,
    as_json: Json = False,
) -> None:
    from confluent_kafka import Producer

    if value is not None and file is not None:
        raise usage("give VALUE or --file, not both")
    headers = connection.pairs(header or (), "--header")
    with _values(value, file) as values:
        connection.require(broker)
        producer = Producer(
            connection.properties(
                broker,
                enable_idempotence=True,
                linger_ms=5,
                message_timeout_ms=MESSAGE_SECONDS_MAX * 1000,
                topic_metadata_propagation_max_ms=5000,
            )
        )
        receipts = Receipts()
        details: dict[str, Any] = {"headers": headers, "on_delivery": receipts}
        if key is not None:
            details["key"] = key
        if partition is not None:
            details["partition"] = partition
        sent = _send(producer, topic, values, details, receipts)
    _finish(producer, topic, sent, receipts, broker)
    _report(topic, receipts, as_json)


@contextmanager
def _values(value: str | None, file: str | None) -> Iterator[Iterator[bytes]]:
    if value is not None:
        yield iter([value.encode()])
    elif file is None or file == "-":
        if sys.stdin.isatty():
            say("[dim]one record per line; Ctrl-D ends[/dim]")
        yield _lines(sys.stdin.buffer)
    else:
        try:
            with Path(file).open("rb") as opened:
                yield _lines(opened)
        except OSError as error:
            raise Trouble(f"{file}: {error.strerror}") from error


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    for line in stream:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _send(
    producer: "Producer", topic: str, values: Iterator[bytes], details: dict[str, Any], receipts: Receipts
) -> int:
    from confluent_kafka import KafkaException

    sent = 0
    # Ctrl-C ends the input; what was sent before it is still seen through.
    with _progress() as advance, suppress(KeyboardInterrupt):
        for value in values:
            while True:
                try:
                    producer.produce(topic, value, **details)
                    break
                except BufferError:
                    # librdkafka's queue is full: the broker's pace is ours.
                    producer.poll(0.1)
                except KafkaException as error:
                    raise connection.trouble(error.args[0], f"could not publish to {topic}") from error
            sent += 1
            producer.poll(0)
            advance(receipts.count)
            if receipts.refusal:
                break
    return sent


@contextmanager
def _progress() -> Iterator[Any]:
    """A line that counts the acknowledgements, where somebody watches."""
    if not sys.stderr.isatty() or sys.stdin.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} acknowledged"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("")
        yield lambda count: progress.update(task, completed=count)


def _finish(producer: "Producer", topic: str, sent: int, receipts: Receipts, broker: str) -> None:
    if receipts.refusal is None:
        producer.flush(MESSAGE_SECONDS_MAX + 5)
    if receipts.refusal is not None:
        if receipts.refusal.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
            raise connection.unknown_topic(topic, connection.cluster(connection.admin(broker), broker).topics)
        doing = f"{receipts.count} of {sent} records published to {topic}, then"
        raise connection.trouble(receipts.refusal, doing)
    if receipts.count != sent:
        raise Trouble(f"only {receipts.count} of {sent} records were acknowledged: see the broker's log")


def _report(topic: str, receipts: Receipts, as_json: bool) -> None:
    last = [{"partition": number, "offset": offset} for number, offset in sorted(receipts.ends.items())]
    if as_json:
        print_json({"topic": topic, "records": receipts.count, "last": last})
    elif receipts.count == 1:
        say(f"published to [bold]{topic}[/bold] partition {last[0]['partition']} offset {last[0]['offset']}")
    else:
        say(f"published {count(receipts.count, 'record')} to [bold]{topic}[/bold]")
