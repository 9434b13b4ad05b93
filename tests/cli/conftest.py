"""The commands as users run them: real processes, against a real broker."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def documents(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fanlog", *arguments]


def environment(**more: str) -> dict[str, str]:
    """This process's, without what would change a command's answer."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("FANLOG_")}
    return {**inherited, "NO_COLOR": "1", "COLUMNS": "200", **more}


def run(*arguments: str, input: str = "", seconds: float = 30, **variables: str) -> Outcome:
    done = subprocess.run(
        command(*arguments),
        input=input,
        capture_output=True,
        text=True,
        timeout=seconds,
        env=environment(**variables),
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Outcome(done.returncode, done.stdout, done.stderr)


Fanlog = Callable[..., Outcome]


@pytest.fixture
def fanlog(broker: Any) -> Fanlog:
    """`fanlog("topic", "list")` runs that command against the session's broker."""

    def ask(*arguments: str, **more: Any) -> Outcome:
        return run(*arguments, FANLOG_BROKER=broker.kafka, **more)

    return ask


@pytest.fixture
def name() -> str:
    """A topic or group that no other test uses."""
    return f"cli-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(fanlog: Fanlog, name: str) -> str:
    """A topic of two partitions."""
    made = fanlog("topic", "create", name, "--partitions", "2")
    assert made.code == 0, made.err
    return name
