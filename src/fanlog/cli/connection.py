"""How the commands reach a broker: with the stock Kafka client, like everybody else.

librdkafka retries a broker that is not there until its time-out and logs each attempt. A person at a prompt
wants to know at once, so a plain connect comes first, and the library's own log goes nowhere. Its errors are
translated here, in one table, into sentences that say what to do.
"""

import difflib
import logging
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fanlog import config
from fanlog.cli.output import Trouble, usage

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient, ClusterMetadata, TopicMetadata

Broker = Annotated[
    str,
    typer.Option("--broker", "-b", envvar="FANLOG_BROKER", metavar="HOST:PORT", help="Broker to talk to."),
]
DEFAULT_BROKER = "127.0.0.1:9092"
ANSWER_SECONDS_MAX = 15.0
CONNECT_SECONDS_MAX = 3.0
INTERNAL = "__"

Value = TypeVar("Value")

ADVICE = {
    "TOPIC_ALREADY_EXISTS": "choose another name, or change the topic with `fanlog topic alter`",
    "INVALID_PARTITIONS": "partitions can be added, never taken away",
    "NON_EMPTY_GROUP": "stop the group's members first",
    "GROUP_ID_NOT_FOUND": "see `fanlog group list`",
    "UNKNOWN_MEMBER_ID": "stop the group's members first",
    "INVALID_TOPIC_EXCEPTION": "a name is 1 to 249 of the characters a-z A-Z 0-9 . _ -",
    "TOPIC_EXCEPTION": "a name is 1 to 249 of the characters a-z A-Z 0-9 . _ -",
    "MSG_SIZE_TOO_LARGE": "send less at once, or raise max.message.bytes with `fanlog topic alter`",
    "_MSG_TIMED_OUT": "the broker did not acknowledge in time: see its log, and `fanlog doctor`",
    "_TIMED_OUT": "the broker did not answer in time: see its log, and `fanlog doctor`",
    "_TRANSPORT": "the connection broke: is the broker still running?",
    "_ALL_BROKERS_DOWN": "the connection broke: is the broker still running?",
    "KAFKA_STORAGE_ERROR": "the broker's disk is full or failing: see its log, and `fanlog doctor`",
}


def trouble(error: "KafkaError", doing: str) -> Trouble:
    advice = ADVICE.get(error.name())
    text = error.str() or error.name().lower().replace("_", " ")
    detail = text.removeprefix("Broker: ").removeprefix("Local: ").rstrip(".")
    return Trouble(f"{doing}: {detail}" + (f" ({advice})" if advice else ""))


def properties(broker: str, **more: object) -> dict[str, Any]:
    """A client's settings. The log of librdkafka is not for users: its errors come back from the calls."""
    logger = logging.getLogger("fanlog.cli.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    given = {
        "bootstrap.servers": broker,
        "client.id": "fanlog-cli",
        "logger": logger,
        "error_cb": lambda _: None,
        "socket.connection.setup.timeout.ms": 3000,
        "reconnect.backoff.max.ms": 500,
    }
    return given | {key.replace("_", "."): value for key, value in more.items()}


def addresses(broker: str) -> list[tuple[str, int]]:
    """`HOST:PORT[,HOST:PORT...]`; a host alone has Kafka's port."""
    found = []
    for part in broker.split(","):
        text = part.strip()
        try:
            pair = config.address(text if ":" in text else f"{text}:9092")
        except config.ConfigError as error:
            raise usage(f"--broker: {error}") from error
        if pair is None:
            raise usage("--broker takes HOST:PORT, not none")
        found.append(pair)
    return found


def answers(address: tuple[str, int], seconds: float = CONNECT_SECONDS_MAX) -> bool:
    try:
        socket.create_connection(address, timeout=seconds).close()
    except OSError:
        return False
    return True


def require(broker: str) -> None:
    """Fails at once, with what to do, where nobody listens."""
    if not any(answers(address) for address in addresses(broker)):
        raise Trouble(
            f"no broker answers at {broker}: start one with `fanlog serve`, or name another with --broker"
        )


def admin(broker: str) -> "AdminClient":
    from confluent_kafka.admin import AdminClient

    require(broker)
    return AdminClient(properties(broker))


def cluster(client: "AdminClient", broker: str) -> "ClusterMetadata":
    from confluent_kafka import KafkaException

    try:
        return client.list_topics(timeout=ANSWER_SECONDS_MAX)
    except KafkaException as error:
        raise Trouble(
            f"{broker} listens, but does not answer as a Kafka broker does: {error.args[0].str()}"
        ) from error


def topic(client: "AdminClient", broker: str, name: str) -> "TopicMetadata":
    """The topic's metadata; a name that is not there is answered with those near it."""
    topics = cluster(client, broker).topics
    if name not in topics:
        raise unknown_topic(name, topics)
    return topics[name]


def unknown_topic(name: str, there: Iterable[str]) -> Trouble:
    hint = near(name, there) or f"create it with `fanlog topic create {name}`"
    return Trouble(f"there is no topic {name}: {hint}")


def near(name: str, there: Iterable[str]) -> str:
    """`did you mean a or b?`, or nothing."""
    visible = [known for known in there if not known.startswith(INTERNAL)]
    close = difflib.get_close_matches(name, visible, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else ""


def wait(futures: "dict[Any, Future[Value]]", doing: str) -> list[Value]:
    """The answers to an admin call, or the first refusal as a sentence."""
    from confluent_kafka import KafkaException

    try:
        return [future.result(timeout=ANSWER_SECONDS_MAX + 5) for future in futures.values()]
    except KafkaException as error:
        raise trouble(error.args[0], doing) from error
    except TimeoutError as error:
        raise Trouble(f"{doing}: no answer within {ANSWER_SECONDS_MAX + 5:.0f} s") from error


def call(doing: str, make: Callable[[], Value]) -> Value:
    """`make()`, its Kafka errors as sentences and its bad arguments as usage."""
    from confluent_kafka import KafkaException

    try:
        return make()
    except KafkaException as error:
        raise trouble(error.args[0], doing) from error
    except (ValueError, TypeError) as error:
        raise usage(f"{doing}: {error}") from error


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`--config k=v` and `--header k=v`."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise usage(f"{option} takes NAME=VALUE, not {text!r}")
        found[key] = value
    return found
