"""kcat: the command-line tool, on an older librdkafka. It produces and prints text."""

import itertools
import json
import re
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from .base import PATIENCE_SECONDS, Client, Member, Membership, Message, Record, TooLarge

_ASSIGNED = re.compile(r"% Group .* rebalanced .*: assigned: (?P<partitions>.*)")
_REVOKED = re.compile(r"% Group .* rebalanced .*: revoked: ")
_PARTITION = re.compile(r"\[(\d+)\]")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _record(line: str) -> Record:
    envelope: dict[str, Any] = json.loads(line)
    flat = envelope.get("headers", [])
    headers = tuple((name, _bytes(value)) for name, value in zip(flat[::2], flat[1::2], strict=True))
    return Record(
        envelope["partition"],
        envelope["offset"],
        envelope["ts"],
        _bytes(envelope["key"]),
        _bytes(envelope["payload"]),
        headers,
    )


class KcatClient(Client):
    name = "kcat"
    carries_anything = False
    cooperates = False

    def _command(self, *arguments: str) -> list[str]:
        return ["kcat", "-b", self.bootstrap, *arguments]

    def _run(self, *arguments: str, given: bytes = b"") -> str:
        result = subprocess.run(
            self._command(*arguments), input=given, capture_output=True, timeout=PATIENCE_SECONDS
        )
        said = result.stderr.decode(errors="replace")
        if "Message size too large" in said:
            raise TooLarge(said)
        assert result.returncode == 0, f"kcat {' '.join(arguments)}: {said}"
        return result.stdout.decode(errors="replace")

    def produce(
        self, topic: str, messages: Sequence[Message], *, compression: str = "none", idempotent: bool = False
    ) -> None:
        # Partition and headers are options of the command, so messages that differ in them need commands
        # of their own. -Z makes an empty field null.
        kind = lambda message: (message.partition, message.headers)  # noqa: E731
        for (partition, headers), alike in itertools.groupby(sorted(messages, key=kind), kind):
            options = ["-P", "-t", topic, "-p", str(partition), "-Z", "-K", "\\x1f", "-D", "\\x1e"]
            options += ["-z", compression, "-X", f"enable.idempotence={str(idempotent).lower()}"]
            options += ["-X", "acks=all", "-X", "message.max.bytes=10000000"]
            for name, value in headers:
                options += ["-H", f"{name}={(value or b'').decode()}"]
            lines = [(message.key or b"") + b"\x1f" + (message.value or b"") for message in alike]
            self._run(*options, given=b"\x1e".join(lines))

    def read(
        self, topic: str, count: int, partitions: Sequence[int] = (0,), *, from_time: int | None = None
    ) -> list[Record]:
        start = "beginning" if from_time is None else f"s@{from_time}"
        options = ["-C", "-q", "-J", "-e", "-t", topic, "-o", start, "-c", str(count)]
        if len(partitions) == 1:
            options += ["-p", str(partitions[0])]
        return [_record(line) for line in self._run(*options).splitlines()]

    def offset_for_time(self, topic: str, partition: int, time: int) -> int | None:
        answer = self._run("-Q", "-t", f"{topic}:{partition}:{time}")
        found = re.search(r"offset (-?\d+)", answer)
        assert found is not None, answer
        return int(found[1]) if int(found[1]) >= 0 else None

    def join(self, membership: Membership) -> Member:
        options = {
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": "100",
            "session.timeout.ms": str(membership.session_timeout_ms),
            "heartbeat.interval.ms": "100",
            "fetch.wait.max.ms": str(membership.fetch_wait_ms),
            "partition.assignment.strategy": "cooperative-sticky" if membership.cooperative else "range",
        }
        if membership.instance_id is not None:
            options["group.instance.id"] = membership.instance_id
        flags = [flag for key, value in options.items() for flag in ("-X", f"{key}={value}")]
        return _KcatMember(
            membership.name, self._command("-J", "-u", *flags, "-G", membership.group, membership.topic)
        )


class _KcatMember(Member):
    def __init__(self, name: str, command: list[str]) -> None:
        super().__init__(name)
        self.said: list[str] = []
        self.ending = False
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._threads = [
            threading.Thread(target=self._listen, args=listening, daemon=True)
            for listening in ((self.process.stdout, self._received), (self.process.stderr, self._told))
        ]
        for thread in self._threads:
            thread.start()

    def _listen(self, stream: Any, heard: Any) -> None:
        for line in stream:
            heard(line)

    def _received(self, line: str) -> None:
        self.records.append(_record(line))

    def _told(self, line: str) -> None:
        self.said.append(line)
        if assigned := _ASSIGNED.search(line):
            self.assigned({int(number) for number in _PARTITION.findall(assigned["partitions"])})
        elif _REVOKED.search(line):
            self.revoked(self.assignment)

    def check(self) -> bool:
        assert self.ending or self.process.poll() is None, f"{self.name} ended: {''.join(self.said)}"
        return True

    def close(self) -> None:
        self.ending = True
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE_SECONDS)
        finally:
            self.process.kill()
            for thread in self._threads:
                thread.join(PATIENCE_SECONDS)

    def vanish(self) -> None:
        self.ending = True
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
