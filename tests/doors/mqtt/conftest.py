"""One broker for all tests of the MQTT door; they keep apart by topics and clients of their own."""

import itertools
import uuid
from collections.abc import Callable, Iterator

import pytest

from fanlog.testing import RunningBroker, running_broker

from .peer import Peer

MakePeer = Callable[..., Peer]
_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def running() -> Iterator[RunningBroker]:
    with running_broker(topics_durability="os") as broker:
        yield broker


@pytest.fixture
def name() -> str:
    """A name that nobody else has: a topic, a client."""
    return f"t{next(_numbers)}-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def peer(running: RunningBroker) -> Iterator[MakePeer]:
    """`peer("id", version=4)` gives a connected client; `peer(None)` one that has not sent CONNECT."""
    made: list[Peer] = []

    def make(client_id: str | None = "", version: int = 5, **connect: object) -> Peer:
        client = Peer(running.mqtt, version)
        made.append(client)
        if client_id is not None:
            assert client.connect(client_id, **connect).reason_code == 0
        return client

    yield make
    for client in made:
        client.cut()


@pytest.fixture(params=[4, 5], ids=["v3.1.1", "v5"])
def version(request: pytest.FixtureRequest) -> int:
    return request.param
