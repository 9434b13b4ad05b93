"""Administration with confluent-kafka's AdminClient."""

import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from support.process import wait_for

from .clients import Client, Message
from .clients.base import PATIENCE_SECONDS
from .conftest import Join, MakeTopic


def only(futures: Mapping[Any, Future[Any]]) -> Any:
    """The result of the one thing that was asked for."""
    [future] = futures.values()
    return future.result(PATIENCE_SECONDS)


def refusal(futures: Mapping[Any, Future[Any]]) -> int:
    """The error code with which the one thing that was asked for is refused."""
    with pytest.raises(KafkaException) as refused:
        only(futures)
    return int(refused.value.args[0].code())


def partitions_of(admin: AdminClient, topic: str) -> int | None:
    found = admin.list_topics(timeout=PATIENCE_SECONDS).topics.get(topic)
    return None if found is None else len(found.partitions)


def config_of(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    entries: dict[str, ConfigEntry] = only(
        admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
    )
    return entries


def numbered(count: int, partition: int = 0) -> list[Message]:
    return [Message(b"%d" % n, b"k", partition) for n in range(count)]


def test_a_topic_is_created_grown_and_deleted(admin: AdminClient) -> None:
    name = f"topic-{uuid.uuid4().hex[:10]}"
    only(admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "3600000"})]))
    wait_for("the topic", lambda: partitions_of(admin, name) == 2, PATIENCE_SECONDS)

    only(admin.create_partitions([NewPartitions(name, 5)]))
    wait_for("its new partitions", lambda: partitions_of(admin, name) == 5, PATIENCE_SECONDS)

    only(admin.delete_topics([name]))
    wait_for("its end", lambda: partitions_of(admin, name) is None, PATIENCE_SECONDS)


