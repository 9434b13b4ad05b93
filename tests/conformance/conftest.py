"""Clients, topics and group members for the conformance tests."""

import contextlib
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from support.process import BrokerProcess, wait_for

from .clients import (
    AiokafkaClient,
    Client,
    ConfluentClient,
    JavaClient,
    KafkaPythonClient,
    KcatClient,
    Member,
    Membership,
)
from .clients.base import PATIENCE_SECONDS
from .clients.java_client import JavaDriver

REPOSITORY = Path(__file__).parents[2]
CLIENTS = ("confluent-kafka", "aiokafka", "kafka-python", "kcat", "java")

MakeClient = Callable[[str], Client]
MakeTopic = Callable[..., str]
Join = Callable[..., Member]


@pytest.fixture(scope="session")
def java_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaDriver]:
    building = subprocess.run(
        [REPOSITORY / "scripts" / "provision", "java-driver"], capture_output=True, text=True, timeout=600
    )
    if building.returncode != 0:
        pytest.skip(building.stderr.strip())
    driver = JavaDriver(Path(building.stdout.strip()), tmp_path_factory.mktemp("java") / "stderr")
    yield driver
    driver.close()


@pytest.fixture(scope="session")
def make_client(request: pytest.FixtureRequest, broker: BrokerProcess) -> MakeClient:
    """A client by its name; skips the test where the client cannot be had."""

    def make(name: str) -> Client:
        if name == "java":
            return JavaClient(broker.kafka, request.getfixturevalue("java_driver"))
        if name == "kcat" and shutil.which("kcat") is None:
            pytest.skip("kcat is not installed: scripts/provision test")
        kinds = {kind.name: kind for kind in (ConfluentClient, AiokafkaClient, KafkaPythonClient, KcatClient)}
        return kinds[name](broker.kafka)

    return make


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, make_client: MakeClient) -> Client:
    """Each client in turn."""
    return make_client(request.param)


@pytest.fixture(scope="session")
def clients(make_client: MakeClient) -> list[Client]:
    """All the clients that can be had here."""
    found = []
    for name in CLIENTS:
        with contextlib.suppress(pytest.skip.Exception):
            found.append(make_client(name))
    return found


@pytest.fixture
def confluent(broker: BrokerProcess) -> Client:
    """The client that sets the scene where the one under test is only to look at it."""
    return ConfluentClient(broker.kafka)


@pytest.fixture(scope="session")
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.kafka})


def _known(admin: AdminClient, topic: str, partitions: int) -> bool:
    known = admin.list_topics(timeout=PATIENCE_SECONDS).topics.get(topic)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described = admin.describe_configs([resource])[resource].exception(PATIENCE_SECONDS) is None
    return described and known is not None and known.error is None and len(known.partitions) == partitions


@pytest.fixture
def make_topic(admin: AdminClient) -> Iterator[MakeTopic]:
    """`make_topic(partitions=4, config={...})` gives the name of a new topic that goes with the test."""
    made: list[str] = []

    def make(partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = f"topic-{uuid.uuid4().hex[:10]}"
        topic = NewTopic(name, partitions, 1, config=config or {})
        admin.create_topics([topic])[name].result(PATIENCE_SECONDS)
        made.append(name)
        # Apache Kafka answers before its brokers know of the topic.
        wait_for("the topic to be known", lambda: _known(admin, name, partitions), PATIENCE_SECONDS)
        return name

    yield make
    if made:
        for deletion in admin.delete_topics(made).values():
            with contextlib.suppress(Exception):  # a test of deletion has done it already
                deletion.result(PATIENCE_SECONDS)


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic()


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def join(group: str) -> Iterator[Join]:
    """`join(client, topic, name="first")` gives a member of this test's group, gone after the test."""
    members: list[Member] = []

    def join(client: Client, topic: str, **options: object) -> Member:
        member = client.join(Membership(group, topic, **options))  # type: ignore[arg-type]
        members.append(member)
        return member

    yield join
    for member in members:
        with contextlib.suppress(Exception):  # most have left already
            member.close()
