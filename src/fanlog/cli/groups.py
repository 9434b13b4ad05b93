"""`fanlog group`: consumer groups, their members, how far they are, and where they go on.

Lag is the end offset minus the committed one: how many records of a partition the group has not
acknowledged. Offsets are moved only while a group has no members, for a member would write its own over them.
"""

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fanlog.cli import connection, moments
from fanlog.cli.connection import ANSWER_SECONDS_MAX, DEFAULT_BROKER, Broker
from fanlog.cli.output import Json, Trouble, count, print_json, print_table, say, teach

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = typer.Typer(no_args_is_help=True, help="Look at consumer groups, and move or delete their offsets.")

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group is in one partition."""

    topic: str
    partition: int
    committed: int
    end: int
    member: str | None

    @property
    def lag(self) -> int | None:
        return max(self.end - self.committed, 0) if self.committed >= 0 else None

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "committed": self.committed if self.committed >= 0 else None,
            "end": self.end,
            "lag": self.lag,
            "member": self.member,
        }


@app.command("list", help=teach("List the consumer groups.", "fanlog group list", "fanlog group list --json"))
def list_groups(broker: Broker = DEFAULT_BROKER, as_json: Json = False) -> None:
    client = connection.admin(broker)
    rows = _groups(client)
    if as_json:
        print_json([{"group": name, "state": state} for name, state in rows])
    elif rows:
        print_table("", ["group", "state"], rows)
    else:
        say("no consumer groups yet: `fanlog sub TOPIC --group NAME` starts one")


def _groups(client: "AdminClient") -> list[tuple[str, str]]:
    doing = "could not list the groups"
    future = client.list_consumer_groups(request_timeout=ANSWER_SECONDS_MAX)
    [answer] = connection.wait({"": future}, doing)
    if answer.errors and not answer.valid:
        raise connection.trouble(answer.errors[0].args[0], doing)
    return sorted((each.group_id, each.state.name.lower()) for each in answer.valid)


def _require(client: "AdminClient", group: str) -> None:
    known = [name for name, _ in _groups(client)]
    if group not in known:
        hint = connection.near(group, known) or "see `fanlog group list`"
        raise Trouble(f"there is no group {group}: {hint}")


@app.command(
    help=teach(
        "Show a group's members, and how far it is in each partition.",
        "fanlog group describe dashboard",
        "fanlog group describe dashboard --json | jq '[.partitions[].lag] | add'",
    )
)
def describe(group: Group, broker: Broker = DEFAULT_BROKER, as_json: Json = False) -> None:
    client = connection.admin(broker)
    _require(client, group)
    found = _describe(client, group)
    owners = {
        (place.topic, place.partition): member.member_id
        for member in found.members
        if member.assignment
        for place in member.assignment.topic_partitions
    }
    partitions = progress(client, group, owners)
    members = [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.host,
            "instance": member.group_instance_id or None,
            "partitions": len(member.assignment.topic_partitions) if member.assignment else 0,
        }
        for member in found.members
    ]
    state = found.state.name.lower()
    lag = sum(each.lag or 0 for each in partitions)
    if as_json:
        print_json(
            {
                "group": group,
                "state": state,
                "assignor": found.partition_assignor or None,
                "members": members,
                "partitions": [each.document() for each in partitions],
                "lag": lag,
            }
        )
        return
    say(f"[bold]{group}[/bold]: {state}, {count(len(members), 'member')}, {count(lag, 'record')} behind")
    if members:
        print_table("members", list(members[0]), [list(each.values()) for each in members])
    if partitions:
        columns = ["topic", "partition", "committed", "end", "lag", "member"]
        print_table("partitions", columns, [list(each.document().values()) for each in partitions])


def _describe(client: "AdminClient", group: str) -> Any:
    futures = client.describe_consumer_groups([group], request_timeout=ANSWER_SECONDS_MAX)
    [found] = connection.wait(futures, f"could not describe {group}")
    return found


def progress(client: "AdminClient", group: str, owners: dict[tuple[str, int], str]) -> list[Progress]:
    """What was committed, and what is assigned without a commit yet."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    futures = client.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=ANSWER_SECONDS_MAX
    )
    [answer] = connection.wait(futures, f"could not read the offsets of {group}")
    committed = {(each.topic, each.partition): each.offset for each in answer.topic_partitions or []}
    places = sorted(committed.keys() | owners.keys())
    ends = moments.offsets(client, [TopicPartition(*place) for place in places], moments.Place("latest"))
    return [
        Progress(place[0], place[1], committed.get(place, -1), ends[place], owners.get(place))
        for place in places
    ]


