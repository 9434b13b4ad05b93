"""mosquitto_pub and mosquitto_sub, as they come with Debian."""

import json
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from support.process import BrokerProcess

pytestmark = pytest.mark.skipif(
    shutil.which("mosquitto_sub") is None, reason="mosquitto-clients is not installed: scripts/provision test"
)
PATIENCE_SECONDS = 20
VERSIONS = {4: "mqttv311", 5: "mqttv5"}


class Listener:
    """A mosquitto_sub; ready when the broker has granted its subscriptions."""

    def __init__(self, command: list[str]) -> None:
        # With -d it says when that is. Its messages are JSON.
        self.process = subprocess.Popen(
            ["stdbuf", "-oL", "mosquitto_sub", "-d", "-F", "%j", *command], stdout=subprocess.PIPE, text=True
        )
        # Messages of a session that was kept may come before.
        self.early: deque[str] = deque()
        self._until("received SUBACK")

    def _until(self, wanted: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if wanted in line:
                return line
            if line.startswith("{"):
                self.early.append(line)
        raise AssertionError("mosquitto_sub has ended")

    def message(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.early.popleft() if self.early else self._until('{"tst"'))
        return found

    def messages(self, count: int) -> list[dict[str, object]]:
        return [self.message() for _ in range(count)]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)


@pytest.fixture
def common(mqtt_broker: BrokerProcess, version: int) -> list[str]:
    host, _, port = mqtt_broker.doors["mqtt"].rpartition(":")
    return ["-h", host, "-p", port, "-V", VERSIONS[version]]


Listen = Callable[..., Listener]
Publish = Callable[..., None]


@pytest.fixture
def listen(common: list[str]) -> Iterator[Listen]:
    made: list[Listener] = []

    def make(*command: str) -> Listener:
        made.append(Listener([*common, *command]))
        return made[-1]

    yield make
    for listener in made:
        if listener.process.poll() is None:
            listener.kill()


@pytest.fixture
def publish(common: list[str]) -> Publish:
    def publish(*command: str) -> None:
        subprocess.run(["mosquitto_pub", *common, *command], check=True, timeout=PATIENCE_SECONDS)

    return publish


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_messages_arrive(listen: Listen, publish: Publish, topic: str, qos: str) -> None:
    listener = listen("-t", f"{topic}/+/#", "-q", qos)
    publish("-t", f"{topic}/a/b", "-q", qos, "-m", "hello")
    message = listener.message()
    assert (message["topic"], message["payload"], message["qos"]) == (f"{topic}/a/b", "hello", int(qos))


def test_the_first_message_of_a_topic_is_not_lost_with_its_sender(
    listen: Listen, publish: Publish, topic: str
) -> None:
    """mosquitto_pub is gone before the topic is there."""
    listener = listen("-t", f"{topic}-1/#", "-t", f"{topic}-2/#")
    for number in (1, 2):
        publish("-t", f"{topic}-{number}/a", "-m", str(number))
    assert {message["payload"] for message in listener.messages(2)} == {"1", "2"}


def test_lines_arrive_in_order(common: list[str], listen: Listen, topic: str) -> None:
    listener = listen("-t", topic, "-q", "1")
    lines = "".join(f"line {number}\n" for number in range(500))
    subprocess.run(
        ["mosquitto_pub", *common, "-t", topic, "-q", "1", "-l"],
        input=lines,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert [message["payload"] for message in listener.messages(500)] == lines.splitlines()


def test_retained_messages(listen: Listen, publish: Publish, topic: str) -> None:
    publish("-t", f"{topic}/a", "-q", "1", "-r", "-m", "kept")
    publish("-t", f"{topic}/b", "-q", "1", "-r", "-m", "removed")
    publish("-t", f"{topic}/b", "-q", "1", "-r", "-n")
    message = listen("-t", f"{topic}/+", "-q", "1").message()
    assert (message["payload"], message["retain"]) == ("kept", 1)


def test_a_will(listen: Listen, topic: str) -> None:
    watcher = listen("-t", f"{topic}/will", "-q", "1")
    dead = listen("-t", topic, "--will-topic", f"{topic}/will", "--will-payload", "gone", "--will-qos", "1")
    dead.kill()
    assert watcher.message()["payload"] == "gone"


def test_a_session_that_is_kept(common: list[str], listen: Listen, publish: Publish, topic: str) -> None:
    keeping = ["-t", topic, "-q", "1", "-i", f"{topic}-client", "-c"]
    # It leaves when the subscription is granted.
    subprocess.run(["mosquitto_sub", *common, *keeping, "-E"], check=True, timeout=PATIENCE_SECONDS)
    for number in range(3):
        publish("-t", topic, "-q", "1", "-m", f"m{number}")
    listener = listen(*keeping)
    assert [message["payload"] for message in listener.messages(3)] == ["m0", "m1", "m2"]


def test_properties(listen: Listen, publish: Publish, topic: str, version: int) -> None:
    if version < 5:
        pytest.skip("MQTT 3.1.1 has no properties")
    listener = listen("-t", topic)
    said = ["-D", "publish", "user-property", "b", "2", "-D", "publish", "content-type", "text/plain"]
    publish("-t", topic, "-m", "x", *said, "-D", "publish", "response-topic", "answers/here")
    found = listener.message()["properties"]
    assert isinstance(found, dict)
    assert (found["content-type"], found["response-topic"]) == ("text/plain", "answers/here")
    assert found["user-properties"] == {"b": "2"}


def test_replay(listen: Listen, publish: Publish, topic: str, version: int) -> None:
    if version < 5:
        pytest.skip("MQTT 3.1.1 has no properties")
    for number in range(3):
        publish("-t", f"{topic}/a", "-q", "1", "-m", f"m{number}")
    listener = listen("-t", f"{topic}/#", "-q", "1", "-D", "subscribe", "user-property", "from", "1")
    assert [message["payload"] for message in listener.messages(2)] == ["m1", "m2"]


def test_a_shared_subscription(listen: Listen, publish: Publish, topic: str) -> None:
    members = [listen("-t", f"$share/group/{topic}", "-q", "1") for _ in range(2)]
    for number in range(6):
        publish("-t", topic, "-q", "1", "-m", f"m{number}")
    found = [[message["payload"] for message in member.messages(3)] for member in members]
    assert sorted(str(payload) for part in found for payload in part) == [f"m{n}" for n in range(6)]
