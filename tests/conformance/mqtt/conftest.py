"""A broker with an MQTT door, and the clients that speak to it."""

import contextlib
import itertools
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.process import BrokerProcess

from .clients import (
    AiomqttConnection,
    Connection,
    GmqttConnection,
    JsConnection,
    JsDriver,
    PahoConnection,
)

REPOSITORY = Path(__file__).parents[3]
KINDS: dict[str, type[Connection]] = {
    kind.name: kind for kind in (PahoConnection, AiomqttConnection, GmqttConnection, JsConnection)
}
Connect = Callable[..., Connection]
_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def mqtt_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("mqtt-broker"), ["--mqtt=127.0.0.1:0"])
    try:
        yield process.start()
        process.stop()
    finally:
        process.close()


@pytest.fixture(scope="session")
def js_driver() -> Iterator[JsDriver]:
    found = subprocess.run(
        [REPOSITORY / "scripts" / "provision", "mqtt-js"], capture_output=True, text=True, timeout=300
    )
    if found.returncode != 0:
        pytest.skip(found.stderr.strip())
    driver = JsDriver(Path(found.stdout.strip()))
    yield driver
    driver.close()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> type[Connection]:
    """Each client in turn."""
    if request.param == JsConnection.name:
        JsConnection.driver = request.getfixturevalue("js_driver")
    return KINDS[request.param]


@pytest.fixture(params=[4, 5], ids=["v3.1.1", "v5"])
def version(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def connect(mqtt_broker: BrokerProcess, kind: type[Connection], version: int) -> Iterator[Connect]:
    """`connect("id", clean=False)` gives a connection of the client under test."""
    made: list[Connection] = []

    def make(client_id: str = "", **options: object) -> Connection:
        made.append(
            kind(mqtt_broker.doors["mqtt"], client_id or f"c-{uuid.uuid4().hex[:8]}", version, **options)
        )
        return made[-1]

    yield make
    for connection in made:
        with contextlib.suppress(Exception):
            connection.disconnect()


@pytest.fixture
def topic() -> str:
    return f"topic{next(_numbers)}-{uuid.uuid4().hex[:6]}"
