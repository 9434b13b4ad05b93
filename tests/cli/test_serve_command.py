"""`fanlog serve` and its settings, and what every command says when there is no broker."""

import socket
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Fanlog, run
from fanlog import config


def test_a_flag_wins_over_the_environment_and_the_environment_over_the_file(
    start_broker: Any, tmp_path: Path
) -> None:
    file = tmp_path / "fanlog.toml"
    file.write_text("[topics]\npartitions = 2\nsegment_ms = 11111\nretention_ms = 22222\n")
    variables = {"FANLOG_TOPICS_PARTITIONS": "3", "FANLOG_TOPICS_SEGMENT_MS": "33333"}
    broker = start_broker("--config", str(file), "--topics-partitions", "4", environment=variables)

    made = run("topic", "create", "t", "--json", FANLOG_BROKER=broker.kafka).document
    assert made["partitions"] == 4
    settings = run("topic", "describe", "t", "--all", "--json", FANLOG_BROKER=broker.kafka).document["config"]
    assert settings["segment.ms"] == "33333"
    assert settings["retention.ms"] == "22222"


def test_every_setting_is_a_flag() -> None:
    shown = run("serve", "--help").out
    missing = [name.flag for name in config.names() if name.flag not in shown]
    assert missing == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('[topics]\ndurabilty = "os"\n', "did you mean topics.durability?"),
        ('[topics]\ndurability = "tape"\n', "memory, os, disk"),
        ("[topics]\npartitions = 0\n", "topics.partitions is at least 1"),
        ("[topics\n", "not a TOML file"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "fanlog.toml"
    file.write_text(line)
    answer = run("serve", "--config", str(file))
    assert answer.code == 2
    assert said in answer.err
    assert str(file) in answer.err


def test_a_wrong_flag_and_a_wrong_variable_are_named() -> None:
    flag = run("serve", "--topics-partitions", "many")
    assert flag.code == 2
    assert "--topics-partitions: topics.partitions takes a whole number" in flag.err
    variable = run("serve", FANLOG_LOG_LEVEL="loud")
    assert variable.code == 2
    assert "FANLOG_LOG_LEVEL: log_level is one of" in variable.err


def test_an_address_must_be_one() -> None:
    answer = run("serve", "--kafka", "9092")
    assert answer.code == 2
    assert "HOST:PORT" in answer.err


def test_a_port_that_is_taken_is_said_to_be(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        answer = run("serve", "--data", str(tmp_path / "data"), "--kafka", address, "--http", "none")
    assert answer.code == 2
    assert "in use" in answer.err


def test_a_data_directory_has_one_broker(broker: Any) -> None:
    answer = run("serve", "--data", str(broker.data), "--kafka", "127.0.0.1:0", "--http", "none")
    assert answer.code == 2
    assert "in use by another broker" in answer.err


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    "arguments", [("topic", "list"), ("group", "list", "--json"), ("pub", "t", "1"), ("sub", "t")]
)
def test_without_a_broker_a_command_says_how_to_start_one(nobody: str, arguments: tuple[str, ...]) -> None:
    answer = run(*arguments, "--broker", nobody)
    assert answer.code == 1
    assert answer.out == ""
    assert f"no broker answers at {nobody}: start one with `fanlog serve`" in answer.err


def test_help_teaches_with_examples() -> None:
    assert "fanlog pub sensors 21.5" in run("--help").out
    assert "fanlog group reset dashboard --topic sensors --to earliest" in run("group", "reset", "--help").out


def test_the_version_is_the_packages(fanlog: Fanlog) -> None:
    from fanlog import __version__

    assert fanlog("--version").out == f"fanlog {__version__}\n"


def test_an_option_that_does_not_exist_is_a_matter_of_usage() -> None:
    assert run("topic", "list", "--everything").code == 2
