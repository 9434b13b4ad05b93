"""A broker as a real process: started, stopped, killed and started again.

`BrokerProcess` runs `python -m fanlog serve` on free ports and a data directory of its own. `start` returns
once the broker has printed its ready line, or raises `BrokerFailed` with what the broker wrote to standard
error. Ports and data directory survive `stop`, `kill` and `restart`, so that clients find the broker where
it was. Standard output and standard error go to files beside the data directory, so a broker that writes
much never blocks on a full pipe, and what it wrote is there after it died.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")

_READY = re.compile(r"^ready\b(?P<doors>.*)$", re.MULTILINE)


class BrokerFailed(AssertionError):
    """The broker did not do what was asked of it; the message ends with what it wrote to standard error."""


def wait_for(what: str, check: Callable[[], Found], seconds: float = 10.0, every: float = 0.01) -> Found:
    """The first true value of `check`. Raises, naming `what`, when none comes in time."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(every)


class BrokerProcess:
    """One `fanlog serve`. `flags` are added to its command line, `environment` to its environment."""

    def __init__(
        self,
        home: Path,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home
        self.data = home / "data"
        self.flags = list(flags)
        self.environment = dict(environment or {})
        self.doors = {"kafka": "127.0.0.1:0", "http": "127.0.0.1:0"}
        self.process: subprocess.Popen[bytes] | None = None
        self._stdout_path = home / "stdout"
        self._stderr_path = home / "stderr"

    @property
    def kafka(self) -> str:
        """HOST:PORT of the Kafka door."""
        return self.doors["kafka"]

    @property
    def http(self) -> str:
        """HOST:PORT of the HTTP door."""
        return self.doors["http"]

    @property
    def pid(self) -> int:
        assert self.process is not None, "the broker was never started"
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def stderr(self) -> str:
        """All that the broker wrote to standard error, over all its starts."""
        return self._stderr_path.read_text(errors="replace") if self._stderr_path.exists() else ""

    def command(self) -> list[str]:
        doors = [
            f"--kafka={self.kafka}",
            f"--http={self.http}",
            "--mqtt=none",
            "--grpc=none",
            "--lbroker=none",
        ]
        return [sys.executable, "-m", "fanlog", "serve", f"--data={self.data}", *doors, *self.flags]

    def start(self, *flags: str, seconds: float = 30.0) -> "BrokerProcess":
        """Start the broker and wait until it is ready. `flags` are kept for later starts."""
        assert not self.running, "the broker is running already"
        self.home.mkdir(parents=True, exist_ok=True)
        self.flags.extend(flags)
        with open(self._stdout_path, "wb") as out, open(self._stderr_path, "ab") as err:
            environment = {**os.environ, "PYTHONUNBUFFERED": "1", **self.environment}
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment
            )
        self._await_ready(seconds)
        return self

    def stop(self, seconds: float = 30.0) -> None:
        """Ask the broker to drain and end, as an init system does; it has to end with 0."""
        assert self.process is not None, "the broker was never started"
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self._await_exit(seconds)
        if code != 0:
            raise self._failed(f"ended with {code} after SIGTERM, not 0")

    def kill(self) -> None:
        """kill -9; returns when the process is gone."""
        assert self.process is not None, "the broker was never started"
        self.process.kill()
        self.process.wait(10)

    def restart(self, *flags: str, seconds: float = 30.0) -> "BrokerProcess":
        """Stop the broker and start it again, on the same ports and data."""
        self.stop()
        return self.start(*flags, seconds=seconds)

    def close(self) -> None:
        """End the broker in whatever state it is; for the end of a test."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)

    def _await_ready(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        assert self.process is not None
        while True:
            ready = _READY.search(self._stdout_path.read_text(errors="replace"))
            if ready and ready.end() < self._stdout_path.stat().st_size:  # the line is there with its end
                break
            if self.process.poll() is not None:
                raise self._failed(f"ended with {self.process.returncode} before it was ready")
            if time.monotonic() > deadline:
                self.close()
                raise self._failed(f"was not ready after {seconds} s")
            time.sleep(0.005)
        self.doors.update(door.split("=", 1) for door in ready["doors"].split())

    def _await_exit(self, seconds: float) -> int:
        assert self.process is not None
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.close()
            raise self._failed(f"did not end within {seconds} s of SIGTERM") from None

    def _failed(self, what: str) -> BrokerFailed:
        return BrokerFailed(f"the broker {what}; its standard error ends with:\n{self.stderr[-4000:]}")
