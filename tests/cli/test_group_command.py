"""`fanlog group`, and `fanlog sub --group`."""

import subprocess
from typing import Any

from cli.conftest import Fanlog, Outcome, command, environment
from support.process import wait_for


def read(fanlog: Fanlog, topic: str, group: str, *more: str) -> Outcome:
    return fanlog("sub", topic, "--group", group, "--from", "earliest", "--no-follow", *more)


def test_a_group_goes_on_where_it_was_and_can_be_moved(fanlog: Fanlog, topic: str) -> None:
    group = f"{topic}-group"
    fanlog("pub", topic, "--partition", "0", input="".join(f"{number}\n" for number in range(10)))
    assert read(fanlog, topic, group, "--count", "4").out.split() == ["0", "1", "2", "3"]

    described = fanlog("group", "describe", group, "--json").document
    assert described["state"] == "empty"
    assert described["lag"] == 6
    [partition] = [each for each in described["partitions"] if each["partition"] == 0]
    assert (partition["committed"], partition["end"], partition["lag"]) == (4, 10, 6)

    tried = fanlog("group", "reset", group, "--topic", topic, "--to", "8", "--dry-run", "--json").document
    assert {"partition": 0, "before": 4, "after": 8} in tried["partitions"]
    assert read(fanlog, topic, group, "--count", "1").out.split() == ["4"]

    moved = fanlog("group", "reset", group, "--topic", topic, "--to", "8", "--json").document
    assert {"partition": 0, "before": 5, "after": 8} in moved["partitions"]
    assert read(fanlog, topic, group).out.split() == ["8", "9"]

    back = fanlog("group", "reset", group, "--topic", topic, "--to", "-1h", "--partition", "0", "--json")
    assert back.document["partitions"] == [{"partition": 0, "before": 10, "after": 0}]

    assert group in [each["group"] for each in fanlog("group", "list", "--json").document]
    assert fanlog("group", "delete", group).code == 0
    assert group not in [each["group"] for each in fanlog("group", "list", "--json").document]


def test_a_group_with_members_shows_them_and_is_neither_moved_nor_deleted(
    fanlog: Fanlog, topic: str, broker: Any
) -> None:
    group = f"{topic}-group"
    member = subprocess.Popen(
        command("sub", topic, "--group", group), env=environment(FANLOG_BROKER=broker.kafka)
    )
    try:

        def described() -> Any:
            answer = fanlog("group", "describe", group, "--json")
            found = answer.document if answer.code == 0 else {"state": "unknown"}
            return found if found["state"] == "stable" else None

        found = wait_for("a stable group", described, seconds=20, every=0.2)
        assert [each["partitions"] for each in found["members"]] == [2]
        assert {each["member"] for each in found["partitions"]} == {found["members"][0]["member"]}

        moved = fanlog("group", "reset", group, "--topic", topic, "--to", "earliest")
        assert moved.code == 1
        assert "has 1 member: stop" in moved.err

        deleted = fanlog("group", "delete", group)
        assert deleted.code == 1
        assert "stop the group's members first" in deleted.err

        # Told to stop, it leaves the group at once, rather than be missed after its session.
        member.terminate()
        assert member.wait(10) == 0
        assert fanlog("group", "describe", group, "--json").document["members"] == []
    finally:
        member.kill()
        member.wait()


def test_an_unknown_group_is_said_to_be_unknown(fanlog: Fanlog, name: str) -> None:
    answer = fanlog("group", "describe", name)
    assert answer.code == 1
    assert f"there is no group {name}" in answer.err


def test_a_group_keeps_its_own_offsets(fanlog: Fanlog, topic: str) -> None:
    answer = fanlog("sub", topic, "--group", "any", "--from", "17")
    assert answer.code == 2
    assert "fanlog group reset any" in answer.err
