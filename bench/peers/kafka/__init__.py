"""Apache Kafka, at the defaults of its own start script: a single KRaft node with 1 GiB of heap.

Its jars come from Maven Central into the cache of the checkout, once; the version is the one in pom.xml.
Nothing of its configuration is changed but names, ports and the replication factors that one node forces.
At these defaults Kafka acknowledges what the operating system has taken, and leaves it to the system to
write it out: this is Fanlog's level `os`. What is nearest to Fanlog's `disk` is a topic with
flush.messages=1.
"""

import base64
import re
import shutil
import socket
import struct
import subprocess
import time
import uuid
from pathlib import Path

from bench.brokers import START_SECONDS_MAX, BrokerError, BrokerProcess, free_port
from bench.machine import CACHE
from bench.peers import NotAvailable

HERE = Path(__file__).parent
# What bin/kafka-server-start.sh and bin/kafka-run-class.sh of the distribution pass to Java.
JAVA_OPTIONS = ["-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
JAVA_OPTIONS += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


# Not a default: with it, a node that was killed may register again after one second, not nine.
SHORT_SESSIONS = "broker.session.timeout.ms=1000\nbroker.heartbeat.interval.ms=300\n"


def version() -> str:
    found = re.search(r"<kafka.version>(.*?)</kafka.version>", (HERE / "pom.xml").read_text())
    assert found is not None
    return found[1]


def java_version() -> str:
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    return shown.splitlines()[0].replace('"', "") if shown else "unknown Java"


def jars() -> Path:
    """The directory with Kafka's jars, fetched if they are not there."""
    if shutil.which("java") is None:
        raise NotAvailable("no java command; Kafka 4 needs Java 17 or later")
    directory = CACHE / "peers" / f"kafka-{version()}"
    complete = directory / ".complete"
    if complete.exists():
        return directory
    if shutil.which("mvn") is None:
        raise NotAvailable("no mvn command to fetch Kafka's jars with")
    command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={directory}", "-DincludeScope=runtime"]
    # Offline first: a machine that has the jars in its Maven repository needs no network at all.
    for attempt in ([*command, "-o"], command):
        try:
            done = subprocess.run(attempt, capture_output=True, text=True, timeout=180)
        except subprocess.TimeoutExpired:
            continue
        if done.returncode == 0:
            complete.touch()
            return directory
    raise NotAvailable("Maven could not fetch Kafka's jars")


class Kafka(BrokerProcess):
    """A Kafka node, formatted when first started."""

    name = "Kafka"

    def __init__(self, data: Path, extra: str = "") -> None:
        super().__init__(data)
        self.extra = extra
        self.classpath = f"{jars()}/*"
        self.properties = data.with_name(data.name + ".properties")

    def _format(self) -> None:
        self.address = ("127.0.0.1", free_port())
        self.properties.write_text(
            PROPERTIES.format(port=self.address[1], controller=free_port(), data=self.data) + self.extra
        )
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = ["java", "-cp", self.classpath, "kafka.tools.StorageTool", "format"]
        # In one word: an id may begin with a hyphen.
        command += [f"--cluster-id={cluster}", "-c", str(self.properties)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise NotAvailable(f"Kafka could not format its storage: {done.stderr.strip()[-300:]}")

    def start(self) -> float:
        """Seconds from exec to the first answer on its port."""
        if not self.properties.exists():
            self._format()
        begun = time.monotonic()
        process = self.spawn(
            ["java", *JAVA_OPTIONS, "-cp", self.classpath, "kafka.Kafka", str(self.properties)]
        )
        while not _answers(self.address):
            if process.poll() is not None or time.monotonic() - begun > START_SECONDS_MAX:
                self.kill()
                raise BrokerError(f"Kafka did not start: {self.tail()}")
            time.sleep(0.005)
        return time.monotonic() - begun


def _answers(address: tuple[str, int]) -> bool:
    """Whether the broker answers ApiVersions."""
    request = struct.pack(">hhih5s", 18, 0, 1, 5, b"bench")
    try:
        with socket.create_connection(address, timeout=10) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            return bool(connection.recv(4))
    except OSError:
        return False
