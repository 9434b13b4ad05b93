"""Consumer groups: partitions are shared, handed over and taken back, and no record is lost or read twice."""

from collections import Counter

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from support.process import wait_for

from .clients import Client, Member, Message
from .clients.base import PATIENCE_SECONDS
from .conftest import Join, MakeClient, MakeTopic

PARTITIONS = (0, 1, 2, 3)


def messages(round: str, each: int = 10) -> list[Message]:
    return [Message(f"{round} {p}-{n}".encode(), b"k", p) for p in PARTITIONS for n in range(each)]


def wait_until_read(expected: list[Message], *members: Member) -> None:
    """Until the members together have read all that is expected; each of it once."""
    wanted = {message.value for message in expected}

    def complete() -> bool:
        return all(m.check() for m in members) and wanted <= {v for m in members for v in m.values()}

    wait_for(f"{len(wanted)} records", complete, PATIENCE_SECONDS)


def wait_until_shared(*members: Member) -> None:
    """Until every partition has exactly one of the members, and every member its fair part."""

    def shared() -> bool:
        parts = [member.assignment for member in members if member.check()]
        together = sorted(partition for part in parts for partition in part)
        return together == list(PARTITIONS) and max(map(len, parts)) - min(map(len, parts)) <= 1

    wait_for(f"{len(members)} members to share the partitions", shared, PATIENCE_SECONDS)


def committed(admin: AdminClient, group: str) -> dict[int, int]:
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    return {each.partition: each.offset for each in answer.result(PATIENCE_SECONDS).topic_partitions}


def assert_each_read_once(expected: list[Message], *members: Member) -> None:
    read = Counter(value for member in members for value in member.values())
    assert read == Counter(message.value for message in expected)


def test_two_members_share_a_group_and_one_takes_over_when_the_other_leaves(
    client: Client, make_topic: MakeTopic, join: Join, admin: AdminClient, group: str
) -> None:
    topic = make_topic(partitions=4)
    alone, shared, after = messages("alone"), messages("shared"), messages("after")
    client.produce(topic, alone)
    first = join(client, topic, name="first")
    first.wait_until_assigned(*PARTITIONS)
    wait_until_read(alone, first)

    second = join(client, topic, name="second")
    wait_until_shared(first, second)
    client.produce(topic, shared)
    wait_until_read(alone + shared, first, second)
    owners = {record.partition for record in second.records}
    assert owners == second.assignment, "the second member read its own partitions and no other"

    first.close()
    second.wait_until_assigned(*PARTITIONS)
    client.produce(topic, after)
    wait_until_read(alone + shared + after, first, second)
    second.close()

    assert_each_read_once(alone + shared + after, first, second)
    assert committed(admin, group) == dict.fromkeys(PARTITIONS, 30)


def test_a_group_goes_on_where_its_commits_ended(client: Client, make_topic: MakeTopic, join: Join) -> None:
    topic = make_topic(partitions=4)
    client.produce(topic, messages("before"))
    first = join(client, topic, name="first")
    wait_until_read(messages("before"), first)
    first.close()

    client.produce(topic, messages("since"))
    second = join(client, topic, name="second")
    wait_until_read(messages("since"), second)
    second.close()

    assert_each_read_once(messages("since"), second)


def test_members_of_different_clients_share_a_group(
    make_client: MakeClient, make_topic: MakeTopic, join: Join
) -> None:
    topic = make_topic(partitions=4)
    names = ("confluent-kafka", "kafka-python", "kcat", "java")
    members = [join(make_client(name), topic, name=name) for name in names]
    wait_until_shared(*members)

    make_client("aiokafka").produce(topic, messages("mixed"))
    wait_until_read(messages("mixed"), *members)

    assert_each_read_once(messages("mixed"), *members)


def test_a_member_that_dies_is_replaced_when_its_session_ends(
    make_client: MakeClient, make_topic: MakeTopic, join: Join
) -> None:
    topic = make_topic(partitions=4)
    survivor = join(make_client("confluent-kafka"), topic, name="survivor")
    dying = join(make_client("kcat"), topic, name="dying", session_timeout_ms=1500)
    wait_until_shared(survivor, dying)

    dying.vanish()
    survivor.wait_until_assigned(*PARTITIONS)
    make_client("confluent-kafka").produce(topic, messages("after the death"))

    wait_until_read(messages("after the death"), survivor)


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    client: Client, make_topic: MakeTopic, join: Join
) -> None:
    topic = make_topic(partitions=4)
    staying = join(client, topic, name="staying", instance_id="a")
    leaving = join(client, topic, name="leaving", instance_id="b")
    wait_until_shared(staying, leaving)
    held = leaving.assignment
    assignments, revocations = staying.assignments_seen, len(staying.taken_away)

    leaving.vanish()
    back = join(client, topic, name="back", instance_id="b")
    back.wait_until_assigned(*held)
    client.produce(topic, messages("after the return"))
    wait_until_read(messages("after the return"), staying, back)

    assert (staying.assignments_seen, len(staying.taken_away)) == (assignments, revocations)


@pytest.mark.parametrize("name", ["confluent-kafka", "kafka-python", "java"])
def test_cooperative_members_keep_what_does_not_move(
    name: str, make_client: MakeClient, make_topic: MakeTopic, join: Join
) -> None:
    client = make_client(name)
    topic = make_topic(partitions=4)
    first = join(client, topic, name="first", cooperative=True)
    first.wait_until_assigned(*PARTITIONS)
    client.produce(topic, messages("alone"))
    wait_until_read(messages("alone"), first)

    second = join(client, topic, name="second", cooperative=True)
    wait_until_shared(first, second)
    moved = {partition for taken in first.taken_away for partition in taken}
    assert moved == second.assignment, "only what the second member got was taken from the first"

    client.produce(topic, messages("shared"))
    wait_until_read(messages("alone") + messages("shared"), first, second)
    second.close()
    first.wait_until_assigned(*PARTITIONS)
    assert_each_read_once(messages("alone") + messages("shared"), first, second)
