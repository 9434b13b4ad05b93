"""A real broker inside a test process, and a disk that misbehaves on request.

    with running_broker() as broker:
        Producer({"bootstrap.servers": broker.kafka}).produce("topic", b"value")

The broker has its own thread, event loop, ports and, unless given one, data directory; all of it is gone
at the end of the block. What it runs is what `fanlog serve` runs.
"""

import asyncio
import contextlib
import errno
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvloop

from fanlog import config
from fanlog.broker import Broker
from fanlog.log.disk import Disk, Part

_START_SECONDS = 30.0


class RunningBroker:
    """What a test may know of the broker that runs beside it."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self.broker = broker
        self.loop = loop
        self.kafka = _joined(broker, "kafka")
        self.mqtt = _joined(broker, "mqtt")
        self.http = _joined(broker, "http")
        self.lbroker = _joined(broker, "lbroker")


def _joined(broker: Broker, door: str) -> str:
    host, port = broker.addresses[door]
    return f"{host}:{port}"


@contextlib.contextmanager
def running_broker(
    data: Path | None = None, disk: Disk | None = None, **settings: object
) -> Iterator[RunningBroker]:
    """Runs a broker for the length of a block. Settings by their names: `topics_durability="os"`."""
    names = {"_".join(name.path): name.key for name in config.names()}
    with tempfile.TemporaryDirectory() as scratch:
        flags: dict[str, object] = dict.fromkeys(("kafka", "mqtt", "http", "lbroker"), "127.0.0.1:0")
        flags |= {"data": data or Path(scratch)}
        flags |= {names[name]: value for name, value in settings.items()}
        started = Handover()
        thread = threading.Thread(target=_run, args=(config.load(flags, environment={}), disk, started))
        thread.start()
        try:
            running = started.wait()
            yield running
        finally:
            started.stop()
            thread.join()


class Handover:
    """Hands the running broker from its thread to the test, and the wish to stop back."""

    def __init__(self) -> None:
        self._known = threading.Event()
        self._running: RunningBroker | None = None
        self._error: BaseException | None = None
        self._stopping: asyncio.Event | None = None

    def started(self, running: RunningBroker, stopping: asyncio.Event) -> None:
        self._running, self._stopping = running, stopping
        self._known.set()

    def failed(self, error: BaseException) -> None:
        self._error = error
        self._known.set()

    def wait(self) -> RunningBroker:
        if not self._known.wait(_START_SECONDS):
            raise TimeoutError("the broker did not start")
        if self._error is not None:
            raise self._error
        assert self._running is not None
        return self._running

    def stop(self) -> None:
        if self._running is not None and self._stopping is not None:
            self._running.loop.call_soon_threadsafe(self._stopping.set)


def _run(settings: config.Settings, disk: Disk | None, started: Handover) -> None:
    async def main() -> None:
        broker = Broker(settings, disk)
        await broker.start()
        stopping = asyncio.Event()
        started.started(RunningBroker(broker, asyncio.get_running_loop()), stopping)
        await stopping.wait()
        await broker.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(main())
        except BaseException as error:
            started.failed(error)


class FaultyDisk(Disk):
    """A disk that fails when told to: set an attribute to an errno, and back to 0 when it is well again."""

    def __init__(self) -> None:
        self.write_error = 0
        self.write_error_after_bytes = 0
        self.sync_error = 0
        self.truncate_error = 0
        self.syncs = 0

    def write(self, fd: int, parts: Sequence[Part], at: int) -> None:
        if self.write_error:
            # As much as there is room for arrives before the error does.
            torn = b"".join(parts)[: self.write_error_after_bytes]
            super().write(fd, (torn,), at)
            raise OSError(self.write_error, os.strerror(self.write_error))
        super().write(fd, parts, at)

    def sync(self, fd: int) -> None:
        self.syncs += 1
        if self.sync_error:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        super().sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        if self.truncate_error:
            raise OSError(self.truncate_error, os.strerror(self.truncate_error))
        super().truncate(fd, size)

    def fill_up(self) -> None:
        self.write_error = errno.ENOSPC
