"""The life of a group over the Kafka door, in every version of every call that it takes."""

import contextlib
import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from fanlog.doors.kafka.layouts import request_layout, response_layout
from fanlog.doors.kafka.registry import apis
from fanlog.wire import messages

from .world import subscription

FIND, JOIN, SYNC, HEARTBEAT, LEAVE = 10, 11, 14, 12, 13
COMMIT, FETCH, DESCRIBE, LIST, DELETE, DELETE_OFFSETS = 8, 9, 15, 16, 42, 47
CREATE_TOPICS = 19
NEWEST = 9


class Connection:
    """Asks one call after another, each in the version closest to the one that is being tested."""

    def __init__(self, kafka: str, version: int) -> None:
        host, _, port = kafka.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 20)
        self.answers = self.socket.makefile("rb")
        self.version = version

    def version_of(self, key: int) -> int:
        entry = apis()[key]
        return min(max(self.version, entry.oldest), entry.newest)

    def ask(self, call: int, **fields: Any) -> Any:
        version = self.version_of(call)
        request, response = request_layout(call, version), response_layout(call, version)
        head = call.to_bytes(2, "big") + version.to_bytes(2, "big") + (7).to_bytes(4, "big") + b"\x00\x03raw"
        body = bytearray(head + (b"\x00" if request.flexible else b""))
        messages.encode(body, fields, request)
        self.socket.sendall(len(body).to_bytes(4, "big") + body)
        size = int.from_bytes(self.answers.read(4), "big")
        answer = self.answers.read(size)
        assert answer[:4] == (7).to_bytes(4, "big")
        return messages.decode(answer, 5 if response.flexible else 4, response)


@pytest.fixture(params=range(NEWEST + 1))
def connection(broker: Any, request: pytest.FixtureRequest) -> Iterator[Connection]:
    opened = Connection(broker.kafka, request.param)
    with contextlib.closing(opened.socket), contextlib.closing(opened.answers):
        yield opened


def join(connection: Connection, group: str, **fields: Any) -> Any:
    wish = {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription("orders")}],
        **fields,
    }
    joined = connection.ask(JOIN, **wish)
    if joined.error_code == ErrorCode.member_id_required:
        assert connection.version_of(JOIN) >= 4
        joined = connection.ask(JOIN, **{**wish, "member_id": joined.member_id})
    return joined


def find(connection: Connection, group: str) -> Any:
    found = connection.ask(FIND, key=group, coordinator_keys=[group])
    return found.coordinators[0] if connection.version_of(FIND) >= 4 else found


def fetch(connection: Connection, group: str, topics: list[Any] | None) -> list[tuple[Any, ...]]:
    found = connection.ask(
        FETCH, group_id=group, topics=topics, groups=[{"group_id": group, "topics": topics}]
    )
    found = found.groups[0] if connection.version_of(FETCH) >= 8 else found
    return [
        (topic.name, each.partition_index, each.committed_offset, each.metadata)
        for topic in found.topics
        for each in topic.partitions
    ]


def test_a_member_lives_and_leaves(connection: Connection) -> None:
    group, topic = f"group-{uuid.uuid4()}", f"topic-{uuid.uuid4()}"
    wish = {"name": topic, "num_partitions": 2, "replication_factor": 1}
    connection.ask(CREATE_TOPICS, topics=[wish], timeout=10_000)
    found = find(connection, group)
    assert (found.error_code, f"{found.host}:{found.port}") == (
        0,
        "{}:{}".format(*connection.socket.getpeername()),
    )

    joined = join(connection, group)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)
    assert joined.protocol_name == "range"
    assert [each.member_id for each in joined.members] == [joined.member_id]
    me = {"group_id": group, "generation_id": 1, "member_id": joined.member_id}
    part = {"member_id": joined.member_id, "assignment": b"part"}
    assert connection.ask(SYNC, **me, assignments=[part]).assignment == b"part"
    assert connection.ask(HEARTBEAT, **me).error_code == 0
    assert connection.ask(HEARTBEAT, **{**me, "generation_id": 2}).error_code == ErrorCode.illegal_generation

    place = {"partition_index": 1, "committed_offset": 5, "committed_metadata": None}
    committed = connection.ask(
        COMMIT,
        **me,
        generation_id_or_member_epoch=1,
        retention_time=-1,
        topics=[{"name": topic, "partitions": [place, {**place, "partition_index": 2}]}],
    )
    [answer] = committed.topics
    expected = [0, ErrorCode.unknown_topic_or_partition]
    assert [each.error_code for each in answer.partitions] == expected
    wanted = [{"name": topic, "partition_indexes": [0, 1]}]
    assert fetch(connection, group, wanted) == [(topic, 0, -1, ""), (topic, 1, 5, "")]
    if connection.version_of(FETCH) >= 2:
        assert fetch(connection, group, None) == [(topic, 1, 5, "")]

    [described] = connection.ask(DESCRIBE, groups=[group]).groups
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    [member] = described.members
    assert (member.member_id, member.client_id, member.member_assignment) == (
        joined.member_id,
        "raw",
        b"part",
    )
    [refused] = connection.ask(DELETE, groups_names=[group]).results
    assert refused.error_code == ErrorCode.non_empty_group

    leaving = [{"member_id": joined.member_id}, {"member_id": "stranger"}]
    left = connection.ask(LEAVE, group_id=group, member_id=joined.member_id, members=leaving)
    assert left.error_code == 0
    if connection.version_of(LEAVE) >= 3:
        assert [each.error_code for each in left.members] == [0, ErrorCode.unknown_member_id]
    listed = connection.ask(LIST, states_filter=["empty"]).groups
    assert group in [each.group_id for each in listed]

    gone = connection.ask(
        DELETE_OFFSETS, group_id=group, topics=[{"name": topic, "partitions": [{"partition_index": 1}]}]
    )
    assert (gone.error_code, gone.topics[0].partitions[0].error_code) == (0, 0)
    [deleted] = connection.ask(DELETE, groups_names=[group]).results
    assert deleted.error_code == 0
    [described] = connection.ask(DESCRIBE, groups=[group]).groups
    assert described.group_state == "Dead"


def test_refusals_can_be_said_in_every_version(connection: Connection) -> None:
    group = f"group-{uuid.uuid4()}"
    assert join(connection, "").error_code == ErrorCode.invalid_group_id
    assert join(connection, group, session_timeout=1).error_code == ErrorCode.invalid_session_timeout
    assert join(connection, group, member_id="stranger").error_code == ErrorCode.unknown_member_id
    assert join(connection, group, protocols=[]).error_code == ErrorCode.inconsistent_group_protocol
    stranger = {"group_id": group, "generation_id": 1, "member_id": "stranger"}
    assert connection.ask(SYNC, **stranger, assignments=[]).error_code == ErrorCode.unknown_member_id
    assert connection.ask(HEARTBEAT, **stranger).error_code == ErrorCode.unknown_member_id
    if connection.version_of(FIND) >= 1:
        found = connection.ask(FIND, key="t", coordinator_keys=["t"], key_type=1)
        found = found.coordinators[0] if connection.version_of(FIND) >= 4 else found
        assert found.error_code == ErrorCode.transactional_id_authorization_failed
