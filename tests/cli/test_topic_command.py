"""`fanlog topic`."""

from cli.conftest import Fanlog


def test_a_topic_is_created_described_altered_and_deleted(fanlog: Fanlog, name: str) -> None:
    created = fanlog("topic", "create", name, "-p", "3", "-c", "retention.ms=60000", "--json")
    assert created.document == {"topic": name, "partitions": 3, "config": {"retention.ms": "60000"}}

    listed = {each["topic"]: each for each in fanlog("topic", "list", "--json").document}
    assert listed[name] == {"topic": name, "partitions": 3, "records": 0}

    altered = fanlog(
        "topic", "alter", name, "-p", "4", "-c", "segment.bytes=1048576", "--unset", "retention.ms"
    )
    assert altered.code == 0, altered.err

    described = fanlog("topic", "describe", name, "--json").document
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2, 3]
    assert {each["records"] for each in described["partitions"]} == {0}
    assert described["config"] == {"segment.bytes": "1048576"}

    assert fanlog("topic", "delete", name, "--json").document == {"topic": name, "deleted": True}
    assert name not in fanlog("topic", "list").out


def test_a_topic_has_as_many_partitions_as_the_broker_says_unless_told(fanlog: Fanlog, name: str) -> None:
    assert fanlog("topic", "create", name, "--json").document["partitions"] == 1


def test_every_setting_of_a_topic_can_be_seen(fanlog: Fanlog, topic: str) -> None:
    settings = fanlog("topic", "describe", topic, "--all", "--json").document["config"]
    assert settings["cleanup.policy"] == "delete"
    assert settings["fanlog.durability"] == "disk"


def test_people_get_a_table(fanlog: Fanlog, topic: str) -> None:
    described = fanlog("topic", "describe", topic)
    assert "end offset" in described.out
    assert "the broker's defaults" in described.out


def test_an_unknown_topic_is_answered_with_the_names_near_it(fanlog: Fanlog, topic: str) -> None:
    answer = fanlog("topic", "describe", topic[:-1] + "x" + topic[-1])
    assert answer.code == 1
    assert answer.out == ""
    assert f"did you mean {topic}" in answer.err


def test_a_topic_that_exists_is_not_created_again(fanlog: Fanlog, topic: str) -> None:
    answer = fanlog("topic", "create", topic)
    assert answer.code == 1
    assert "fanlog topic alter" in answer.err


def test_a_setting_that_does_not_exist_is_refused_by_name(fanlog: Fanlog, name: str) -> None:
    answer = fanlog("topic", "create", name, "--config", "retention.hours=1")
    assert answer.code == 1
    assert "retention.hours" in answer.err


def test_partitions_are_never_taken_away(fanlog: Fanlog, topic: str) -> None:
    answer = fanlog("topic", "alter", topic, "--partitions", "1")
    assert answer.code == 1
    assert "never taken away" in answer.err


def test_a_setting_without_a_value_is_a_matter_of_usage(fanlog: Fanlog, name: str) -> None:
    answer = fanlog("topic", "create", name, "--config", "retention.ms")
    assert answer.code == 2
    assert "NAME=VALUE" in answer.err
