"""Administration with kafka-python's admin client."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from kafka.structs import OffsetAndMetadata

from support.process import BrokerProcess, wait_for

from .clients import Client, Message
from .clients.base import PATIENCE_SECONDS
from .conftest import Join, MakeTopic


@pytest.fixture(scope="module")
def python_admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.kafka)
    yield client
    client.close()


def partitions_of(admin: KafkaAdminClient, topic: str) -> int:
    [described] = admin.describe_topics([topic])
    return len(described["partitions"])


def config_of(admin: KafkaAdminClient, topic: str) -> dict[str, Any]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    [of_type] = admin.describe_configs([resource], config_filter="all").values()
    found: dict[str, Any] = of_type[topic]
    return found


def alter(admin: KafkaAdminClient, topic: str, configs: dict[str, object], *, incremental: bool) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs)
    admin.alter_configs([resource], incremental=incremental)


def test_a_topic_is_created_grown_and_deleted(python_admin: KafkaAdminClient) -> None:
    name = f"topic-{uuid.uuid4().hex[:10]}"
    python_admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1}}, wait_for_metadata=True)
    assert name in python_admin.list_topics()
    assert partitions_of(python_admin, name) == 2
    with pytest.raises(TopicAlreadyExistsError):
        python_admin.create_topics([name])

    python_admin.create_partitions({name: 5})
    wait_for("the new partitions", lambda: partitions_of(python_admin, name) == 5, PATIENCE_SECONDS)

    python_admin.delete_topics([name])
    wait_for("its end", lambda: name not in python_admin.list_topics(), PATIENCE_SECONDS)
    with pytest.raises(UnknownTopicOrPartitionError):
        python_admin.delete_topics([name])


@pytest.mark.parametrize("incremental", [True, False])
def test_configs_are_described_and_altered(
    python_admin: KafkaAdminClient, make_topic: MakeTopic, incremental: bool
) -> None:
    topic = make_topic(config={"retention.ms": "86400000"})
    assert config_of(python_admin, topic)["retention.ms"]["value"] == "86400000"

    alter(python_admin, topic, {"max.message.bytes": "5000"}, incremental=incremental)

    def altered() -> bool:
        return bool(config_of(python_admin, topic)["max.message.bytes"]["value"] == "5000")

    wait_for("the new limit", altered, PATIENCE_SECONDS)
    # With the older call it is the client that repeats what is to stay.
    assert config_of(python_admin, topic)["retention.ms"]["value"] == "86400000"


def test_a_config_goes_back_to_its_default(python_admin: KafkaAdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(config={"retention.ms": "86400000"})
    alter(python_admin, topic, {"retention.ms": (AlterConfigOp.DELETE, None)}, incremental=True)

    def default() -> bool:
        return bool(config_of(python_admin, topic)["retention.ms"]["value"] != "86400000")

    wait_for("the default", default, PATIENCE_SECONDS)


def test_records_are_deleted_up_to_an_offset(
    python_admin: KafkaAdminClient, confluent: Client, topic: str
) -> None:
    confluent.produce(topic, [Message(b"%d" % n, b"k") for n in range(20)])
    partition = TopicPartition(topic, 0)

    python_admin.delete_records({partition: 12})

    listed = python_admin.list_partition_offsets({partition: OffsetSpec.EARLIEST})
    assert listed[partition].offset == 12
    listed = python_admin.list_partition_offsets({partition: OffsetSpec.LATEST})
    assert listed[partition].offset == 20


def test_a_group_is_listed_described_moved_and_deleted(
    python_admin: KafkaAdminClient, make_client: Any, topic: str, join: Join, group: str
) -> None:
    client = make_client("kafka-python")
    client.produce(topic, [Message(b"%d" % n, b"k") for n in range(10)])
    partition = TopicPartition(topic, 0)
    member = join(client, topic)
    wait_for("the records", lambda: member.check() and len(member.records) == 10, PATIENCE_SECONDS)
    assert group in {each["group_id"] for each in python_admin.list_groups()}
    described = python_admin.describe_groups([group])[group]
    assert described["group_state"] == "Stable"
    assert len(described["members"]) == 1
    member.close()

    assert python_admin.describe_groups([group])[group]["group_state"] == "Empty"
    assert python_admin.list_group_offsets({group: None})[group][partition].offset == 10
    python_admin.alter_group_offsets(group, {partition: OffsetAndMetadata(4, "moved", -1)})
    moved = python_admin.list_group_offsets({group: None})[group][partition]
    assert (moved.offset, moved.metadata) == (4, "moved")

    python_admin.delete_groups([group])
    assert group not in {each["group_id"] for each in python_admin.list_groups()}


def test_the_cluster_names_itself_and_its_broker(python_admin: KafkaAdminClient) -> None:
    cluster = python_admin.describe_cluster()

    assert cluster["cluster_id"]
    assert len(cluster["brokers"]) == 1
