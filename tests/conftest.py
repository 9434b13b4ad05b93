"""Brokers for tests.

`broker` is one broker for the whole session; tests keep apart by topics and groups of their own.
`start_broker` starts brokers with settings of their own, for one test. With FANLOG_TEST_BOOTSTRAP set to
HOST:PORT, `broker` is whatever Kafka-compatible broker listens there, and tests that need more than its
Kafka door are skipped: see README.md in this directory.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.process import BrokerProcess


@dataclass(frozen=True)
class ForeignBroker:
    """A broker that somebody else started: only its Kafka door is known."""

    kafka: str


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess | ForeignBroker]:
    bootstrap = os.environ.get("FANLOG_TEST_BOOTSTRAP")
    if bootstrap:
        yield ForeignBroker(bootstrap)
        return
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    try:
        process.start()
        yield process
        process.stop()
    finally:
        process.close()


StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """`start_broker("--topics-auto-create=false")` gives a running broker that ends with the test."""
    if os.environ.get("FANLOG_TEST_BOOTSTRAP"):
        pytest.skip("needs a broker with settings of its own, not the one at FANLOG_TEST_BOOTSTRAP")
    numbers = itertools.count(1)
    processes: list[BrokerProcess] = []

    def start(*flags: str, environment: dict[str, str] | None = None) -> BrokerProcess:
        process = BrokerProcess(tmp_path / f"broker{next(numbers)}", flags, environment)
        processes.append(process)
        return process.start()

    yield start
    for process in processes:
        process.close()