@app.command(
    help=teach(
        "Move a group's offsets in a topic. The group must have no members.",
        "fanlog group reset dashboard --topic sensors --to earliest",
        "fanlog group reset dashboard --topic sensors --to -1h --dry-run",
        "fanlog group reset dashboard --topic sensors --to 2026-01-31T08:00:00Z",
        "fanlog group reset dashboard --topic sensors --partition 2 --to 4711",
    )
)
def reset(
    group: Group,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic in which to move.")],
    to: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="earliest, latest, an offset, a time, or -1h.")
    ],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", min=0, help="Only this one; may be repeated.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would happen, change nothing.")
    ] = False,
    broker: Broker = DEFAULT_BROKER,
    as_json: Json = False,
) -> None:
    from confluent_kafka import TopicPartition

    place = moments.parse(to, "--to", datetime.datetime.now().astimezone())
    client = connection.admin(broker)
    numbers = sorted(connection.topic(client, broker, topic).partitions)
    missing = set(partition or ()) - set(numbers)
    if missing:
        raise Trouble(f"{topic} has no partition {min(missing)}: it has 0 to {len(numbers) - 1}")
    # A group that is not there yet may be given offsets to begin with.
    known = any(name == group for name, _ in _groups(client))
    members = _describe(client, group).members if known else []
    if members and not dry_run:
        raise Trouble(f"{group} has {count(len(members), 'member')}: stop them first, or try --dry-run")
    before = {each.partition: each for each in progress(client, group, {}) if each.topic == topic}
    chosen = [TopicPartition(topic, number) for number in partition or numbers]
    after = moments.offsets(client, chosen, place)
    if not dry_run:
        _move(client, group, [TopicPartition(*key, offset) for key, offset in after.items()])
    rows = [
        (number, before[number].document()["committed"] if number in before else None, offset)
        for (_, number), offset in sorted(after.items())
    ]
    if as_json:
        moved = [{"partition": number, "before": old, "after": new} for number, old, new in rows]
        print_json({"group": group, "topic": topic, "dry_run": dry_run, "partitions": moved})
    else:
        title = f"{group} in {topic}" + (": would move, nothing was changed" if dry_run else "")
        print_table(title, ["partition", "before", "after"], rows)


def _move(client: "AdminClient", group: str, places: list[Any]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions

    doing = f"could not move {group}"
    wish = ConsumerGroupTopicPartitions(group, places)
    [answer] = connection.wait(
        client.alter_consumer_group_offsets([wish], request_timeout=ANSWER_SECONDS_MAX), doing
    )
    for each in answer.topic_partitions or []:
        if each.error:
            raise connection.trouble(each.error, doing)


@app.command(
    help=teach("Delete a group with its offsets. It must have no members.", "fanlog group delete dashboard")
)
def delete(group: Group, broker: Broker = DEFAULT_BROKER, as_json: Json = False) -> None:
    client = connection.admin(broker)
    _require(client, group)
    connection.wait(
        client.delete_consumer_groups([group], request_timeout=ANSWER_SECONDS_MAX),
        f"could not delete {group}",
    )
    if as_json:
        print_json({"group": group, "deleted": True})
    else:
        say(f"deleted [bold]{group}[/bold]")
