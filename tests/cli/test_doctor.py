"""`fanlog doctor`."""

import socket
from pathlib import Path
from typing import Any

from cli.conftest import Outcome, run
from fanlog.wire import records


def checks(answer: Outcome) -> dict[str, Any]:
    return {each["check"]: each for each in answer.document["checks"]}


def test_a_machine_with_a_broker_is_well(broker: Any, tmp_path: Path) -> None:
    answer = run(
        "doctor",
        *("--data", str(tmp_path), "--broker", broker.kafka, "--json"),
        FANLOG_KAFKA=broker.kafka,
        FANLOG_HTTP="127.0.0.1:0",
    )
    assert answer.code == 0, answer.out
    found = checks(answer)
    assert found["broker"]["status"] == "ok"
    assert found["kafka door"]["status"] == "ok"
    assert "fdatasync takes" in found[f"disk of {tmp_path}"]["found"]
    compiled = records.__file__.endswith(".so")
    assert found["codecs"]["status"] == ("ok" if compiled else "warn")


def test_what_is_missing_comes_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        http = f"127.0.0.1:{taken.getsockname()[1]}"
        answer = run("doctor", "--data", str(tmp_path), FANLOG_KAFKA="127.0.0.1:0", FANLOG_HTTP=http, PATH="")
    assert f"{http} is in use" in answer.out
    assert "apt install kcat" in answer.out
    assert "start one with fanlog serve" in answer.out


def test_a_data_directory_that_cannot_be_written_fails(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    answer = run("doctor", "--data", str(blocked / "data"), "--json", FANLOG_KAFKA="127.0.0.1:0")
    assert answer.code == 1
    assert answer.document["status"] == "fail"
    assert checks(answer)[f"disk of {blocked / 'data'}"]["advice"]
