"""`fanlog pub` and `fanlog sub`."""

import json
import signal
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cli.conftest import Fanlog, command, environment
from support.process import wait_for


def test_a_record_is_published_with_key_and_headers_and_read_back(fanlog: Fanlog, topic: str) -> None:
    published = fanlog("pub", topic, "21.5", "--key", "site1/dev42", "--header", "unit=C", "--json").document
    assert published["records"] == 1
    [place] = published["last"]

    [record] = fanlog("sub", topic, "--no-follow", "--format", "json").documents
    assert record["key"] == "site1/dev42"
    assert record["value"] == "21.5"
    assert record["headers"] == [{"name": "unit", "value": "C"}]
    assert {"partition": record["partition"], "offset": record["offset"]} == place


def test_every_line_of_standard_input_is_a_record(fanlog: Fanlog, topic: str) -> None:
    lines = [f"reading {number}" for number in range(2000)]
    published = fanlog("pub", topic, "--partition", "1", input="\n".join(lines) + "\n")
    assert "published 2,000 records" in published.out, published.err
    assert fanlog("sub", topic, "--no-follow").out.splitlines() == lines


def test_every_line_of_a_file_is_a_record(fanlog: Fanlog, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "readings"
    file.write_text("one\r\ntwo\n\nfour")
    assert fanlog("pub", topic, "--file", str(file), "--json").document["records"] == 4
    assert sorted(fanlog("sub", topic, "--no-follow").out.splitlines()) == ["", "four", "one", "two"]


def test_a_file_that_is_not_there_is_named(fanlog: Fanlog, topic: str) -> None:
    answer = fanlog("pub", topic, "--file", "no-such-file")
    assert answer.code == 1
    assert "no-such-file: No such file" in answer.err


def test_values_that_are_not_text_are_given_in_base64(fanlog: Fanlog, topic: str, broker: Any) -> None:
    done = subprocess.run(
        command("pub", topic),
        input=b"\xff\xfe\n",
        capture_output=True,
        env=environment(FANLOG_BROKER=broker.kafka),
    )
    assert done.returncode == 0, done.stderr
    [record] = fanlog("sub", topic, "--no-follow", "--json").documents
    assert "value" not in record
    assert record["value_base64"] == "//4="


def test_reading_begins_where_it_is_told_to(fanlog: Fanlog, topic: str) -> None:
    fanlog("pub", topic, "--partition", "0", input="".join(f"{number}\n" for number in range(10)))

    def read(begin: str, *more: str) -> list[str]:
        return fanlog("sub", topic, "--no-follow", "--partition", "0", "--from", begin, *more).out.split()

    assert read("7") == ["7", "8", "9"]
    assert read("earliest", "--count", "2") == ["0", "1"]
    assert read("-1h") == [str(number) for number in range(10)]
    assert read("latest") == []
    assert read(datetime.now(UTC).isoformat()) == []


def test_a_place_that_cannot_be_understood_is_a_matter_of_usage(fanlog: Fanlog, topic: str) -> None:
    answer = fanlog("sub", topic, "--from", "yesterday")
    assert answer.code == 2
    assert "earliest, latest, an offset, a time" in answer.err


def test_a_topic_that_does_not_exist_cannot_be_read(fanlog: Fanlog, name: str) -> None:
    answer = fanlog("sub", f"{name}-unknown")
    assert answer.code == 1
    assert f"there is no topic {name}-unknown" in answer.err


def test_a_partition_that_does_not_exist_cannot_be_read(fanlog: Fanlog, topic: str) -> None:
    answer = fanlog("sub", topic, "--partition", "2")
    assert answer.code == 1
    assert "has no partition 2: it has 0 to 1" in answer.err


def test_following_prints_records_as_they_come_until_it_is_interrupted(
    fanlog: Fanlog, topic: str, broker: Any, tmp_path: Path
) -> None:
    fanlog("pub", topic, "first")
    output = tmp_path / "output"
    with output.open("wb") as file:
        follower = subprocess.Popen(
            command("sub", topic, "--from", "earliest"),
            stdout=file,
            env=environment(FANLOG_BROKER=broker.kafka),
        )
    try:
        wait_for("the first record", lambda: output.read_text() == "first\n", seconds=20)
        fanlog("pub", topic, "second")
        wait_for("the second record", lambda: output.read_text() == "first\nsecond\n", seconds=20)
        follower.send_signal(signal.SIGINT)
        assert follower.wait(10) == 0
    finally:
        follower.kill()
        follower.wait()


def test_a_reader_that_goes_away_ends_it_quietly(fanlog: Fanlog, topic: str, broker: Any) -> None:
    fanlog("pub", topic, input="".join(f"{number}\n" for number in range(5000)))
    reader = subprocess.Popen(
        command("sub", topic, "--from", "earliest", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(FANLOG_BROKER=broker.kafka),
    )
    assert reader.stdout is not None
    assert json.loads(reader.stdout.readline())["offset"] == 0
    reader.stdout.close()
    assert reader.stderr is not None
    assert reader.stderr.read() == b""
    assert reader.wait(10) == 0
