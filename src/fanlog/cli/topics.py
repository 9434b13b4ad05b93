"""`fanlog topic`: create, look at, change and delete topics, over the Kafka admin calls."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fanlog.cli import connection, moments
from fanlog.cli.connection import ANSWER_SECONDS_MAX, DEFAULT_BROKER, INTERNAL, Broker
from fanlog.cli.output import Json, Trouble, count, print_json, print_table, say, teach, usage

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = typer.Typer(no_args_is_help=True, help="Create, look at, change and delete topics.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A setting of the topic; may be repeated."),
]


@app.command(
    help=teach(
        "Create a topic.",
        "fanlog topic create sensors --partitions 4",
        "fanlog topic create audit --config retention.ms=-1 --config fanlog.durability=disk",
        "fanlog topic create state --config cleanup.policy=compact",
    )
)
def create(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, show_default="the broker's", help="How many.")
    ] = None,
    config: Config = None,
    broker: Broker = DEFAULT_BROKER,
    as_json: Json = False,
) -> None:
    from confluent_kafka.admin import NewTopic

    client = connection.admin(broker)
    doing = f"could not create {name}"
    settings = connection.pairs(config or (), "--config")
    wish = NewTopic(name, num_partitions=partitions or -1, replication_factor=-1, config=settings)
    connection.wait(
        connection.call(doing, lambda: client.create_topics([wish], operation_timeout=ANSWER_SECONDS_MAX)),
        doing,
    )
    made = len(connection.topic(client, broker, name).partitions)
    if as_json:
        print_json({"topic": name, "partitions": made, "config": settings})
    else:
        say(f"created [bold]{name}[/bold] with {count(made, 'partition')}")


@app.command(
    "list",
    help=teach(
        "List the topics.", "fanlog topic list", "fanlog topic list --internal --json | jq '.[].topic'"
    ),
)
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="The broker's own topics too.")] = False,
    broker: Broker = DEFAULT_BROKER,
    as_json: Json = False,
) -> None:
    from confluent_kafka import TopicPartition

    client = connection.admin(broker)
    topics = sorted(
        (each for each in connection.cluster(client, broker).topics.values()),
        key=lambda each: each.topic or "",
    )
    shown = [each for each in topics if internal or not str(each.topic).startswith(INTERNAL)]
    places = [TopicPartition(str(each.topic), number) for each in shown for number in each.partitions]
    first = moments.offsets(client, places, moments.Place("earliest"))
    last = moments.offsets(client, places, moments.Place("latest"))
    held = dict.fromkeys((str(each.topic) for each in shown), 0)
    for (name, partition), end in last.items():
        held[name] += end - first[name, partition]
    rows = [(str(each.topic), len(each.partitions), held[str(each.topic)]) for each in shown]
    if as_json:
        keys = ("topic", "partitions", "records")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    elif rows:
        print_table("", ["topic", "partitions", "records"], rows)
    else:
        say("no topics yet: create one with `fanlog topic create NAME`, or publish to one with `fanlog pub`")


@app.command(
    help=teach(
        "Show a topic's partitions, offsets and settings.",
        "fanlog topic describe sensors",
        "fanlog topic describe sensors --all",
    )
)
def describe(
    name: Name,
    every: Annotated[
        bool, typer.Option("--all", help="Every setting, not only those that were set for this topic.")
    ] = False,
    broker: Broker = DEFAULT_BROKER,
    as_json: Json = False,
) -> None:
    from confluent_kafka import TopicPartition

    client = connection.admin(broker)
    found = connection.topic(client, broker, name)
    places = [TopicPartition(name, number) for number in sorted(found.partitions)]
    first = moments.offsets(client, places, moments.Place("earliest"))
    last = moments.offsets(client, places, moments.Place("latest"))
    rows = [
        (
            each.partition,
            found.partitions[each.partition].leader,
            first[name, each.partition],
            last[name, each.partition],
            last[name, each.partition] - first[name, each.partition],
        )
        for each in places
    ]
    columns = ["partition", "leader", "first offset", "end offset", "records"]
    settings = _settings(client, name, every)
    if as_json:
        keys = ("partition", "leader", "earliest", "latest", "records")
        partitions = [dict(zip(keys, row, strict=True)) for row in rows]
        print_json({"topic": name, "partitions": partitions, "config": settings})
        return
    print_table(name, columns, rows)
    if settings:
        print_table("settings", ["name", "value"], settings.items())
    else:
        say("settings: the broker's defaults (--all shows them)")


def _settings(client: "AdminClient", name: str, every: bool) -> dict[str, str | None]:
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    doing = f"could not read the settings of {name}"
    resource = ConfigResource(ResourceType.TOPIC, name)
    [entries] = connection.wait(
        client.describe_configs([resource], request_timeout=ANSWER_SECONDS_MAX), doing
    )
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {
        key: entry.value
        for key, entry in sorted(entries.items())
        if every or getattr(entry.source, "value", entry.source) == own
    }


@app.command(
    help=teach(
        "Add partitions to a topic, or change its settings.",
        "fanlog topic alter sensors --partitions 8",
        "fanlog topic alter sensors --config retention.ms=86400000 --unset segment.bytes",
    )
)
def alter(
    name: Name,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, show_default=False, help="How many there shall be."),
    ] = None,
    config: Config = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Back to the broker's default; may be repeated."),
    ] = None,
    broker: Broker = DEFAULT_BROKER,
    as_json: Json = False,
) -> None:
    from confluent_kafka.admin import NewPartitions

    settings = connection.pairs(config or (), "--config")
    if not (partitions or settings or unset):
        raise usage("nothing to change: give --partitions, --config or --unset")
    client = connection.admin(broker)
    doing = f"could not alter {name}"
    now = len(connection.topic(client, broker, name).partitions)
    if partitions and partitions < now:
        raise Trouble(f"{doing}: it has {now} partitions, and partitions can be added, never taken away")
    # The settings first: where one is refused, nothing has changed yet.
    if settings or unset:
        _alter_settings(client, name, settings, unset or [])
    if partitions and partitions > now:
        connection.wait(
            client.create_partitions([NewPartitions(name, partitions)], operation_timeout=ANSWER_SECONDS_MAX),
            doing,
        )
    if as_json:
        print_json({"topic": name, "partitions": partitions or now, "config": settings, "unset": unset or []})
    else:
        say(f"altered [bold]{name}[/bold]")


def _alter_settings(client: "AdminClient", name: str, settings: dict[str, str], unset: list[str]) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    entries += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in unset]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    doing = f"could not alter {name}"
    connection.wait(
        connection.call(
            doing,
            lambda: client.incremental_alter_configs([resource], request_timeout=ANSWER_SECONDS_MAX),
        ),
        doing,
    )


@app.command(
    help=teach(
        "Delete a topic and all its records.",
        "fanlog topic delete sensors",
        "fanlog topic delete sensors --yes",
    )
)
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    broker: Broker = DEFAULT_BROKER,
    as_json: Json = False,
) -> None:
    client = connection.admin(broker)
    connection.topic(client, broker, name)
    asked = yes or as_json or not sys.stdin.isatty()
    if not asked and not typer.confirm(f"Delete {name} and all its records?"):
        raise Trouble("nothing was deleted")
    connection.wait(
        client.delete_topics([name], operation_timeout=ANSWER_SECONDS_MAX), f"could not delete {name}"
    )
    if as_json:
        print_json({"topic": name, "deleted": True})
    else:
        say(f"deleted [bold]{name}[/bold]")