def test_what_cannot_be_is_refused_by_its_name(admin: AdminClient, topic: str) -> None:
    assert refusal(admin.create_topics([NewTopic(topic, 1, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS
    assert refusal(admin.create_topics([NewTopic("no/name", 1, 1)])) == KafkaError.TOPIC_EXCEPTION
    assert (
        refusal(admin.create_topics([NewTopic("many-copies", 1, 3)])) == KafkaError.INVALID_REPLICATION_FACTOR
    )
    wrong = NewTopic("wrong-config", 1, 1, config={"retention.ms": "soon"})
    assert refusal(admin.create_topics([wrong])) == KafkaError.INVALID_CONFIG
    assert refusal(admin.delete_topics(["never-created"])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert refusal(admin.create_partitions([NewPartitions(topic, 1)])) == KafkaError.INVALID_PARTITIONS


def test_a_creation_can_be_tried_without_doing_it(admin: AdminClient) -> None:
    name = f"topic-{uuid.uuid4().hex[:10]}"
    only(admin.create_topics([NewTopic(name, 2, 1)], validate_only=True))

    assert partitions_of(admin, name) is None


def test_a_deleted_topic_comes_back_empty(admin: AdminClient, confluent: Client, topic: str) -> None:
    confluent.produce(topic, numbered(10))
    only(admin.delete_topics([topic]))
    wait_for("its end", lambda: partitions_of(admin, topic) is None, PATIENCE_SECONDS)

    only(admin.create_topics([NewTopic(topic, 1, 1)]))
    confluent.produce(topic, [Message(b"new", b"k")])

    assert [(record.offset, record.value) for record in confluent.read(topic, 1)] == [(0, b"new")]


def test_configs_given_at_creation_are_described(admin: AdminClient, make_topic: MakeTopic) -> None:
    config = config_of(admin, make_topic(config={"cleanup.policy": "compact", "retention.ms": "86400000"}))

    assert config["cleanup.policy"].value == "compact"
    assert config["retention.ms"].value == "86400000"
    assert not config["retention.ms"].is_default
    assert config["max.message.bytes"].is_default


def test_configs_are_altered_one_by_one(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(config={"retention.ms": "86400000"})

    def alter(name: str, value: str | None, operation: AlterConfigOpType) -> None:
        change = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
        only(admin.incremental_alter_configs([resource]))

    def described(name: str) -> str:
        return str(config_of(admin, topic)[name].value)

    alter("max.message.bytes", "5000", AlterConfigOpType.SET)
    wait_for("the new limit", lambda: described("max.message.bytes") == "5000", PATIENCE_SECONDS)
    assert described("retention.ms") == "86400000", "what was not named stays"

    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    both = {"compact", "delete"}
    wait_for("both policies", lambda: set(described("cleanup.policy").split(",")) == both, PATIENCE_SECONDS)
    alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    wait_for("one policy", lambda: described("cleanup.policy") == "compact", PATIENCE_SECONDS)

    alter("retention.ms", None, AlterConfigOpType.DELETE)
    wait_for("the default", lambda: config_of(admin, topic)["retention.ms"].is_default, PATIENCE_SECONDS)


def test_configs_are_replaced_all_together_by_the_older_call(
    admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(config={"retention.ms": "86400000"})
    replacement = ConfigResource(ResourceType.TOPIC, topic, set_config={"max.message.bytes": "5000"})
    only(admin.alter_configs([replacement]))

    def replaced() -> bool:
        config = config_of(admin, topic)
        return config["max.message.bytes"].value == "5000" and config["retention.ms"].is_default

    wait_for("the new limit and nothing else", replaced, PATIENCE_SECONDS)


def test_a_config_that_is_no_config_is_refused(admin: AdminClient, topic: str) -> None:
    wrong = ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[wrong])
    assert refusal(admin.incremental_alter_configs([resource])) == KafkaError.INVALID_CONFIG


def test_records_are_deleted_up_to_an_offset(admin: AdminClient, confluent: Client, topic: str) -> None:
    confluent.produce(topic, numbered(20))

    deleted = only(admin.delete_records([TopicPartition(topic, 0, 12)]))

    assert deleted.low_watermark == 12
    assert [record.offset for record in confluent.read(topic, 8)] == list(range(12, 20))
    beyond = admin.delete_records([TopicPartition(topic, 0, 21)])
    assert refusal(beyond) == KafkaError.OFFSET_OUT_OF_RANGE


def test_offsets_are_listed_by_their_kind(admin: AdminClient, confluent: Client, topic: str) -> None:
    start = 1_700_000_000_000
    # The newest time is in the middle, so that it is not simply the last record that has it.
    times = [start, start + 3000, start + 9000, start + 5000]
    confluent.produce(topic, [Message(b"v", b"k", 0, at) for at in times])
    only(admin.delete_records([TopicPartition(topic, 0, 1)]))

    def listed(spec: OffsetSpec) -> int:
        return int(only(admin.list_offsets({TopicPartition(topic, 0): spec})).offset)

    assert listed(OffsetSpec.earliest()) == 1
    assert listed(OffsetSpec.latest()) == 4
    assert listed(OffsetSpec.max_timestamp()) == 2
    assert listed(OffsetSpec.for_timestamp(start + 3001)) == 2


def test_a_group_is_listed_described_and_deleted(
    admin: AdminClient, confluent: Client, make_topic: MakeTopic, join: Join, group: str
) -> None:
    topic = make_topic(partitions=2)
    confluent.produce(topic, numbered(5))
    member = join(confluent, topic)
    member.wait_until_assigned(0, 1)
    wait_for("the records", lambda: member.check() and len(member.records) == 5, PATIENCE_SECONDS)

    described = only(admin.describe_consumer_groups([group]))
    assert described.state == ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    [seen] = described.members
    assert {each.partition for each in seen.assignment.topic_partitions} == {0, 1}
    listing = admin.list_consumer_groups().result(PATIENCE_SECONDS)
    assert {each.group_id: each.state for each in listing.valid}[group] == ConsumerGroupState.STABLE
    assert refusal(admin.delete_consumer_groups([group])) == KafkaError.NON_EMPTY_GROUP

    member.close()
    assert only(admin.describe_consumer_groups([group])).state == ConsumerGroupState.EMPTY
    only(admin.delete_consumer_groups([group]))
    listing = admin.list_consumer_groups().result(PATIENCE_SECONDS)
    assert group not in {each.group_id for each in listing.valid}


def test_offsets_of_a_group_are_moved_while_nobody_is_in_it(
    admin: AdminClient, confluent: Client, topic: str, join: Join, group: str
) -> None:
    confluent.produce(topic, numbered(10))
    to_seven = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])
    only(admin.alter_consumer_group_offsets([to_seven]))

    listed = only(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    assert [(each.topic, each.offset) for each in listed.topic_partitions] == [(topic, 7)]
    member = join(confluent, topic)
    wait_for("the last records", lambda: member.check() and len(member.records) == 3, PATIENCE_SECONDS)
    assert member.values() == [b"7", b"8", b"9"]
    [refused] = only(admin.alter_consumer_group_offsets([to_seven])).topic_partitions
    assert refused.error.code() == KafkaError.UNKNOWN_MEMBER_ID


def test_the_cluster_names_itself_and_its_broker(admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(PATIENCE_SECONDS)

    assert cluster.cluster_id
    assert len(cluster.nodes) == 1
    assert cluster.controller.id == cluster.nodes[0].id
