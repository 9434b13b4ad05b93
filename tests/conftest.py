"""Brokers for tests.

`broker` is one broker for the whole session; tests keep apart by topics and groups of their own.
`start_broker` starts brokers with settings of their own, for one test. With FANLOG_TEST_BOOTSTRAP set to
HOST:PORT, `broker` is whatever Kafka-compatible broker listens there, and tests that need more than its
Kafka door are skipped: see README.md in this directory.
"""

import contextlib
import itertools
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.process import BrokerProcess


@dataclass(frozen=True)
class ForeignBroker:
    """A broker that somebody else started: only its Kafka door is known."""

    kafka: str


_running: list[BrokerProcess] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What the brokers said belongs to the report of a test that failed."""
    report = yield
    if report.failed:
        for process in _running:
            report.sections.append(
                (f"standard error of the broker at {process.kafka}", process.stderr[-4000:])
            )
    return report


@contextlib.contextmanager
def _reported(process: BrokerProcess) -> Iterator[BrokerProcess]:
    _running.append(process)
    try:
        yield process
    finally:
        process.close()
        _running.remove(process)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess | ForeignBroker]:
    bootstrap = os.environ.get("FANLOG_TEST_BOOTSTRAP")
    if bootstrap:
        yield ForeignBroker(bootstrap)
        return
    with _reported(BrokerProcess(tmp_path_factory.mktemp("broker"))) as process:
        yield process.start()
        process.stop()


StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """`start_broker("--topics-auto-create=false")` gives a running broker that ends with the test."""
    if os.environ.get("FANLOG_TEST_BOOTSTRAP"):
        pytest.skip("needs a broker with settings of its own, not the one at FANLOG_TEST_BOOTSTRAP")
    numbers = itertools.count(1)
    with contextlib.ExitStack() as started:

        def start(*flags: str, environment: dict[str, str] | None = None) -> BrokerProcess:
            process = BrokerProcess(tmp_path / f"broker{next(numbers)}", flags, environment)
            return started.enter_context(_reported(process)).start()

        yield start
