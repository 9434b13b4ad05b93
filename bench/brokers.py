"""A broker under test, as every measurement sees it, and Fanlog as one.

A broker is a real process with a data directory of its own. What is asked of it goes through the Kafka
protocol: topics are made by an admin client, and `end_offset` asks ListOffsets by hand, so that waiting for
a broker to serve costs it nothing but that. CPU time is the process's user and system time from /proc, all
threads included.
"""

import importlib.metadata
import importlib.util
import os
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

Address = tuple[str, int]
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0


class BrokerError(Exception):
    """A broker that did not start, or does not answer as it should."""


class Broker(Protocol):
    """What a measurement needs of a broker."""

    name: str
    address: Address

    def start(self) -> float: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def cpu(self) -> float: ...
    def memory_peak(self) -> int: ...
    def fsyncs(self) -> int | None: ...


class BrokerProcess:
    """One broker process; a subclass says how it is started and how one learns that it is ready."""

    name = ""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.address: Address = ("127.0.0.1", 0)
        self.process: subprocess.Popen[bytes] | None = None
        self.log = data.with_name(data.name + ".log")

    def __enter__(self) -> "BrokerProcess":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> float:
        raise NotImplementedError

    def fsyncs(self) -> int | None:
        return None

    def spawn(self, command: list[str], stdout: int | None = None) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log if stdout is None else stdout, stderr=log)
        return self.process

    def stop(self) -> None:
        """SIGTERM, as a service manager would."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(
                f"{self.name} did not stop within {STOP_SECONDS_MAX:.0f} s of SIGTERM"
            ) from None
        self._forget()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._forget()

    def _forget(self) -> None:
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None

    def cpu(self) -> float:
        """User and system seconds so far."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_peak(self) -> int:
        """The most bytes that were resident at once."""
        return self._memory("VmHWM")

    def memory(self) -> int:
        """The bytes that are resident now."""
        return self._memory("VmRSS")

    def forget_memory_peak(self) -> None:
        assert self.process is not None
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def _memory(self, field: str) -> int:
        assert self.process is not None
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
        return 0

    def discard(self) -> None:
        """Removes its data: the next broker needs the room."""
        shutil.rmtree(self.data, ignore_errors=True)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-1000:] if self.log.exists() else ""


class Fanlog(BrokerProcess):
    """`fanlog serve` of the environment that runs the benchmark, at its defaults."""

    name = "Fanlog"

    def __init__(self, data: Path, *, mqtt: bool = False) -> None:
        super().__init__(data)
        self.http: Address = ("127.0.0.1", 0)
        # Nobody's until it has started, and then only if it was asked for.
        self.mqtt: Address = ("127.0.0.1", 0)
        self._mqtt_door = "127.0.0.1:0" if mqtt else "none"

    def start(self) -> float:
        """Seconds from exec to the line that says it is ready."""
        beside = Path(sys.executable).parent / "fanlog"
        program = str(beside) if beside.exists() else shutil.which("fanlog")
        if program is None:
            raise BrokerError(
                "no fanlog command: install the package into this environment (pip install -e .)"
            )
        doors = ["--mqtt", self._mqtt_door, "--grpc", "none", "--lbroker", "none"]
        listen = ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        begun = time.monotonic()
        process = self.spawn([program, "serve", "--data", str(self.data), *listen, *doors], subprocess.PIPE)
        line = _read_line(process, START_SECONDS_MAX)
        if not line.startswith("ready "):
            self.kill()
            raise BrokerError(f"fanlog serve did not become ready: {line!r} {self.tail()}")
        seconds = time.monotonic() - begun
        doors_at = dict(word.split("=", 1) for word in line.split()[1:])
        self.address, self.http = _address(doors_at["kafka"]), _address(doors_at["http"])
        if "mqtt" in doors_at:
            self.mqtt = _address(doors_at["mqtt"])
        return seconds

    def fsyncs(self) -> int | None:
        with urllib.request.urlopen(f"http://{self.http[0]}:{self.http[1]}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        lines = [line for line in text.splitlines() if line.startswith("fanlog_fsyncs_total")]
        return sum(int(float(line.split()[-1])) for line in lines)


def fanlog_version() -> str:
    """The version, and whether its codecs are compiled: that decides its speed."""
    wire = importlib.util.find_spec("fanlog.wire")
    assert wire is not None
    assert wire.submodule_search_locations
    compiled = any(any(Path(place).glob("*.so")) for place in wire.submodule_search_locations)
    return importlib.metadata.version("fanlog") + (
        ", codecs compiled" if compiled else ", codecs not compiled"
    )


def _read_line(process: subprocess.Popen[bytes], seconds: float) -> str:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(seconds):
            return ""
        return process.stdout.readline().decode().strip()


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


def wait_until_listening(broker: BrokerProcess, address: Address) -> None:
    """Waits for a broker that does not say by itself when it is ready."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if broker.process is None or broker.process.poll() is not None:
            break
        try:
            socket.create_connection(address, timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise BrokerError(f"{broker.name} does not listen: {broker.tail()}")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def create_topic(
    address: Address, topic: str, partitions: int = 1, config: dict[str, str] | None = None
) -> None:
    admin = AdminClient({"bootstrap.servers": f"{address[0]}:{address[1]}", "log_level": 3})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config or {})
    try:
        admin.create_topics([new], request_timeout=30)[topic].result(30)
    except (KafkaException, TimeoutError) as error:
        raise BrokerError(f"topic {topic} could not be created: {error or 'no answer in 30 s'}") from error
    deadline = time.monotonic() + 30
    while any(end_offset(address, topic, partition) is None for partition in range(partitions)):
        if time.monotonic() > deadline:
            raise BrokerError(f"topic {topic} was created but is not served")
        time.sleep(0.02)


def end_offset(address: Address, topic: str, partition: int = 0) -> int | None:
    """The offset after the partition's last record; None where it is not served (yet)."""
    name = topic.encode()
    request = struct.pack(">hhih5s", 2, 2, 1, 5, b"bench") + struct.pack(">ibi", -1, 0, 1)
    request += struct.pack(f">h{len(name)}siiq", len(name), name, 1, partition, -1)
    try:
        with (
            socket.create_connection(address, timeout=10) as connection,
            connection.makefile("rb") as answers,
        ):
            connection.sendall(struct.pack(">i", len(request)) + request)
            size = struct.unpack(">i", answers.read(4))[0]
            answer = answers.read(size)
    except (OSError, struct.error):
        return None
    # correlation id, throttle time, one topic with its name, one partition: index, error, timestamp, offset
    error, offset = struct.unpack_from(">h8xq", answer, 4 + 4 + 4 + 2 + len(name) + 4 + 4)
    return offset if error == 0 else None


def wait_until_served(broker: Broker, topic: str, begun: float) -> float:
    """Seconds since `begun` at which the broker first answers for the topic's partition 0."""
    deadline = begun + START_SECONDS_MAX
    while end_offset(broker.address, topic) is None:
        if time.monotonic() > deadline:
            raise BrokerError(f"{broker.name} does not serve {topic} within {START_SECONDS_MAX:.0f} s")
        time.sleep(0.005)
    return time.monotonic() - begun
